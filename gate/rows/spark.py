"""Spark as an engine: how to connect, how a double is written, how rows come back."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import warnings
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gate.rows.driver import TIMEOUT, Driver, plain
from gate.rows.engine import Reply
from gate.rows.table import Column

JOBS = "gate"  # the group of all jobs, so that only these are ended
QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
}
KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("string", "char", "varchar"), "text"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "time"),
    "decimal": "decimal",
    "boolean": "boolean",
    "date": "date",
    "void": "null",
}


class Spark(Driver):
    """A session of gate's own on the user's cluster, or on one inside this machine."""

    double, word, extra = "DOUBLE", "STRING", "spark"
    start = 120  # seconds: a Java machine and its cluster take their time
    _context: Any = None
    _views = 0

    def connect(self, url: str) -> None:
        import pyarrow  # noqa: F401
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        master = url if url.startswith("spark://") else url.removeprefix("spark:")
        if url.startswith("spark://") and "," not in url:
            place = urlsplit(url)
            socket.create_connection((place.hostname or "", place.port or 7077), TIMEOUT).close()
        conf = SparkConf().setMaster(master).setAppName("gate").set("spark.ui.enabled", "false")
        conf.set("spark.driver.maxResultSize", "0").set("spark.driver.memory", f"{max(self.memory >> 21, 1024)}m")
        if master.startswith("local"):
            conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        with warnings.catch_warnings(action="ignore"):
            self._is_own = SparkContext._active_spark_context is None
            if SparkContext._gateway is None:  # else Java would write to this terminal
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                SparkContext._ensure_initialized(gateway=launch_gateway(conf, quiet))
            context = SparkContext.getOrCreate(conf)
            if context.master != master:
                raise ValueError(f"a session of {context.master} in this process")
            self._session = SparkSession(context).newSession()
        for key, value in SETTINGS.items():
            self._session.conf.set(key, value)
        logging.getLogger("SQLQueryContextLogger").disabled = True  # it writes what is raised as well
        self._context = context

    def answer(self, sql: str) -> Reply:
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        frame = self._frame(QUOTED.sub(_requote, sql))
        with warnings.catch_warnings(action="ignore"):
            if hasattr(frame, "toArrow"):
                table = frame.toArrow()
            else:  # Spark 3.5
                table = pyarrow.Table.from_batches(frame._collect_as_arrow(), to_arrow_schema(frame.schema))
        return {name: _array(column) for name, column in zip(frame.columns, table.columns, strict=True)}

    def columns(self, source: str) -> tuple[str, list[Column]]:
        frame = self._frame(f"SELECT * FROM {source}")
        columns = []
        for i, (name, type_) in enumerate(frame.dtypes):
            kind = KINDS.get(re.split(r"[ (<]", type_)[0], "other")
            sql = f"collate(c{i}, 'UTF8_BINARY')" if " collate " in type_ else f"c{i}"
            columns.append(Column(name, sql, kind, type_))
        # A name inside this session alone; so the user's words stay as Spark reads them.
        self._views += 1
        view = f"gate_{self._views}"
        frame.toDF(*(f"c{i}" for i in range(len(columns)))).createOrReplaceTempView(view)
        return view, columns

    def _frame(self, sql: str) -> Any:
        self._context.setJobGroup(JOBS, "gate", interruptOnCancel=True)
        return self._session.sql(sql)

    def interrupt(self) -> None:
        if self._context is not None:
            self._context.cancelJobGroup(JOBS)

    def close(self) -> None:
        if self._is_own:
            self._context.stop()

    def bytes_order(self, sql: str) -> str:
        return sql  # as it sorts all text, once it has no collation

    def one_form(self, sql: str) -> str:
        return sql  # it has no function for that

    def microseconds(self, sql: str) -> str:
        return f"unix_micros(CAST({sql} AS TIMESTAMP))"


def _requote(found: re.Match[str]) -> str:
    """Standard SQL's quotes as Spark reads them: a backslash is special, and names stand between backticks."""
    token, inside = found[0], found[0][1:-1]
    if token.startswith("'"):
        return "'" + inside.replace("''", "'").replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "`" + inside.replace('""', '"').replace("`", "``") + "`"


def _array(column: Any) -> np.ndarray:
    """A column as an array; a sum of decimals comes as a decimal."""
    import pyarrow as pa

    missing = np.asarray(column.is_null())
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64()).fill_null(0.0)
    elif pa.types.is_integer(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.int64()).fill_null(0)
    return plain(np.ma.masked_array(column.to_numpy(), missing))
