"""Engines: a real PostgreSQL and a real Spark cluster give what DuckDB gives here, and what NumPy says, to the bit."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from drawing import often

import gate
from gate.checks import parse_policy
from gate.errors import GateError
from gate.policy import Columns, Document
from gate.rows import driver
from gate.rows.driver import Driver
from gate.rows.engine import Duck, elsewhere, number, values
from gate.rows.formats import open_table
from gate.rows.labels import Kind
from gate.rows.reading import join_parts, source_of
from gate.rows.remote import connect, open_relation
from gate.rows.roles import read_part
from gate.rows.sample import Sample
from gate.rows.table import File, Table

SEED = int(os.environ.get("GATE_SEED", "28"))
ENGINES = ("duckdb", "postgresql", "spark")
TOP = 1.7976931348623157e308
PASSWORD = "ge heim/@é"
WRITTEN = "ge%20heim%2F%40%C3%A9"

# A server's sockets and a cluster's threads outlive the tests that use them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


# --- real engines -------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A PostgreSQL server on loopback, and a connection that may write."""

    port: int
    owner: Any

    def url(self, password: str = WRITTEN, database: str = "postgres", port: int = 0, query: str = "") -> str:
        return f"postgresql://owner:{password}@127.0.0.1:{port or self.port}/{database}{query}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """PostgreSQL in a folder of its own; its order of text is not that of bytes. It refuses to run as root."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install fpr-gate[postgres]")
    tools = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)
    if tools is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder, home, port = Path(tools).parent, tempfile.mkdtemp(prefix="gate-postgres-"), free_port()
    other: dict[str, Any] = {"user": "nobody", "extra_groups": []} if os.getuid() == 0 else {}
    if other:
        shutil.chown(home, "nobody")
    settings: dict[str, Any] = {**other, "cwd": home, "env": {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}}
    secret = Path(home, "password")
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    begin: list[Any] = [folder / "initdb", "-D", "data", "-U", "owner", "-A", "scram-sha-256", "--pwfile", secret, "-N"]
    collation = ["-E", "UTF8", "--locale-provider", "icu", "--icu-locale", "en-US"]
    subprocess.run([*begin, *collation], **settings, check=True, capture_output=True)
    options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "port": port}
    listed = [f"--{key}={value}" for key, value in options.items()]
    with Path(home, "log").open("wb") as log:
        process = subprocess.Popen([folder / "postgres", "-D", "data", *listed], **settings, stdout=log, stderr=log)
    try:
        here = Server(port, None)
        deadline = time.monotonic() + 60
        while here.owner is None:
            assert process.poll() is None, Path(home, "log").read_text()
            try:
                here.owner = psycopg.connect(here.url(), autocommit=True)
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, Path(home, "log").read_text()
                time.sleep(0.1)
        yield here
        here.owner.close()
    finally:
        process.send_signal(signal.SIGINT)  # PostgreSQL's fast end
        process.wait(60)
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Driver]:
    """Spark with two workers, each a process of its own."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install fpr-gate[spark]")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: apt-get install openjdk-17-jre-headless")
    engine = connect("spark:local-cluster[2,1,1024]", 1 << 30)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    engine = Duck()
    yield engine
    engine.close()


Opened = Callable[[pa.Table], tuple[Any, Table]]
TYPES = {"double": "double precision", "float": "real", "int64": "bigint", "string": "text"}


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Put rows where an engine finds them, and connect to it."""
    with contextlib.ExitStack() as stack:

        def put(rows: pa.Table) -> tuple[Any, Table]:
            if request.param == "postgresql":
                server = request.getfixturevalue("server")
                load(server, "drawn", rows)
                engine = stack.enter_context(contextlib.closing(connect(server.url())))
                return engine, open_relation(engine, "public.drawn", rows.column_names)
            path = tmp_path / "rows.parquet"
            pa.parquet.write_table(rows, path, row_group_size=100)
            if request.param == "duckdb":
                engine = request.getfixturevalue("duck")
                return engine, open_table(engine, File(str(path), str(path)), rows.column_names)
            engine = request.getfixturevalue("cluster")
            return engine, open_relation(engine, f"(SELECT * FROM parquet.`{path}`)", rows.column_names)

        yield put


