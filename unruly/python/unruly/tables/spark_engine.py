"""Spark, over a cluster or in threads of this machine: the engine for more than fits one machine.

Ibis writes the SQL and Spark runs it. Rows travel through Arrow, since PySpark's own way to frames
does not know pandas 3. One process has one Spark; every engine is a session of it.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import socket
import tempfile
import warnings
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, Final

import ibis
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from unruly.errors import EngineError
from unruly.tables.columns import TABLES
from unruly.tables.engine import Engine

# rows travel through Arrow, so that what PySpark says of pandas, each time anew, is about nothing
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

with warnings.catch_warnings():
    # Ibis decorates functions on import
    warnings.simplefilter("ignore", FutureWarning)
    from ibis.backends.pyspark import Backend
    from ibis.backends.pyspark.converter import PySparkPandasData

    # its options exist once Ibis itself has loaded it
    getattr(ibis, Backend.name)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaGateway
    from pyspark.sql import DataFrame

# Spark has no unsigned type: the next that holds every value
TYPES: Final = {
    "VARCHAR": "STRING",
    "BOOLEAN": "BOOLEAN",
    "DOUBLE": "DOUBLE",
    "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INT",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20, 0)",
}
WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.app.name": "unruly",
}
HERE: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
SESSION: Final = {
    # an overflow or a wrong index is an error, as in DuckDB, and never a null
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
PARTITIONS_HERE: Final = 4
CONNECT_SECONDS_MAX: Final = 5.0
_STARTING: Final = Lock()
_GLOB = re.compile(r"([\\{}\[\]*?])")


class SparkEngine(Engine):
    """A session of Spark, with a view for each trace table.

    Parameters
    ----------
    address : str
        ``spark://HOST:PORT``, or ``local[N]``.
    memory : int, optional
        Bytes that each executor may hold; inside this process, bytes of the Java machine. Counts
        only for the first engine of a process, which starts Spark.

    Raises
    ------
    EngineError
        Java is missing, nobody listens at the address, or this process has another Spark already.
    """

    def __init__(self, address: str, memory: int | None = None) -> None:
        self.address = address
        self._segments: dict[str, list[str]] = {}
        self._defined: dict[str, str] = {}
        self._kept: dict[str, DataFrame] = {}
        with _STARTING:
            self._open(_started(address, memory).newSession())

    def _open(self, session: SparkSession) -> None:
        for name, value in SESSION.items():
            session.conf.set(name, value)
        if self.address.startswith("local"):
            session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS_HERE))
        self.session = session
        self.connection = _Connection().connect(session)
        self.connection.address = self.address

    def fork(self) -> SparkEngine:
        """Return a second session: the same views, kept tables of its own."""
        other = object.__new__(SparkEngine)
        other.address, other._segments, other._kept = self.address, self._segments, {}
        other._defined = self._defined
        other._open(self.session.newSession())
        for table, paths in self._segments.items():
            other._view(table, paths)
        for name, sql in self._defined.items():
            other._define(name, sql)
        return other

    def view(self, table: str, files: Mapping[Path, set[str]]) -> None:
        """Make the view ``table`` over its segments, as the interface says."""
        # plain paths may mean another file system to a cluster, and may look like patterns
        paths = ["file://" + _GLOB.sub(r"\\\1", str(path.resolve())) for path in sorted(files)]
        self._segments[table] = paths
        self._view(table, paths)

    def _view(self, table: str, paths: list[str]) -> None:
        schema = ", ".join(f"`{name}` {TYPES[kind]}" for name, kind, _ in TABLES[table])
        try:
            # Spark fills a column that a file lacks with nulls where the schema is given
            rows = (
                self.session.read.schema(schema).parquet(*paths)
                if paths
                else self.session.createDataFrame([], schema)
            )
        except (PySparkException, Py4JError) as error:
            raise _failed(self.address, error) from error
        rows.createOrReplaceTempView(table)

    def table(self, name: str) -> ibis.Table:
        """Return the view ``name``, lazily."""
        return self.connection.table(name)

    def define(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Make a view of ``expression``."""
        self._defined[name] = self.connection.compile(expression)
        self._define(name, self._defined[name])
        return self.table(name)

    def _define(self, name: str, sql: str) -> None:
        try:
            self.session.sql(sql).createOrReplaceTempView(name)
        except (PySparkException, Py4JError) as error:
            raise _failed(self.address, error) from error

    def materialise(self, name: str, expression: ibis.Table) -> ibis.Table:
        """Keep the rows of ``expression`` where Spark caches: in memory, then on disk."""
        rows = self.connection.rows(expression).persist()
        self.forget(name)
        rows.createOrReplaceTempView(name)
        self._kept[name] = rows
        return self.table(name)

    def forget(self, name: str) -> None:
        """Give back the cache of the kept table."""
        before = self._kept.pop(name, None)
        if before is not None:
            before.unpersist()

    def write_csv(self, expression: ibis.Table, path: Path) -> None:
        """Write the rows of ``expression`` to a CSV file with a header.

        They come one part at a time: the workers may not see the place of the file.
        """
        rows = self.connection.rows(expression)
        try:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(rows.columns)
                writer.writerows(rows.toLocalIterator())
        except (PySparkException, Py4JError) as error:
            raise _failed(self.address, error) from error


