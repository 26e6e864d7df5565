"""Engines elsewhere, without one: addresses, credentials, names of tables, quotes, the probe and its liars."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.rows import spark
from gate.rows.driver import Driver, shown
from gate.rows.engine import Duck, Reply, text
from gate.rows.engine import name as quoted
from gate.rows.remote import connect, open_relation, probe
from gate.rows.table import Column

NAMES = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="%"), min_size=4, max_size=12)
TEXTS = st.text(st.one_of(st.sampled_from("'\"\\`${}; \n%n0u"), st.characters(codec="utf-8")), max_size=20)


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    engine = Duck()
    yield engine
    engine.close()


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@db.example:5432/scores?sslmode=require", "postgresql://db.example:5432/scores"),
        ("postgres://db/scores", "postgres://db/scores"),
        ("postgresql://u@[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("postgresql://a,b:5433/x?password=geheim", "postgresql://a,b:5433/x"),
        ("spark://cluster:7077", "spark://cluster:7077"),
        ("spark:local[2]", "spark:local[2]"),
        ("spark:local-cluster[2,1,1024]", "spark:local-cluster[2,1,1024]"),
        ("spark:yarn", "spark:yarn"),
        ("postgresql://u:ge/heim@db/x", ""),
        ("postgresql://u:ge?heim@db/x", ""),
        ("postgresql://u:ge#heim@db/x", ""),
        ("postgresql://u:ge@heim@db/x", ""),
        ("postgresql://db/x?password=ge@heim", ""),
        ("host=db user=u password=geheim", ""),
        ("mysql://u:p@db/x", ""),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_credentials(url: str, expected: str) -> None:
    assert shown(url) == expected
    if not expected:
        with pytest.raises(GateError, match="--connect: must be an address like") as error:
            connect(url)
        assert "heim" not in str(error.value)
        assert "\n" not in str(error.value)


@given(user=NAMES, password=NAMES, escaped=st.booleans(), in_query=st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_no_drawn_password_is_shown(user: str, password: str, escaped: bool, in_query: bool) -> None:
    user, password = f"u{user}", f"p{password}"
    written = [quote(each, safe="") if escaped else each for each in (user, password)]
    url = f"postgresql://db.example/x?user={written[0]}&password={written[1]}"
    if not in_query:
        url = f"postgresql://{written[0]}:{written[1]}@db.example/x"
    assert shown(url) in (["postgresql://db.example/x"] if escaped else ["postgresql://db.example/x", ""])


class Still(Driver):
    """An engine that answers what a test lets it answer."""

    double, word, extra = "DOUBLE", "VARCHAR", "spark"

    def __init__(self, answer: Callable[[], Any] = dict, url: str = "postgresql://u:geheim@db/x") -> None:
        self.give, self.ended, self.sources = answer, threading.Event(), list[str]()
        super().__init__(url, 1)

    def connect(self, url: str) -> None:
        if "refused" in url:
            self.give()

    def answer(self, sql: str) -> Reply:
        return {"x": self.give()}

    def columns(self, source: str) -> tuple[str, list[Column]]:
        self.sources.append(source)
        return source, [Column(name, name, "float", "double") for name in ("a", "b", "b")]

    def interrupt(self) -> None:
        self.ended.set()


def fails(said: str) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(said)

    return fail


def test_what_a_driver_says_of_users_and_passwords_is_left_out() -> None:
    said = 'connection failed: FATAL:  role "anna m" with "ge heim" and "ge%20heim"\nmore'
    url = "postgresql://anna%20m:ge%20heim@db/refused"
    with pytest.raises(GateError) as error:
        Still(fails(said), url)
    assert str(error.value) == (
        '--connect: postgresql://db/refused must let gate in, got: role "***" with "***" and "***"; '
        "check the address, the user and the password"
    )
    with pytest.raises(GateError, match=r'must answer what gate asks, got: the server left "\*\*\*"; see that'):
        Still(fails('the server left "geheim"')).ask("SELECT 1")


def test_an_error_of_gate_is_not_taken_for_one_of_the_engine() -> None:
    with pytest.raises(KeyError):
        Still({}.popitem).ask("SELECT 1")


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("postgresql://u:geheim@db/x", "psycopg", "postgres"), ("spark:local", "pyspark", "spark")],
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        GateError, match=rf"must have its driver here, got: .*{package}.*; install fpr-gate\[{extra}\]$"
    ):
        connect(url)


def test_an_address_that_does_not_answer_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Still, "start", 0.1)
    late = threading.Event()
    with pytest.raises(GateError, match=r"must let gate in, got: no answer within 0\.1 s; check the address"):
        Still(late.wait, "postgresql://db/refused")
    late.set()


def test_ctrl_c_ends_a_question_at_once() -> None:
    late = threading.Event()
    engine = Still(late.wait)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.ask("SELECT 1")
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - begun < 1
    assert engine.ended.is_set()
    late.set()


# --- sources ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "scores",
        "public.scores",
        'a."b c".d',
        "cat.schema.t",
        "parquet.`/data/x`",
        "größe",
        "(SELECT 1)",
        "( select\n1)",
        "(WITH x AS (SELECT 1) SELECT * FROM x)",
    ],
)
def test_a_source_is_a_table_or_a_query(source: str) -> None:
    engine = Still()
    table = open_relation(engine, source, ["a"])
    assert (table.file.name, table.rows, table.numbered, engine.sources) == (source, source, False, [source])
    assert [column.name for column in table.columns] == ["a", "b", "b"]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x y",
        "x; DROP TABLE y",
        "x--",
        "SELECT 1",
        "(DELETE FROM x)",
        "(SELECT 1; SELECT 2)",
        "(SELECTED)",
        "x.csv/y",
        "a.b.c.d.e",
        '"x',
        "(INSERT INTO x SELECT 1)",
        "x\n",
    ],
)
def test_other_sources_are_refused_before_anything_is_asked(source: str) -> None:
    engine = Still()
    with pytest.raises(GateError, match="must be the name of a table or one SELECT in brackets"):
        open_relation(engine, source, ["a"])
    assert engine.sources == []


def test_missing_and_repeated_columns_are_one_line() -> None:
    with pytest.raises(GateError, match=r"^t: must have columns 'c' and 'd', got 'a', 'b', 'b'; ") as error:
        open_relation(Still(), "t", ["a", "c", "d"])
    assert "\n" not in str(error.value)
    with pytest.raises(GateError, match="must have one column 'b', got 2 of that name"):
        open_relation(Still(), "t", ["b"])


@given(value=TEXTS, named=TEXTS.filter(bool))
@settings(max_examples=examples(300), deadline=None)
def test_quotes_of_spark_hold_every_text(value: str, named: str) -> None:
    """A reader of Spark's own rules finds two tokens, with the texts that were meant."""
    written = spark.QUOTED.sub(spark._requote, f"{text(value)} AS {quoted(named)}")
    found = re.fullmatch(r"'((?:[^'\\]|\\.)*)' AS `((?:[^`]|``)+)`", written, re.DOTALL)
    assert found
    assert re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL) == value
    assert found[2].replace("``", "`") == named