def load(server: Server, table: str, rows: pa.Table) -> None:
    """Write rows into a new table, each value in its binary form."""
    types = ", ".join(f'"{field.name}" {TYPES[str(field.type)]}' for field in rows.schema)
    server.owner.execute(f"DROP TABLE IF EXISTS {table}")
    server.owner.execute(f"CREATE TABLE {table} ({types})")
    with server.owner.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(
            [{"double": "float8", "float": "float4", "int64": "int8"}.get(str(f.type), "text") for f in rows.schema]
        )
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            copy.write_row(row)


# --- drawn relations ----------------------------------------------------------------------------------------

AWKWARD = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, TOP, -TOP, np.nan, np.inf, -np.inf, 0.1, 1 / 3, 1e22]
WORDS = [
    "",
    " ",
    "a",
    "A",
    "b",
    "B",
    "_",
    "é",
    "e\u0301",
    "ß",
    "it's",
    '"q"',
    "\\",
    "\\'",
    "${x}",
    "%s",
    "a b",
    " a",
    "a ",
    "日本",
    "😀",
    "\n",
    "-1",
]


def draw(rng: np.random.Generator, n: int) -> pa.Table:
    """Scores with neighbours of one ulp, ties, denormals, infinities, NaN and NULL; names with odd characters."""
    smooth = rng.beta(0.5, 8, n)
    near = np.nextafter(rng.choice(smooth, n), rng.choice([-np.inf, np.inf], n))
    bits = rng.integers(-(2**63), 2**63 - 1, n).view(np.float64)
    kinds = np.stack([smooth, near, np.round(smooth, 2), rng.choice(AWKWARD, n), bits])
    scores = kinds[rng.choice(5, n, p=[0.3, 0.2, 0.2, 0.2, 0.1]), np.arange(n)]
    names = [None if rng.random() < 0.05 else str(rng.choice(WORDS)) + str(rng.choice(WORDS)) for _ in range(n)]
    whole = rng.integers(-(2**62), 2**62, n)
    return pa.table(
        {
            "nr": pa.array(rng.permutation(n)),
            "score": pa.array(scores, mask=rng.random(n) < 0.05),
            "narrow": pa.array(smooth.astype(np.float32), mask=rng.random(n) < 0.05),
            "name": pa.array(names, pa.string()),
            "whole": pa.array(whole, mask=rng.random(n) < 0.05),
        }
    )


class Asked:
    """Rows that an engine is asked about, and the same rows here."""

    def __init__(self, engine: Any, table: Table, rows: pa.Table) -> None:
        self.engine, self.here = engine, rows.to_pydict()
        listed = ", ".join(f"{column.sql} AS {column.name}" for column in table.columns)
        self.rows = f"(SELECT {listed} FROM {table.rows}) AS q"
        self.valid = f"score BETWEEN {number(engine, -TOP)} AND {number(engine, TOP)}"
        scores = np.array([np.nan if x is None else x for x in self.here["score"]])
        self.is_valid = np.isfinite(scores)
        self.scores = np.sort(scores[self.is_valid])

    def __call__(self, what: str, rest: str = "") -> str:
        """The answer to a question as text that tells all values from each other."""
        return told(self.engine.ask(f"SELECT {what} FROM {self.rows} {rest}"))

    def column(self, name: str) -> list[Any]:
        """The values of a column in the rows with a valid score."""
        return [value for value, valid in zip(self.here[name], self.is_valid, strict=True) if valid]


def told(columns: Any) -> str:
    return repr({name: np.ma.asarray(column).tolist() for name, column in columns.items()})


@pytest.fixture(params=range(often(1, 6)))
def asked(request: pytest.FixtureRequest, opened: Opened) -> Asked:
    rng = np.random.default_rng((SEED, request.param))
    rows = draw(rng, int(rng.integers(50, 600)))
    return Asked(*opened(rows), rows)


def test_rows_come_back_to_the_bit(asked: Asked) -> None:
    order = np.argsort(asked.here["nr"])
    wanted = {name: [column[i] for i in order] for name, column in asked.here.items()}
    narrow = f"CAST(narrow AS {asked.engine.double}) AS narrow"
    assert asked(f"nr, score, {narrow}, name, whole", "ORDER BY nr") == repr(wanted)