class _Connection(Backend):  # type: ignore[misc]  # Ibis has no types
    """Ibis's connection to Spark, with Arrow between Python and Spark instead of pandas."""

    address = ""

    def rows(self, expression: ibis.Table, **options: Any) -> DataFrame:
        """Return the rows of ``expression`` as Spark has them, not run yet."""
        self._run_pre_execute_hooks(expression)
        try:
            found: DataFrame = self.raw_sql(self.compile(expression, **options))
        except (PySparkException, Py4JError) as error:
            raise _failed(self.address, error) from error
        return found

    def execute(self, expression: Any, /, **options: Any) -> Any:
        """Run an expression and return it as pandas has it."""
        table = expression.as_table()
        try:
            found = self.rows(table, **options).toArrow()
        except (PySparkException, Py4JError) as error:
            raise _failed(self.address, error) from error
        schema = table.schema()
        wide = {name: "uint64" for name, kind in schema.items() if kind.is_decimal()}
        for name in wide:
            place = found.schema.get_field_index(name)
            found = found.set_column(place, name, found[name].cast(pa.uint64()))
        frame = PySparkPandasData.convert_table(found.to_pandas(), type(schema)({**schema, **wide}))
        return expression.__pandas_result__(frame)

    def _register_in_memory_table(self, op: Any) -> None:
        found: pa.Table = op.data.to_pyarrow(op.schema)
        signed = [field.with_type(WIDER.get(field.type, field.type)) for field in found.schema]
        rows = self._session.createDataFrame(found.cast(pa.schema(signed)))
        rows.createOrReplaceTempView(op.name)


def _started(address: str, memory: int | None) -> SparkSession:
    """Return the Spark of this process: it is started when there is none."""
    running = SparkContext._active_spark_context
    if running is not None:
        if running.master != address:
            raise EngineError(
                address,
                f"this process runs Spark at {running.master} already",
                "one Spark in a process",
                f"use {running.master}, or another process",
            )
        return SparkSession(running)
    home = os.environ.get("JAVA_HOME")
    if not shutil.which(str(Path(home, "bin", "java")) if home else "java"):
        raise EngineError(
            address,
            f"no Java at JAVA_HOME ({home})" if home else "no Java on PATH",
            "Java 17 or newer, which Spark runs on",
            "apt-get install openjdk-17-jre-headless",
        )
    settings = QUIET | {"spark.master": address}
    if memory is not None:
        name = "executor" if address.startswith("spark://") else "driver"
        settings[f"spark.{name}.memory"] = f"{memory // 2**20}m"
    if address.startswith("spark://"):
        _reach(address)
    else:
        settings |= HERE
    configuration = SparkConf().setAll(list(settings.items()))
    # Java and Spark greet on stderr before any setting holds; it is shown when they fail
    with tempfile.TemporaryFile() as said:
        try:
            gateway = SparkContext._gateway or _launched(configuration, said)
            return SparkSession(SparkContext(conf=configuration, gateway=gateway))
        except (PySparkException, Py4JError) as error:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise EngineError(
                address,
                f"Spark does not start: {_sentence(error)}",
                "a Spark that this process may use",
                lines[-1] if lines else "see its log",
            ) from error


def _launched(configuration: SparkConf, said: IO[bytes]) -> JavaGateway:
    return launch_gateway(configuration, {"stderr": said})  # type: ignore[no-untyped-call]


def _reach(address: str) -> None:
    """See that one of the masters listens: Spark itself would try for minutes."""
    problems = []
    for master in address.removeprefix("spark://").split(","):
        host, _, port = master.rpartition(":")
        if not host or not port.isdigit():
            raise EngineError("engine", f"is {address!r}", "spark://HOST:PORT", "name the port")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX).close()
        except (OSError, OverflowError) as error:
            problems.append(f"{master}: {error}")
        else:
            return
    raise EngineError(
        address,
        f"nobody listens: {', '.join(problems)}",
        "the master of a Spark cluster",
        "start it, or --engine 'local[2]'",
    )


def _failed(address: str, error: Exception) -> EngineError:
    return EngineError(
        address,
        f"Spark failed: {_sentence(error)}",
        "a run that every worker can read under its path",
        "leave the engine out to use DuckDB",
    )


def _sentence(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