# --- the probe ----------------------------------------------------------------------------------------------


def test_duckdb_answers_exactly(duck: Duck) -> None:
    probe(duck, "duckdb")


class Liar:
    """DuckDB, but for one column of its answers."""

    double, word, memory = Duck.double, Duck.word, 1

    def __init__(self, duck: Duck, column: str, lie: Callable[[Any], Any]) -> None:
        self.duck, self.column, self.lie = duck, column, lie

    def ask(self, sql: str) -> Reply:
        answer = self.duck.ask(sql)
        return {name: self.lie(array) if name == self.column else array for name, array in answer.items()}

    one_form = microseconds = Duck.one_form


def changed(array: Any, at: Callable[[Any], Any], to: Any) -> Any:
    copy = array.copy()
    copy[at(array)] = to
    return copy


LIES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "denormals": ("x", lambda x: changed(x, lambda x: np.abs(x) < 1e-307, 0.0), "doubles"),
    "-0.0": ("x", lambda x: x + 0.0, "doubles"),
    "fifteen digits": ("x", lambda x: np.ma.array([float(f"{v:.15g}") for v in x.data], mask=x.mask), "doubles"),
    "single precision": ("x", lambda x: changed(x, lambda x: x == 0.1, float(np.float32(0.1))), "doubles"),
    "NaN is NULL": ("x", lambda x: np.ma.array(x.data, mask=x.mask | np.isnan(x.data)), "doubles"),
    "NULL is NaN": ("x", lambda x: x.filled(np.nan), "doubles"),
    "infinity is the largest": ("x", lambda x: np.ma.array(np.clip(x.data, -1.7e308, 1.7e308), mask=x.mask), "doubles"),
    "NaN is valid": ("valid", lambda v: changed(v, lambda v: -4, 1), "doubles"),
    "a cell further": ("place", lambda p: changed(p, lambda p: 7, p[7] + 1), "products of doubles"),
    "sums in doubles": ("total", lambda t: changed(t, lambda t: t == 2**53 + 1, 2**53), "sums"),
    "floats for sums": ("total", lambda t: t.astype("f8"), "sums"),
    "another order": ("part", lambda p: p[::-1], "sums"),
    "upper case": ("h", lambda h: np.array([v.upper() for v in h], dtype=object), "texts"),
    "ASCII": ("t", lambda t: np.array([v.encode("ascii", "replace").decode() for v in t], dtype=object), "texts"),
    "no empty text": ("t", lambda t: np.array([v or None for v in t], dtype=object), "texts"),
    "other places": ("n", lambda n: n - 1 if len(n) > 4 else n, "texts"),
    "rows left out": ("t", lambda t: t[:-1], "texts"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_engine_that_is_not_exact_is_refused(duck: Duck, lie: str) -> None:
    column, change, what = LIES[lie]
    with pytest.raises(GateError, match=rf"^--connect: here must give {what} exactly, got .*; connect another engine$"):
        probe(Liar(duck, column, change), "here")  # type: ignore[arg-type]
