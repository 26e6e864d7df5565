"""Engines that the user has: PostgreSQL and Spark answer the same questions about tables of their own.

They are only asked: nothing is created or changed there. One that does not answer exactly is refused at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gate.errors import GateError
from gate.rows.driver import Driver, shown
from gate.rows.engine import Engine, elsewhere, number, text
from gate.rows.postgres import PostgreSQL
from gate.rows.spark import Spark
from gate.rows.table import File, Table, require

PART = r"""(?:[^\W\d][\w$]*|"(?:[^"]|"")+"|`(?:[^`]|``)+`)"""
TABLE = re.compile(rf"{PART}(?:\.{PART}){{0,3}}")
QUERY = re.compile(r"\(\s*(?:SELECT|WITH)\b[^;]*\)", re.IGNORECASE)
TOP = 1.7976931348623157e308
AWKWARD = (
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    2.225073858507201e-308,
    TOP,
    -TOP,
    0.1,
    1 / 3,
    1e22,
    1e23,
)
TEXTS = (
    "",
    " ",
    "Zürich",
    "it's",
    "\\",
    "\\'",
    "\\n",
    "${x}",
    "%s",
    " x ",
    "two\nlines",
    "'; --",
    '"q"',
    "`",
    "\U0001f600",
    "日本",
)


def connect(url: str, memory: int | None = None) -> Driver:
    """The engine at an address, if it answers exactly."""
    if not shown(url):
        raise GateError(
            "--connect: must be an address like postgresql://USER@HOST/DATABASE, spark://HOST:PORT or spark:local[2], "
            "got something else; in a user, a password or an option write %40 for @, %2F for /, %3F for ? and %23 for #"
        )
    engine = (PostgreSQL if url.startswith("postgres") else Spark)(url, memory)
    try:
        probe(engine, engine.shown)
    except BaseException:
        engine.close()
        raise
    return engine


@contextlib.contextmanager
def connected(url: str, memory: int | None = None) -> Iterator[Engine]:
    """Let an engine of the user's answer all that is asked about rows in this block."""
    engine = connect(url, memory)
    token = elsewhere.set(engine)
    try:
        yield engine
    finally:
        elsewhere.reset(token)
        engine.close()


def open_relation(engine: Engine, source: str, wanted: Sequence[str]) -> Table:
    """The rows of a table, or of a query in brackets; all wanted columns are there once."""
    if not TABLE.fullmatch(source) and not QUERY.fullmatch(source):
        must = f"{source}: must be the name of a table or one SELECT in brackets, got something else"
        raise GateError(f"{must}; write SCHEMA.TABLE, or '(SELECT ...)' without a semicolon")
    assert isinstance(engine, Driver)
    file = File(source, "")
    rows, columns = engine.columns_of(source)
    require(wanted, [column.name for column in columns], file)
    return Table(file, rows, tuple(columns), numbered=False)


def probe(engine: Engine, shown: str) -> None:
    """Refuse an engine that gives doubles, sums, cells, texts or places otherwise than NumPy and Python."""
    for what, sql, wanted in _questions(engine):
        answer = engine.ask(sql)
        found = {name: np.ma.asarray(answer[name]).tolist() for name in wanted}
        if repr(found) == repr(wanted):  # which tells all doubles from each other, 0.0 from -0.0, and 1 from 1.0
            continue
        cells = [pair for name in wanted for pair in zip(found[name], wanted[name], strict=False)]
        got = next((f"{one!r} for {other!r}" for one, other in cells if repr(one) != repr(other)), "other rows")
        raise GateError(f"--connect: {shown} must give {what} exactly, got {got}; connect another engine")


def _questions(engine: Engine) -> Iterator[tuple[str, str, dict[str, list[Any]]]]:
    rng = np.random.default_rng(28)
    ones = [0.1, 0.5, 1.0, 1e-300, 1e300]
    near = [np.nextafter(value, toward) for value in ones for toward in (-np.inf, np.inf)]
    bits = rng.integers(-(2**63), 2**63 - 1, 100).view(np.float64)
    doubles = [float(x) for x in (*AWKWARD, *near, *bits, np.nan, np.inf, -np.inf)]
    rows = [f"({i}, {number(engine, x)})" for i, x in enumerate(doubles)]
    rows.append(f"({len(doubles)}, CAST(NULL AS {engine.double}))")
    valid = f"CASE WHEN x BETWEEN {number(engine, -TOP)} AND {number(engine, TOP)} THEN 1 ELSE 0 END"
    yield (
        "doubles",
        f"SELECT x, {valid} AS valid FROM (VALUES {', '.join(rows)}) AS w(i, x) ORDER BY i",
        {"x": [*doubles, None], "valid": [*(int(np.isfinite(x)) for x in doubles), 0]},
    )
    drawn, scale, shift = rng.random(100), 0.99 / 0.7, -0.15 * 0.99 / 0.7
    rows = [f"({i}, {number(engine, x)})" for i, x in enumerate(drawn.tolist())]
    place = f"floor((x * {number(engine, scale)} + {number(engine, shift)}) * 65536)"
    yield (
        "products of doubles",
        f"SELECT CAST({place} AS BIGINT) AS place FROM (VALUES {', '.join(rows)}) AS w(i, x) ORDER BY i",
        {"place": np.floor((drawn * scale + shift) * 65536).astype(np.int64).tolist()},
    )
    whole = [2**62, 2**62 - 1, -(2**62), -(2**62), 9_007_199_254_740_993, 3]
    part = "CASE WHEN n < 0 THEN 0 WHEN n < 1000000000000000000 THEN CASE WHEN n < 10 THEN 1 ELSE 2 END ELSE 3 END"
    listed = ", ".join(f"({n})" for n in whole)
    counted = f"{part} AS part, CAST(sum(n) AS BIGINT) AS total, count(*) AS n"
    yield (
        "sums",
        f"SELECT {counted} FROM (VALUES {listed}) AS w(n) GROUP BY 1 ORDER BY 1",
        {"part": [0, 1, 2, 3], "total": [-(2**63), 3, 2**53 + 1, 2**63 - 1], "n": [2, 1, 1, 2]},
    )
    rows = [f"({i}, {text(t)})" for i, t in enumerate(TEXTS)]
    read = "t, md5(t) AS h, row_number() OVER (ORDER BY i DESC) AS n"
    yield (
        "texts",
        f"SELECT {read} FROM (VALUES {', '.join(rows)}) AS w(i, t) ORDER BY i",
        {
            "t": [*TEXTS],
            "h": [hashlib.md5(t.encode(), usedforsecurity=False).hexdigest() for t in TEXTS],
            "n": list(range(len(TEXTS), 0, -1)),
        },
    )
