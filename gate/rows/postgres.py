"""PostgreSQL as an engine: how to connect, how a double is written, how rows come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gate.rows.driver import TIMEOUT, Driver, plain
from gate.rows.engine import Reply
from gate.rows.table import Column

BATCH = 1 << 16  # rows
FLOATS, INTEGERS, NUMERIC = (700, 701), (20, 21, 23), 1700  # PostgreSQL's numbers of its types
KINDS = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("timestamp", "timestamptz"), "time"),
    "numeric": "decimal",
    "bool": "boolean",
    "uuid": "text",
    "date": "date",
}


class PostgreSQL(Driver):
    """One transaction that only reads: all questions see the same rows."""

    double, word, extra = "DOUBLE PRECISION", "TEXT", "postgres"
    _connection: Any = None

    def connect(self, url: str) -> None:
        import psycopg

        settings: dict[str, Any] = {"client_encoding": "UTF8", "connect_timeout": TIMEOUT, "prepare_threshold": None}
        connection = psycopg.connect(url, **settings)
        connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
        connection.execute("SET LOCAL TimeZone = 'UTC'")
        connection.execute("SET LOCAL standard_conforming_strings = on")
        self._connection = connection

    def answer(self, sql: str) -> Reply:
        # A transaction inside the transaction: a question that fails does not end the snapshot.
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(sql, binary=True)
            names = [each.name for each in cursor.description]
            types = [each.type_code for each in cursor.description]
            parts = [[_array((), type_) for type_ in types]]
            while rows := cursor.fetchmany(BATCH):
                parts.append([_array(*each) for each in zip(zip(*rows, strict=True), types, strict=True)])
        stack: Any = np.ma.concatenate  # which NumPy gives no types
        columns = [plain(stack(column)) for column in zip(*parts, strict=True)]
        return dict(zip(names, columns, strict=True))

    def columns(self, source: str) -> tuple[str, list[Column]]:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            found = cursor.execute(f"SELECT * FROM {source} AS source LIMIT 0").description
            cursor.execute("SELECT oid, typname, typcategory FROM pg_catalog.pg_type")
            types = {oid: (name, "text" if group in "SE" else KINDS.get(name, "other")) for oid, name, group in cursor}
        columns = []
        for i, each in enumerate(found):
            type_, kind = types[each.type_code]
            columns.append(Column(each.name, self.bytes_order(f"c{i}") if kind == "text" else f"c{i}", kind, type_))
        return f"{source} AS source({', '.join(f'c{i}' for i in range(len(columns)))})", columns

    def interrupt(self) -> None:
        if self._connection is not None:
            self._connection.cancel_safe(timeout=1)

    def close(self) -> None:
        self._connection.close()

    def bytes_order(self, sql: str) -> str:
        return f'(CAST({sql} AS TEXT) COLLATE "C")'

    def one_form(self, sql: str) -> str:
        return f"normalize({sql}, NFC)"

    def microseconds(self, sql: str) -> str:
        return f"CAST(floor(extract(epoch FROM CAST({sql} AS TIMESTAMPTZ)) * 1000000) AS BIGINT)"


def _array(cells: Sequence[Any], type_: int) -> np.ma.MaskedArray:
    """Cells as an array; a sum of whole numbers comes as a decimal."""
    if type_ == NUMERIC and any(cell is not None and cell % 1 for cell in cells):
        raise ValueError("a decimal with a fraction")
    missing = [cell is None for cell in cells]
    if type_ in FLOATS:
        cells = [0.0 if cell is None else cell for cell in cells]
        return np.ma.masked_array(np.array(cells, dtype=np.float64), missing)
    if type_ in (*INTEGERS, NUMERIC):
        return np.ma.masked_array(np.array([int(cell or 0) for cell in cells], dtype=np.int64), missing)
    return np.ma.masked_array(np.array(cells, dtype=object), missing)
