"""The labels: which of a file's distinct labels are benign. A label that leaves doubt is refused, never guessed."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from gate.errors import GateError
from gate.rows.wording import is_number, name_rows, one_line, show
from gate.sources import MAX_LABELS, LabelCount, Labels
from gate.words import plural

Kind = Literal["benign", "malicious"]
LabelValue = str | int | float | Decimal | bool

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
TRUTHS = {"false": "0", "no": "0", "true": "1", "yes": "1"}
TRUE_OR_FALSE = {"0": False, "false": False, "1": True, "true": True}
HIDDEN = ("Cf", "Cc")  # categories of characters that a reader does not see; text of one length is padded with NUL


@dataclass(frozen=True)
class FoundLabel:
    """One distinct label of a file: as its text, with its rows and the number of the first of them."""

    text: str
    rows: int
    first: int | None
    weight: int
    is_number: bool = False

    @property
    def name(self) -> str:
        """One name for one label, in whatever type a file writes it: `0.0` of a float is `0`."""
        return re.sub(r"\.0+$", "", self.text) if self.is_number else self.text

    @property
    def place(self) -> str:
        return name_rows(self.first, self.rows)


def describe_labels(labels: Labels) -> str:
    """Every label that is kept, with its rows and what they were taken for."""
    shown = ", ".join(f"{show(each.label)} {each.rows:,} {each.taken_for}" for each in labels.first)
    more = labels.distinct - len(labels.first)
    return f"{plural(labels.distinct, 'label')} ({shown}{f' and {more:,} more' if more else ''})"


def count_labels(found: Iterable[tuple[FoundLabel, bool]]) -> Labels:
    """Add up the labels of all files, each with whether it is benign."""
    rows: dict[tuple[str, bool], int] = {}
    for label, benign in found:
        if label.weight:
            name = label.name
            rows[name, benign] = rows.get((name, benign), 0) + label.weight
    order = sorted(rows, key=lambda label: (not label[1], -rows[label], label[0]))
    return Labels(
        distinct=len(order),
        first=tuple(
            LabelCount(label=one_line(text, 80), rows=rows[text, benign], taken_for="benign" if benign else "malicious")
            for text, benign in order[:MAX_LABELS]
        ),
    )


def judge_labels(
    found: Sequence[FoundLabel], kind: str, untyped: bool, benign: Sequence[str], where: str
) -> list[bool]:
    """Whether each distinct label is benign, compared in the column's own type; `untyped` text has none."""
    wanted = [_WantedLabel.of(text) for text in benign]
    meaning = _meaning_of([label.text for label in found]) if untyped else _TYPES.get(kind, str)
    judged = []
    for label in found:
        value = meaning(label.text)
        judged.append(any(each.equals(value) for each in wanted))
        if not judged[-1]:
            _refuse_doubtful(label, value if not untyped else label.text, wanted, where)
    if untyped:
        _refuse_two_ways([label for label, is_benign in zip(found, judged, strict=True) if is_benign], benign, where)
    return judged


_LONG_EXPONENT = re.compile(r"(?<=[eE])([-+]?)0*[1-9][0-9]{17,}\s*$")


def _exactly(text: str) -> Decimal:
    """A number to its last digit; an exponent too long for Decimal counts as the largest one of 17 digits."""
    return Decimal(_LONG_EXPONENT.sub(rf"\g<1>{'9' * 17}", text).strip())


_TYPES: dict[str, Callable[[str], LabelValue]] = {
    "integer": int,
    "float": float,
    "decimal": Decimal,
    "boolean": lambda text: text.lower() in ("true", "t", "1"),
}


def _meaning_of(texts: Sequence[str]) -> Callable[[str], LabelValue]:
    """The type of labels that a text file does not have: all numbers, or all true or false, stand for values."""
    if all(is_number(text) for text in texts):
        return _exactly
    if all(text.lower() in ("true", "false") for text in texts):
        return lambda text: text.lower() == "true"
    return str


def _refuse_two_ways(benign: Sequence[FoundLabel], listed: Sequence[str], where: str) -> None:
    """Refuse a benign label written both as `0` and as `0.0`: people meant two things, or two programs wrote it."""
    seen: dict[Hashable, FoundLabel] = {}
    for label in benign:
        other = seen.setdefault(_sense(label.text), label)
        unlisted = [each for each in (label, other) if each.text not in listed]
        if label.text != other.text and unlisted:
            _refuse_spelling(unlisted[0], (other if unlisted[0] is label else label).text, where)


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

    def equals(self, value: LabelValue) -> bool:
        if isinstance(value, str):
            return value == self.text
        if isinstance(value, bool) or self.number is None:
            return value is self.truth
        # People write a fraction with fewer digits than its float has; whole numbers are compared exactly.
        return value == self.number or (isinstance(value, float) and value == float(self.number) and value % 1 != 0)


def _sense(text: str) -> Hashable:
    """What a label means, whatever its case, blanks and format: `0`, `0.0`, `+0`, ` 0` and `false` are one."""
    visible = (char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in HIDDEN)
    plain = "".join("".join(visible).split()).casefold()
    try:
        number = _exactly(TRUTHS.get(plain, plain).replace(",", "."))
    except ArithmeticError:
        return plain
    return number if number.is_finite() else plain


def _refuse_doubtful(label: FoundLabel, value: LabelValue, wanted: Sequence[_WantedLabel], where: str) -> None:
    """Refuse a label that may mean benign: if it were taken for malicious, it would hide a benign row."""
    exact = not (isinstance(value, float) and (abs(value) >= EXACT or not math.isfinite(value)))
    if not exact:
        raise GateError(
            f"{where} must hold labels that can be told apart, got {show(value)} as a float in {label.place}; "
            "write whole numbers from 2^53 on as integers or text"
        )
    sense = Decimal(value) if isinstance(value, int | float) else _sense(str(value))
    alike = next((each.text for each in wanted if each.sense == sense), None)
    if alike is not None:
        _refuse_spelling(label, alike, where)
    if isinstance(value, str) and sense in MISSING:
        raise GateError(
            f"{where} must label every row, got {show(value)} in {label.place}; label or remove these rows, or list it "
            "in data.benign_label"
        )


def _refuse_spelling(label: FoundLabel, alike: str, where: str) -> None:
    raise GateError(
        f"{where} must write a label in one way, got {show(label.text)} in {label.place}, which differs from the "
        f"benign {alike!r} only in case, blanks or number format; write them alike, or list both in data.benign_label"
    )