def test_facts_are_those_of_python(asked: Asked) -> None:
    names = [name for name in asked.column("name") if name is not None]
    found = asked(
        "count(*) AS n, min(score) + 0.0 AS low, max(score) + 0.0 AS high, count(name) AS named, "
        "count(DISTINCT name) AS names, CAST(sum(CAST(nr AS BIGINT) * 9000000000000) AS BIGINT) AS total",
        f"WHERE {asked.valid}",
    )
    low, high = float(asked.scores[0]) + 0.0, float(asked.scores[-1]) + 0.0
    total = sum(asked.column("nr")) * 9_000_000_000_000
    wanted = {"n": len(asked.scores), "low": low, "high": high, "named": len(names), "names": len(set(names))}
    assert found == told({name: [value] for name, value in {**wanted, "total": total}.items()})


def test_counts_at_every_score_and_its_neighbours_are_exact(asked: Asked) -> None:
    """As sums of CASE, and as a tree of CASE with GROUP BY: the counts of a plain `sum(score >= t)`."""
    rng = np.random.default_rng(SEED)
    each = np.unique(asked.scores)
    near = [each, np.nextafter(each, -TOP), np.nextafter(each, TOP)]
    cuts = np.unique(np.concatenate(near))
    cuts = np.sort(rng.choice(cuts[np.isfinite(cuts)], 40, replace=False))
    reaching = [int((asked.scores >= cut).sum()) for cut in cuts]
    sums = [f"sum(CASE WHEN score >= {number(asked.engine, c)} THEN 1 ELSE 0 END)" for c in cuts.tolist()]
    listed = ", ".join(f"CAST({sql} AS BIGINT) AS k{i}" for i, sql in enumerate(sums))
    assert asked(listed, f"WHERE {asked.valid}") == told({f"k{i}": [k] for i, k in enumerate(reaching)})

    def tree(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        at = number(asked.engine, cuts[middle].item())
        return f"CASE WHEN score >= {at} THEN {tree(middle + 1, high)} ELSE {tree(low, middle)} END"

    places, counts = np.unique(np.searchsorted(cuts, asked.scores, side="right"), return_counts=True)
    found = asked(f"{tree(0, len(cuts))} AS place, count(*) AS n", f"WHERE {asked.valid} GROUP BY 1 ORDER BY 1")
    assert found == told({"place": places, "n": counts})


def test_scores_at_ranks_are_those_of_a_sort(asked: Asked) -> None:
    """Of -0.0 and 0.0, which tie, nobody says which comes first."""
    placed = "SELECT score + 0.0 AS score, row_number() OVER (ORDER BY score) AS place"
    found = asked.engine.ask(f"SELECT score FROM ({placed} FROM {asked.rows} WHERE {asked.valid}) AS p ORDER BY place")
    assert told(found) == told({"score": asked.scores + 0.0})


def test_names_are_told_apart_and_sort_by_their_bytes(asked: Asked) -> None:
    names = [name for name in asked.here["name"] if name is not None]
    ordered = getattr(asked.engine, "bytes_order", str)("name")
    by_name = sorted(set(names), key=str.encode)
    found = asked(f"{ordered} AS name, count(*) AS n", "WHERE name IS NOT NULL GROUP BY 1 ORDER BY 1")
    assert found == told({"name": by_name, "n": [names.count(name) for name in by_name]})
    plain = asked("name", "WHERE name IS NOT NULL GROUP BY 1 ORDER BY 1")  # a column of text is in this order anyway
    assert plain == told({"name": by_name})
    hashes = sorted(hashlib.md5(name.encode()).hexdigest() for name in by_name)
    assert asked("md5(name) AS h", "WHERE name IS NOT NULL GROUP BY 1 ORDER BY 1 LIMIT 5") == told({"h": hashes[:5]})


def test_groups_come_as_a_table_of_how_many_are_alike(asked: Asked) -> None:
    half = float(np.median(asked.scores))
    parts: dict[str | None, list[bool]] = {}
    for name, score in zip(asked.column("name"), asked.column("score"), strict=True):
        parts.setdefault(name, []).append(score >= half)
    alike: dict[tuple[int, int], int] = {}
    for reached in parts.values():
        key = len(reached), sum(reached)
        alike[key] = alike.get(key, 0) + 1
    reaching = f"sum(CASE WHEN score >= {number(asked.engine, half)} THEN 1 ELSE 0 END)"
    inner = f"SELECT count(*) AS m, CAST({reaching} AS BIGINT) AS k FROM {asked.rows} WHERE {asked.valid} GROUP BY name"
    found = asked.engine.ask(f"SELECT m, k, count(*) AS c FROM ({inner}) AS g GROUP BY m, k ORDER BY m, k")
    wanted = [(*key, count) for key, count in sorted(alike.items())]
    assert told(found) == told(dict(zip("mkc", zip(*wanted, strict=True), strict=True)))


def test_small_tables_travel_inside_a_question(asked: Asked) -> None:
    names = [name for name in asked.here["name"] if name is not None]
    some = sorted(set(names))[:20]
    table = values({"t": some, "place": range(len(some))})
    found = asked("place, count(*) AS n", f"JOIN {table} ON name = t GROUP BY 1 ORDER BY 1")
    assert found == told({"place": range(len(some)), "n": [names.count(name) for name in some]})


# --- what only an engine elsewhere does ---------------------------------------------------------------------


def refusal(url: str) -> str:
    with pytest.raises(GateError) as error:
        connect(url)
    line = str(error.value)
    assert "\n" not in line
    for secret in ("owner", "wrong", "heim", WRITTEN, "somebody"):
        assert secret not in line
    return line


def test_a_refused_connection_is_one_line_without_credentials(server: Server) -> None:
    where = f"--connect: postgresql://127.0.0.1:{server.port}"
    wrong = f'{where}/postgres must let gate in, got: password authentication failed for user "***"; check'
    assert refusal(server.url("wrong")).startswith(wrong)
    hidden = f"postgresql://127.0.0.1:{server.port}/postgres?user=somebody&password=wrong"
    assert refusal(hidden).startswith(wrong)
    assert 'database "none" does not exist' in refusal(server.url(database="none"))
    assert "Connection refused" in refusal(server.url(port=free_port()))
    assert "SSL" in refusal(server.url(query="?sslmode=require"))


@pytest.mark.parametrize("scheme", ["postgresql", "spark"])
def test_an_address_where_nobody_answers_is_one_line(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    pytest.importorskip({"postgresql": "psycopg", "spark": "pyspark"}[scheme])
    address = f"{scheme}://127.0.0.1:{free_port()}"
    with pytest.raises(GateError, match=rf"^--connect: {address} must let gate in, got: .*Connection refused.*; check"):
        connect(address)
    if scheme == "postgresql":
        monkeypatch.setattr(driver.Driver, "start", 1)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
            begun = time.monotonic()
            with pytest.raises(GateError, match=rf"^--connect: {address} must let gate in, got: no answer within 1 s"):
                connect(address)
            assert time.monotonic() - begun < 5


def test_all_questions_see_one_snapshot_and_write_nothing(server: Server) -> None:
    load(server, "moving", pa.table({"score": [0.25, 0.5]}))
    with contextlib.closing(connect(server.url())) as engine:
        rows = open_relation(engine, "moving", ["score"]).rows
        server.owner.execute("INSERT INTO moving VALUES (0.75)")
        for statement in (
            "INSERT INTO moving VALUES (1) RETURNING 1",
            "CREATE TABLE other (x int)",
            "SELECT 1; SELECT 2",
        ):
            with pytest.raises(GateError, match="must answer what gate asks, got: "):
                engine.ask(statement)
        assert told(engine.ask(f"SELECT count(*) AS n FROM {rows}")) == told({"n": [2]})
    with contextlib.closing(connect(server.url())) as engine:
        assert told(engine.ask("SELECT count(*) AS n FROM moving")) == told({"n": [3]})


def test_every_type_of_postgresql_is_known(server: Server) -> None:
    server.owner.execute("DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('sad', 'Glad')")
    server.owner.execute(
        "CREATE COLLATION IF NOT EXISTS blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    cells = {
        "1::smallint": "integer", "1::bigint": "integer", "1.5::real": "float", "1.5::float8": "float",
        "1.5::numeric(9,4)": "decimal", "'x'::char(5)": "text", "'x'::varchar(9)": "text", "'sad'::mood": "text",
        "'x' COLLATE blind": "text", "'0dd0a4c8-5c5a-4f57-8f4a-0f4f3a7a8f00'::uuid": "text", "true": "boolean",
        "now()": "time", "'2026-11-01 12:00:00'::timestamp": "time", "'2026-11-01'::date": "date",
        "'{}'::jsonb": "other", "ARRAY[1]": "other", "'a'::bytea": "other",
    }  # fmt: skip
    with contextlib.closing(connect(server.url())) as engine:
        table = open_relation(engine, f"(SELECT {', '.join(cells)})", [])
        assert [column.kind for column in table.columns] == [*cells.values()]
        table = open_relation(engine, "(SELECT * FROM (VALUES ('a' COLLATE blind), ('A')) AS v(n))", ["n"])
        names = engine.ask(f"SELECT {table.columns[0].sql} AS n FROM {table.rows} GROUP BY 1 ORDER BY 1")
        assert told(names) == told({"n": ["A", "a"]})
        same_moment = ["'2026-11-01 12:00:00.25'::timestamp", "'2026-11-01 13:00:00.25+01'::timestamptz"]
        for moment in same_moment:
            found = engine.ask(f"SELECT {engine.microseconds(moment)} AS m")
            assert told(found) == told({"m": [1793534400250000]})
        assert (
            told(engine.ask("SELECT sum(x) AS s FROM (VALUES (9000000000000000000), (7)) AS v(x)"))
            == "{'s': [9000000000000000007]}"
        )


def test_every_type_of_spark_is_known(cluster: Driver) -> None:
    cells = {
        "1Y": "integer", "1L": "integer", "1.5F": "float", "1.5D": "float", "1.5BD": "decimal", "'x'": "text",
        "CAST('x' AS VARCHAR(9))": "text", "true": "boolean", "now()": "time", "TIMESTAMP_NTZ'2026-11-01'": "time",
        "DATE'2026-11-01'": "date", "array(1)": "other", "named_struct('a', 1)": "other", "X'00'": "other",
        "NULL": "null",
    }  # fmt: skip
    table = open_relation(cluster, f"(SELECT {', '.join(cells)})", [])
    assert [column.kind for column in table.columns] == [*cells.values()]
    for moment in ("TIMESTAMP_NTZ'2026-11-01 12:00:00.25'", "TIMESTAMP'2026-11-01 13:00:00.25+01:00'"):
        found = cluster.ask(f"SELECT {cluster.microseconds(moment)} AS m")
        assert told(found) == told({"m": [1793534400250000]})
    decimals = "(VALUES (CAST(9000000000000000000 AS DECIMAL(38, 0))), (7))"
    assert told(cluster.ask(f"SELECT sum(x) AS s FROM {decimals} AS v(x)")) == "{'s': [9000000000000000007]}"


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_source_that_is_not_there_is_one_line(request: pytest.FixtureRequest, engine: str) -> None:
    with contextlib.ExitStack() as stack:
        if engine == "spark":
            elsewhere = request.getfixturevalue("cluster")
        else:
            elsewhere = stack.enter_context(contextlib.closing(connect(request.getfixturevalue("server").url())))
        for source in ("none.such", "(SELECT nothing)", "(SELECT 1 +)"):
            with pytest.raises(GateError) as error:
                open_relation(elsewhere, source, ["score"])
            line = str(error.value)
            assert line.startswith(f"{source}: must be a table or query that {elsewhere.shown} can read, got: ")
            assert "\n" not in line
        with pytest.raises(GateError, match=r": must have columns 'score' and 'id', got 'a', 'b'; "):
            open_relation(elsewhere, "(SELECT 1 AS a, 2 AS b)", ["score", "id"])


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_ctrl_c_ends_a_question_within_a_second(request: pytest.FixtureRequest, engine: str) -> None:
    if engine == "spark":
        elsewhere, rows, busy = request.getfixturevalue("cluster"), "range(10000000)", None
    else:
        server = request.getfixturevalue("server")
        elsewhere, rows = connect(server.url()), "generate_series(1, 10000000)"
        busy = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 2)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            elsewhere.ask(f"SELECT count(*) AS n FROM {rows} AS a(x), {rows} AS b(y) WHERE x * y % 7 = 1")
        assert time.monotonic() - begun < 3
        assert told(elsewhere.ask("SELECT 1 AS a")) == "{'a': [1]}"
        if busy:
            assert server.owner.execute(busy).fetchone() == (0,)
    finally:
        signal.signal(signal.SIGALRM, previous)
        if busy:
            elsewhere.close()


# --- samples ------------------------------------------------------------------------------------------------


def draw_sample(rng: np.random.Generator, n: int) -> pa.Table:
    """Scores of events with labels, tenants and languages; whole groups are in one language."""
    group = rng.integers(0, max(n // int(rng.integers(1, 9)), 1), n)
    scores = np.where(rng.random(n) < 0.3, np.round(rng.beta(0.5, 8, n), 2), rng.beta(0.5, 8, n))
    near = rng.random(n) < 0.2
    scores[near] = np.nextafter(scores[near], rng.choice([0.0, 1.0], near.sum()))
    words = [word for word in WORDS if word.strip() and word == unicodedata.normalize("NFC", word)]
    language = rng.choice(len(words), 5, replace=False)
    labels = np.where(rng.random(n) < 0.2, "attack", rng.choice(["benign", "harmless"], n))
    labels[:8] = "benign"
    return pa.table(
        {
            "score": scores,
            "id": [f"{words[i % len(words)]} {i}" for i in range(n)],
            "tenant": pa.array(group) if rng.random() < 0.5 else [f"{words[g % len(words)]}/{g}" for g in group],
            "language": [words[language[g % 5]] for g in group],
            "label": labels.tolist(),
        }
    )


def facts(sample: Sample, other: Sample) -> dict[str, Any]:
    """All that checks ask of a sample."""
    ranks = np.unique(np.linspace(1, len(sample), 50).astype(np.int64))
    cuts = sample.ordered.at_rank(ranks)
    near = np.unique(np.concatenate([cuts, np.nextafter(cuts, 0), np.nextafter(cuts, 1)]))
    found: dict[str, Any] = {
        "n": (len(sample), sample.lowest, sample.highest, sample.repeated, sample.labels),
        "cuts": cuts.tolist(),
        "reached": sample.ordered.at_or_above(near).tolist(),
        "fingerprint": sample.fingerprint,
    }
    if sample.has_segments:
        found["segments"] = sample.segment_names, [part.tolist() for part in sample.by_segment(near[::5])]
    if sample.has_groups:
        found["groups"] = [part.tolist() for part in sample.by_group(near[::10])]
        found["largest"] = sample.largest_group, sample.group_count
        found["shared groups"] = sample.shared(other, "grp")
    if sample.has_groups and sample.has_segments:
        found["both"] = [part.tolist() for part in sample.by_group_in_segment(near[::10])]
    if sample.ids:
        found["ids"] = sample.ids.sketch, sample.rows_sha256, sample.shared(other, "id")
    return found


@pytest.mark.parametrize("memory", [1, 1 << 30], ids=["divided", "fetched"])
@pytest.mark.parametrize("drawn", range(often(1, 6)))
def test_a_sample_has_the_same_facts_on_every_engine(
    opened: Opened, duck: Duck, drawn: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve drawn policies: with labels or without, and ids, groups and segments; in memory and where the rows are."""
    rng = np.random.default_rng((SEED, drawn, 1))
    rows = draw_sample(rng, int(rng.integers(200, 2000)))
    names = [name for name in ("id", "tenant", "language", "label") if rng.random() < 0.7]
    policy = Columns(
        score="score",
        id="id" if "id" in names else None,
        group="tenant" if "tenant" in names else None,
        segment="language" if "language" in names else None,
        label="label" if "label" in names else None,
        benign_label=("benign", "harmless"),
    )
    path = tmp_path / "here.parquet"
    pa.parquet.write_table(rows, path)
    here = open_table(duck, File(str(path), str(path)), rows.column_names)
    found = []
    for engine, table in ((duck, here), opened(rows)):
        kinds: list[Kind] = ["benign", "malicious"] if "label" in names else ["benign", "benign"]
        one, other = (sample_of(engine, table, policy, kind) for kind in kinds)
        monkeypatch.setattr(engine, "memory", memory)
        found.append(facts(one, other))
    assert found[0] == found[1]


def sample_of(engine: Any, table: Table, columns: Columns, kind: Kind) -> Sample:
    part = read_part(engine, table, columns, (0.0, 1.0), kind, alone=True)
    return join_parts(engine, [part], columns, (source_of("rows", [part], kind),), kind, (0.0, 1.0))


# --- verdicts -----------------------------------------------------------------------------------------------

PARTS = ("fit", "holdout", "malicious")


def draw_policy(rng: np.random.Generator) -> str:
    """Targets, a range or none, labels, ids, groups, segments and detection, as a policy may have them."""
    columns = ["score: score", "label: label", "benign_label: [benign, harmless]"]
    columns += [f"{role}: {name}" for role, name in ROLES if rng.random() < 0.6]
    rates = ["10%", "1%"][: int(rng.integers(1, 3))]
    targets = [f"{{fpr: {rate}, min_n: {rng.integers(50, 500)}, max_relative_error: 0.5}}" for rate in rates]
    lines = ["version: 1", "name: drawn", f"rule: {rng.choice(['proven', 'observed', 'not-refuted'])}"]
    lines += [f"targets: [{', '.join(targets)}]", f"data: {{{', '.join(columns)}}}"]
    if rng.random() < 0.5:
        lines.append("ranges: [{from: 10%, to: 1%, min_n: 200, max_relative_error: 1}]")
    checks = ["detection: {targets: [{fpr: 10%, min_tpr: 10%}]}"]
    if "language" in " ".join(columns):
        checks.append("segments: {targets: [10%], min_n: 20, max_relative_error: 1}")
    return "\n".join([*lines, f"checks: {{{', '.join(checks)}}}", ""])


ROLES = (("id", "id"), ("group", "tenant"), ("segment", "language"))


@pytest.mark.parametrize("drawn", range(often(2, 12)))
def test_every_engine_gives_the_same_verdict(opened: Opened, drawn: int, tmp_path: Path) -> None:
    """Twelve drawn policies: findings, counts and calibrators are those of the same rows in files."""
    rng = np.random.default_rng((SEED, drawn, 2))
    text = draw_policy(rng)
    parts = {part: draw_sample(rng, int(rng.integers(800, 2_500))) for part in PARTS}
    for part, rows in parts.items():
        pa.parquet.write_table(rows, tmp_path / f"{part}.parquet")
    named = [rows.append_column("part", [[part] * len(rows)]) for part, rows in parts.items()]
    whole = pa.concat_tables([rows.set_column(2, "tenant", rows["tenant"].cast(pa.string())) for rows in named])
    engine, _ = opened(whole)
    place = "public.drawn" if engine.__class__.__name__ == "PostgreSQL" else f"parquet.`{tmp_path / 'rows.parquet'}`"
    here = {part: str(tmp_path / f"{part}.parquet") for part in PARTS}
    there = {part: f"(SELECT * FROM {place} WHERE part = '{part}')" for part in PARTS}
    policy = parse_policy(text, "drawn.yaml")
    found = [judged(policy, here)]
    token = elsewhere.set(None if isinstance(engine, Duck) else engine)
    try:
        found.append(judged(policy, here if isinstance(engine, Duck) else there))
    finally:
        elsewhere.reset(token)
    assert found[0] == found[1], text


def judged(policy: Document, sources: dict[str, str]) -> dict[str, Any]:
    """What a run decides; whether copies show also depends on the order of rows, which tables do not have."""
    release = gate.run(sources["fit"], sources["holdout"], malicious=sources["malicious"], release="v1", policy=policy)
    record = release.record
    return {
        "calibrator": release.calibrator.to_json(),
        "samples": [(facts.n, facts.sha256, facts.rows_sha256) for facts in (record.fit, record.holdout)],
        "findings": [
            (str(one.check), one.outcome, one.reason, one.rate and one.rate.tally)
            for one in record.findings
            if one.check.family not in ("duplicates", "overlap", "unread")
        ],
    }
