"""The labels: which rows are benign and which malicious, by the distinct labels; each is shown with what it meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gate.errors import GateError
from gate.policy import Columns
from gate.scores.columns import decode
from gate.scores.formats import File
from gate.scores.wording import NUMBER, is_number, name_rows, one_line, show, type_of
from gate.sources import MAX_LABELS, LabelCount, Labels
from gate.words import plural

Kind = Literal["benign", "malicious"]

PIECE = 1 << 16
EXACT = 2.0**53  # from here on, floats skip whole numbers
MISSING = {
    "",
    "na",
    "n/a",
    "#n/a",
    "#na",
    "<na>",
    "nan",
    "-nan",
    "null",
    "none",
    "nil",
    "nat",
    r"\n",
    "?",
    "-",
    "missing",
}
EMPTY = pa.table(
    {"label": pa.array([], pa.string()), "benign": pa.array([], pa.int8()), "rows": pa.array([], pa.int64())}
)
TRUTHS = {"false": "0", "no": "0", "true": "1", "yes": "1"}
LABELS = {"label", "labels", "y", "y_true", "target", "targets", "class", "classes", "ground_truth", "truth", "gt"}
LABELS |= {f"{prefix}{word}" for prefix in ("", "is_") for word in ("malicious", "benign", "attack", "bad", "positive")}
LABELS |= {f"{prefix}{word}" for prefix in ("", "is_") for word in ("malware", "phishing", "spam", "fraud", "anomaly")}
HIDDEN = ("Cf", "Cc")  # categories of characters that a reader does not see; text of one length is padded with NUL
TRUE_OR_FALSE = {"0": False, "false": False, "1": True, "true": True}


def describe_labels(labels: Labels) -> str:
    """Describe every label that is kept: its rows, and what they were taken for."""
    shown = ", ".join(f"{show(each.label)} {each.rows:,} {each.taken_for}" for each in labels.first)
    more = labels.distinct - len(labels.first)
    return f"{plural(labels.distinct, 'label')} ({shown}{f' and {more:,} more' if more else ''})"


def find_labels(names: Iterable[str]) -> frozenset[str]:
    """Find the columns that are named like labels."""
    return frozenset(name for name in names if re.sub(r"[\W_]+", "_", name.strip()).casefold() in LABELS)


def take_rows(
    kind: Kind, labels: Any, columns: Columns, file: File, alone: bool, weights: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.bool_], pa.Table]:
    """Find which rows are benign, or not, and all distinct labels; the policy's text is compared in the column's type.

    A file that stands `alone` must have rows of the kind; one of several may hold only other rows. `weights`
    are the rows that each row stands for, one where there are none.
    """
    if len(labels) == 0:
        return np.zeros(0, dtype=bool), EMPTY
    labels = _plain(labels, columns, file)
    counts = pc.value_counts(labels)
    values, rows = counts.field("values"), counts.field("counts")
    if weights is not None:
        places = pc.index_in(labels, value_set=values).to_numpy()
        rows = pa.array(np.bincount(places, weights, len(values)).astype(np.int64))
    benign = pa.array(_judge(labels, values, columns, file), pa.bool_())
    if _is_untyped(file, columns):
        _refuse_two_ways(labels, values.filter(benign), columns, file)
    marked = np.asarray(pc.is_in(labels, value_set=values.filter(benign)).to_numpy(), dtype=bool)
    taken = marked if kind == "benign" else ~marked
    if alone and not taken.any():
        shown = ", ".join(map(show, values.slice(0, 5).to_pylist())) + (", ..." if len(values) > 5 else "")
        marks = " or ".join(map(repr, columns.benign_label))
        must = f"{kind} rows with {'' if kind == 'benign' else 'something else than '}{marks}"
        raise GateError(
            f"{file}: column {columns.label!r} must mark {must}, "
            f"got {shown} in {plural(len(labels), 'row')}; set data.benign_label"
        )
    table = pa.table({"label": values.cast(pa.string()), "benign": benign.cast(pa.int8()), "rows": rows})
    return taken, table if weights is None else table.filter(pc.greater(table["rows"], 0))


def count_labels(tables: Iterable[pa.Table]) -> Labels:
    """Add up the labels of all files."""
    together = pa.concat_tables(tables).group_by(["label", "benign"]).aggregate([("rows", "sum")])
    order = [("benign", "descending"), ("rows_sum", "descending"), ("label", "ascending")]
    first = together.sort_by(order).slice(0, MAX_LABELS).to_pylist()
    return Labels(
        distinct=len(together),
        first=tuple(
            LabelCount(
                label=one_line(each["label"], 80),
                rows=each["rows_sum"],
                taken_for="benign" if each["benign"] else "malicious",
            )
            for each in first
        ),
    )


def _plain(labels: Any, columns: Columns, file: File) -> Any:
    """Return the labels as words, numbers or booleans, one for every row."""
    wrong = f"{file}: column {columns.label!r} must hold words, numbers or booleans, got {type_of(labels)}"
    try:
        labels = decode(labels)
        missing = labels.is_null(nan_is_null=True).to_numpy()
        kind = labels.type
        if pa.types.is_floating(kind):
            labels = labels.cast(pa.float64())
        elif not (
            pa.types.is_integer(kind) or pa.types.is_decimal(kind) or kind in (pa.string(), pa.bool_(), pa.null())
        ):
            raise pa.ArrowTypeError
    except pa.ArrowException:
        raise GateError(f"{wrong} in {plural(len(labels), 'row')}; write them as UTF-8 text or numbers") from None
    if pa.types.is_string(labels.type):
        missing = missing | pc.equal(labels, "").fill_null(False).to_numpy()
    if missing.any():
        raise GateError(
            f"{file}: column {columns.label!r} must label every row, got none in {name_rows(missing, None)}; "
            "label or remove these rows"
        )
    return labels


def _judge(labels: Any, values: Any, columns: Columns, file: File) -> list[bool]:
    """Decide which of the distinct labels are benign; a label that leaves doubt is refused."""
    wanted = [_WantedLabel.of(text) for text in columns.benign_label]
    meaning = _find_meaning(values) if _is_untyped(file, columns) else lambda value: value
    benign = []
    for start in range(0, len(values), PIECE):
        for value in values.slice(start, PIECE).to_pylist():
            benign.append(any(each.equals(meaning(value)) for each in wanted))
            if not benign[-1]:
                _refuse_doubtful(value, wanted, labels, columns, file)
    return benign


def _is_untyped(file: File, columns: Columns) -> bool:
    return file.is_text and columns.label not in file.keys


_LONG_EXPONENT = re.compile(r"(?<=[eE])([-+]?)0*[1-9][0-9]{17,}\s*$")


def _exactly(text: str) -> Decimal:
    """Read a number to its last digit; an exponent too long for Decimal counts as the largest one of 17 digits."""
    return Decimal(_LONG_EXPONENT.sub(rf"\g<1>{'9' * 17}", text).strip())


def _find_meaning(texts: Any) -> Callable[[str], object]:
    """Find the type of labels, which a text file does not have: all numbers, or all true or false, stand for values."""
    if pc.all(pc.match_substring_regex(texts, NUMBER)).as_py():
        return _exactly
    if pc.all(pc.is_in(pc.utf8_lower(texts), value_set=pa.array(["true", "false"]))).as_py():
        return lambda text: text.lower() == "true"
    return lambda text: text


def _refuse_two_ways(labels: Any, benign: Any, columns: Columns, file: File) -> None:
    """Refuse a benign label written both as `0` and as `0.0`: people meant two things, or two programs wrote it."""
    seen: dict[Hashable, str] = {}
    for text in benign.to_pylist():
        other = seen.setdefault(_sense(text), text)
        unlisted = [each for each in (text, other) if each not in columns.benign_label]
        if text != other and unlisted:
            _refuse_spelling(unlisted[0], other if unlisted[0] == text else text, labels, columns, file)


@dataclass(frozen=True)
class _WantedLabel:
    """A benign label of the policy, as each type of column would hold it."""

    text: str
    number: Decimal | None
    truth: bool | None
    sense: Hashable

    @classmethod
    def of(cls, text: str) -> _WantedLabel:
        number = _exactly(text) if is_number(text) else None
        return cls(text, number, TRUE_OR_FALSE.get(text.lower()), _sense(text))

    def equals(self, value: object) -> bool:
        if isinstance(value, str):
            return value == self.text
        if isinstance(value, bool) or self.number is None:
            return value is self.truth
        # People write a fraction with fewer digits than its float has; whole numbers are compared exactly.
        return value == self.number or (isinstance(value, float) and value == float(self.number) and value % 1 != 0)


def _sense(text: str) -> Hashable:
    """Find what a label means, whatever its case, blanks and format: `0`, `0.0`, `+0`, ` 0` and `false` are one."""
    visible = (char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in HIDDEN)
    plain = "".join("".join(visible).split()).casefold()
    try:
        number = _exactly(TRUTHS.get(plain, plain).replace(",", "."))
    except ArithmeticError:
        return plain
    return number if number.is_finite() else plain


def _refuse_doubtful(value: object, wanted: list[_WantedLabel], labels: Any, columns: Columns, file: File) -> None:
    """Refuse a label that may mean benign: if it were taken for malicious, it would hide a benign row."""
    text = str(value)
    sense = Decimal(value) if isinstance(value, int | float) else _sense(text)
    alike = next((each.text for each in wanted if each.sense == sense), None)
    exact = not (isinstance(value, float) and abs(value) >= EXACT)
    missing = isinstance(value, str) and sense in MISSING
    if alike is None and exact and not missing:
        return
    where, rows = f"{file}: column {columns.label!r}", _name_rows(value, labels)
    if not exact:
        raise GateError(
            f"{where} must hold labels that can be told apart, got {show(value)} as a float in {rows}; "
            "write whole numbers from 2^53 on as integers or text"
        )
    if alike is None:
        raise GateError(
            f"{where} must label every row, got {show(value)} in {rows}; label or remove these rows, or list it in "
            "data.benign_label"
        )
    _refuse_spelling(value, alike, labels, columns, file)


def _refuse_spelling(value: object, alike: str, labels: Any, columns: Columns, file: File) -> NoReturn:
    raise GateError(
        f"{file}: column {columns.label!r} must write a label in one way, got {show(value)} in "
        f"{_name_rows(value, labels)}, which differs from the benign {alike!r} only in case, blanks or number format; "
        "write them alike, or list both in data.benign_label"
    )


def _name_rows(value: object, labels: Any) -> str:
    return name_rows(pc.equal(labels, pa.scalar(value, labels.type)).to_numpy(), None)
