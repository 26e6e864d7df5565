"""JSON lines: one object a line, or a list of {label, score}; the wanted columns are taken out of each line once."""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gate.errors import GateError
from gate.rows.engine import text
from gate.rows.table import Column, File, Table, keep, plain_list, require
from gate.rows.wording import one_line, show

if TYPE_CHECKING:
    from gate.rows.engine import Duck


def read_json_lines(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    """Each line is an object, or a list of {label, score}. Wanted columns are taken out of it once."""
    place = text(glob.escape(path))
    options = "format='newline_delimited', records='false', auto_detect=false, columns={line: 'JSON'}"
    lines = f"read_json({place}, {options})"
    try:
        kinds = {*engine.ask(f"SELECT DISTINCT coalesce(json_type(line), 'NULL') AS kind FROM {lines}")["kind"]}
        has_lists = "ARRAY" in kinds
        if kinds - {"OBJECT", "ARRAY"} or (has_lists and _truths(engine, [_OTHER_LIST], lines)[0]):
            _find_line(file, path)
            raise ValueError("a line that is no object")
        keys = ["json_keys(line)", *(["json_extract_string(line, '$[*].label')"] if has_lists else [])]
        asked = [engine.ask(f"SELECT DISTINCT unnest({each}) AS key FROM {lines}")["key"] for each in keys]
        present = {key for found in asked for key in plain_list(found)} - {None}
        listed_ = _in_order(path, present)
        holders = sorted({_holder(name, present) for name in (*wanted, *listed_)} - {"line"})
        are_lists = _truths(engine, [_is("ARRAY", holder) for holder in holders], lines)
        lists = {holder for holder, is_list in zip(("line", *holders), (has_lists, *are_lists), strict=True) if is_list}
        values = {name: _value(name, present, lists) for name in (*wanted, *listed_)}
        taken = "".join(f", {values[name].sql} AS c{i}" for i, name in enumerate(wanted))
        rows, count = keep(engine, "json", f"SELECT line{taken} FROM {lines}")
        asked_of = [getattr(values[name], each) for name in wanted for each in ("repeated", "exists")]
        truths = _truths(engine, asked_of, rows)
    except Exception:
        _find_line(file, path)
        raise
    if any(truths[::2]):
        _find_line(file, path)
        raise GateError(f"{file}: must have one value for each name in a line, got two; rename or remove one")
    have = [name for name, exists in zip(wanted, truths[1::2], strict=True) if exists]
    missing = [name for name in wanted if name not in have]
    require(wanted, [name for name in dict.fromkeys([*listed_, *have]) if name not in missing], file)
    columns = [Column(name, f"c{i}", "json", "JSON") for i, name in enumerate(wanted)]
    columns += [Column(name, values[name].sql, "json", "JSON") for name in listed_ if name not in wanted]
    return Table(file, rows, tuple(columns), count=count)


def _truths(engine: Duck, asked: Sequence[str], rows: str) -> list[bool]:
    if not asked:
        return []
    named = ", ".join(f"coalesce(bool_or({each}), FALSE) AS t{i}" for i, each in enumerate(asked))
    return [bool(column[0]) for column in engine.ask(f"SELECT {named} FROM {rows}").values()]


_SCORED = (
    "lambda x: coalesce(json_type(x) = 'OBJECT' AND json_exists(x, '$.label') AND json_exists(x, '$.score'), FALSE)"
)
_OTHER_LIST = (
    "CASE json_type(line) WHEN 'ARRAY' "
    f"THEN len(list_filter(CAST(line AS JSON[]), {_SCORED})) <> json_array_length(line) END"
)


def _is(kind: str, value: str = "line") -> str:
    return f"json_type({value}) = '{kind}'"


@dataclass(frozen=True)
class _Value:
    """The SQL of one value of a line: what it is, whether it is there, and whether it is there twice."""

    sql: str
    exists: str
    repeated: str


def _path(name: str, present: set[str]) -> list[str]:
    """`a.b` is the key of that name where any line has it, or else `b` in what `a` is."""
    return [name] if name in present else name.split(".")


def _holder(name: str, present: set[str]) -> str:
    """The SQL of the object or list that a value is in."""
    path = _path(name, present)[:-1]
    return f"json_extract(line, {_pointer(path)})" if path else "line"


def _value(name: str, present: set[str], lists: set[str]) -> _Value:
    """The value of a key, or in a list of {label, score} the score of the entry with that label."""
    path, holder = _path(name, present), _holder(name, present)
    key = f"json_extract(line, {_pointer(path)})"
    written = text(json.dumps(path[-1], ensure_ascii=False) + ":")
    seen_twice = f"contains(substr(line, strpos(line, {written}) + 1), {written})"  # perhaps in another object
    repeated = f"CASE WHEN {seen_twice} AND {_is('OBJECT', holder)} THEN {_repeats(holder)} ELSE FALSE END"
    if holder not in lists:
        return _Value(f"nullif({key}, 'null')", f"{key} IS NOT NULL", repeated)
    is_list = _is("ARRAY", holder)
    entries = f"list_filter(CAST({holder} AS JSON[]), lambda x: (x ->> '$.label') = {text(path[-1])})"
    return _Value(
        f"nullif(CASE WHEN {is_list} THEN json_extract(list_extract({entries}, 1), '$.score') ELSE {key} END, 'null')",
        f"CASE WHEN {is_list} THEN len({entries}) > 0 ELSE {key} IS NOT NULL END",
        f"CASE WHEN {is_list} THEN len({entries}) > 1 ELSE {repeated} END",
    )


def _repeats(holder: str) -> str:
    return f"len(json_keys({holder})) <> list_unique(json_keys({holder}))"


def _pointer(path: Sequence[str]) -> str:
    return text("".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path))


def _in_order(path: str, present: set[str]) -> list[str]:
    """The names of all columns: those of the first line first, and the fields inside its values."""
    with open(path, encoding="utf-8") as opened:
        line = next((line for line in opened if line.strip()), "null")
    with contextlib.suppress(ValueError, RecursionError):
        first = list(_fields(json.loads(line), ""))
        return list(dict.fromkeys([*first, *sorted(present)]))
    return sorted(present)


def _fields(value: Any, before: str) -> Iterator[str]:
    """The names of the fields in a value, and of those inside them."""
    if isinstance(value, list):
        value = {each["label"]: None for each in value if isinstance(each, dict) and isinstance(each.get("label"), str)}
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield before + key
        yield from _fields(inner, f"{before}{key}.")


def _find_line(file: File, path: str) -> None:
    """Name the line that is no object; slow, and only used on a file that is refused anyway."""
    with open(path, "rb") as opened:
        for number, line in enumerate(opened, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode(), object_pairs_hook=_once)
            except UnicodeDecodeError:
                got = "bytes that are no UTF-8"
            except RecursionError:
                got = "lists inside lists without end"
            except ValueError as error:
                got = "a byte-order mark" if line.startswith(b"\xef\xbb\xbf") else str(error).split(":")[0]
            else:
                is_list = isinstance(value, list) and all(
                    isinstance(each, dict) and {"label", "score"} <= {*each} for each in value
                )
                if isinstance(value, dict) or is_list:
                    continue
                got = one_line(line.decode().strip(), 40)
            raise GateError(
                f"{file}: must have one JSON object to a line, got {got} in line {number:,}; "
                "write each row as one line of UTF-8 text"
            )


def _once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key = next(key for i, (key, _) in enumerate(pairs) if key in [before for before, _ in pairs[:i]])
        raise ValueError(f"{show(key)} twice")
    return found
