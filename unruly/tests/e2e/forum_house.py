"""Spirit, a forum that somebody else wrote: nginx, Django under gunicorn, and PostgreSQL.

Nothing of it knows unruly. OpenTelemetry's own program starts it, and exports its spans.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from house import REPOSITORY, wait_for
from http_house import answers, nginx
from redis_house import free_port
from sql_house import PASSWORD, USER, Postgres, postgres

HOST: Final = "127.0.0.1"
PROGRAMS: Final = REPOSITORY / "target" / "opentelemetry" / "bin"
"""As `make opentelemetry` installs them."""
TOPICS: Final = 40
READERS: Final = 8
SETTINGS: Final = f"""
from .prod import *

SECRET_KEY = "a test's"
ALLOWED_HOSTS = ["{HOST}"]
# the ten attempts a minute that an address has are for people
ST_RATELIMIT_ENABLE = False
ST_SITE_URL = "http://{HOST}/"
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
# half a second of work for each login would be all of this test
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES["default"].update(
    NAME="postgres", USER="{USER}", PASSWORD="{PASSWORD}", PORT=os.environ["FORUM_DATABASE"],
    CONN_MAX_AGE=None,
)
"""
SEED: Final = f"""
from django.contrib.auth import get_user_model
from spirit.category.models import Category
from spirit.comment.models import Comment
from spirit.topic.models import Topic

users = [
    get_user_model().objects.create_user(f"reader{{i}}", f"reader{{i}}@example.com", "w0rds")
    for i in range({READERS})
]
place = Category.objects.create(title="Talk")
for i in range({TOPICS}):
    topic = Topic.objects.create(user=users[i % 8], category=place, title=f"Topic {{i}}")
    Comment.objects.bulk_create(
        Comment(user=users[j % 8], topic=topic, comment="words", comment_html="<p>words</p>")
        for j in range(15)
    )
"""
SPANS: Final = {
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_SERVICE_NAME": "forum",
    "OTEL_BSP_SCHEDULE_DELAY": "500",
    "DJANGO_SETTINGS_MODULE": "forum.settings.here",
}
"""What its documentation says to set."""


@dataclass(frozen=True)
class Forum:
    """A running forum."""

    url: str
    app: str
    database: Postgres
    server: subprocess.Popen[bytes]

    @property
    def places(self) -> list[str]:
        """Its tiers, as a tap wants them."""
        web = self.url.removeprefix("http://")
        return [
            f"web=tcp://{web}",
            f"app=tcp://{self.app}",
            f"db=tcp://{HOST}:{self.database.port}",
        ]


def _proxy(app: str, limit: str) -> str:
    """Lines of a web server that passes requests on over connections that it keeps."""
    headers = "proxy_http_version 1.1; proxy_set_header Connection ''; "
    headers += "proxy_set_header Host $host; "
    # the brace that the server's lines end with closes the group of servers
    inner = "limit_req_zone $binary_remote_addr zone=all:32k rate=6r/s; "
    inner += f"upstream app {{ server {app}; keepalive 16;"
    return f"location / {{ {limit} {headers} proxy_pass http://app; }} }} {inner}"


def project(folder: Path, database: Postgres) -> dict[str, str]:
    """Make a forum with readers and topics, as its documentation says; return its environment."""
    own = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    env = {**own, **SPANS, "FORUM_DATABASE": str(database.port)}
    env["PATH"] = f"{PROGRAMS}:{os.environ['PATH']}"

    def ran(*words: str, text: str = "") -> None:
        said = subprocess.run(
            words, cwd=folder, env=env, input=text, capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stderr

    ran("spirit", "startproject", "forum", "--path", str(folder))
    (folder / "forum" / "settings" / "here.py").write_text(SETTINGS)
    ran("python", "manage.py", "migrate", "--verbosity", "0")
    ran("python", "manage.py", "shell", text=SEED)
    return env


@contextmanager
def forum(folder: Path, spans: int, *, threads: int = 8, limit: str = "") -> Iterator[Forum]:
    """The forum, which exports its spans to a port; and whose web server may have a limit."""
    for name in ("site", "web"):
        (folder / name).mkdir()
    with postgres() as database:
        env = project(folder / "site", database)
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://{HOST}:{spans}"
        port = free_port(HOST)
        words = ["opentelemetry-instrument", "gunicorn", "forum.wsgi", "-b", f"{HOST}:{port}"]
        words += [
            "-k",
            "gthread",
            "--threads",
            str(threads),
            "--no-control-socket",
            "--keep-alive",
            "75",
            "--log-level",
            "error",
        ]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                words, cwd=folder / "site", env=env, stdout=log, stderr=log,
                executable=PROGRAMS / words[0],
            )  # fmt: skip
        try:
            with nginx(folder / "web", server=_proxy(f"{HOST}:{port}", limit)) as url:
                found = Forum(url, f"{HOST}:{port}", database, server)
                wait_for(lambda: answers(port) or server.poll() is not None, "the forum")
                assert server.poll() is None, (folder / "log").read_text()
                yield found
        finally:
            server.terminate()
            try:
                server.wait(timeout=30)
            finally:
                server.kill()
                server.wait()
