"""Runs that several tests read, written once."""

from __future__ import annotations

import gc
import json
import os
from functools import lru_cache
from pathlib import Path

import jsonschema
import pytest
from ibis.backends.duckdb import Backend
from ibis.expr.operations import InMemoryTable

import unruly
from quick import numbers
from stores_world import rising_load
from synthetic import write_run

REPOSITORY = Path(__file__).resolve().parents[3]

# As the program sets it: an analysis makes many small objects that live long.
gc.set_threshold(50_000, 20, 100)

# Hundreds of small runs are asked the same, and to translate that into SQL takes longer than to run
# it. The SQL depends on the expression alone. One with a table in memory never comes again.
TRANSLATIONS_MOST = 500
translate = Backend.compile


@lru_cache(maxsize=TRANSLATIONS_MOST)
def _translated(backend, operation):
    return translate(backend, operation.to_expr())


def _translate_once(backend, expression, /, **options):
    operation = expression.op()
    if any(options.values()) or operation.find(InMemoryTable):
        return translate(backend, expression, **options)
    return _translated(backend, operation)


Backend.compile = _translate_once

# Read when Spark starts, here or in a process that a test starts.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark")


@pytest.fixture(scope="session")
def clean_run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("clean") / "run")


@pytest.fixture(scope="session")
def clean(clean_run):
    return unruly.analyse(unruly.open_run(clean_run))


@pytest.fixture(scope="session")
def rising(tmp_path_factory):
    """Return the analysis of a store under rising load, whose p99 breaks at the last one."""
    return numbers(
        write_run(tmp_path_factory.mktemp("rising") / "run", **rising_load(slow_from=1600))
    )


@pytest.fixture(scope="session")
def slow_run(tmp_path_factory):
    return write_run(
        tmp_path_factory.mktemp("slow") / "run", slow_agent=3, failed_share=0.002, late_share=0.5
    )


@pytest.fixture(scope="session")
def slow(slow_run):
    return unruly.analyse(unruly.open_run(slow_run))


@pytest.fixture(scope="session")
def analysed(tmp_path_factory):
    """Analyse a run of a given shape, each shape once, since an analysis never changes."""
    known = {}

    def of(*, causes=False, pictures=False, target=None, **changes):
        asked = {"causes": causes, "pictures": pictures, "target": target}
        shape = repr((asked, sorted(changes.items())))
        if shape not in known:
            run = unruly.open_run(write_run(tmp_path_factory.mktemp("run") / "run", **changes))
            known[shape] = unruly.analyse(run, **asked)
        return known[shape]

    return of


@pytest.fixture(scope="session")
def shared_data():
    """The directory of known answers; without it CI fails, and a person's run skips."""
    named = os.environ.get("UNRULY_SHARED_DATA")
    path = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        message = f"known answers are not at {path}: set UNRULY_SHARED_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def schema():
    path = REPOSITORY / "unruly" / "schema" / "summary.schema.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)
