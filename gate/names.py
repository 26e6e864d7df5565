"""The names of checks: one type, read once, printed in percent, whatever form of a rate was written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, LiteralString

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from gate.words import in_digits

# No leading zeros: `010` is eight to YAML 1.1 and ten to YAML 1.2, so here it is text.
NUMBER = r"((0|[1-9][0-9_]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?"
DETECTOR = r"[A-Za-z0-9._-]{1,64}"
_NAME = re.compile(
    rf"(?:(?P<detector>{DETECTOR}):)?(?P<kind>[a-z]+(?:-[a-z]+)*)"
    rf"(?:@(?P<rate>{NUMBER}%?)(?:\.\.(?P<to>{NUMBER}%?))?)?(?:/(?P<segment>.+))?",
    re.DOTALL,
)
BY_SCORE = ("system",)  # kinds whose number is a calibrated score and no rate


@dataclass(frozen=True)
class CheckName:
    """What a finding, a waiver and an annotation call a check.

    kind       what it asks: fpr, tpr, tpr-drop, granularity, overlap, ...
    rate, to   the rate at which it asks, or the ends of a range; of a system's check, the calibrated score
    segment    the part of the rows that it is about, as `language=de`
    detector   the one of several that it is about
    """

    kind: str
    rate: Decimal | None = None
    to: Decimal | None = None
    segment: str | None = None
    detector: str | None = None

    def __str__(self) -> str:
        detector = "" if self.detector is None else f"{self.detector}:"
        at = "" if self.rate is None else f"@{self.at}"
        segment = "" if self.segment is None else f"/{self.segment}"
        return f"{detector}{self.kind}{at}{segment}"

    @property
    def at(self) -> str:
        """The rate, range or score alone: `0.1%`, `1%..0.1%`, for a system's check `0.5`; empty if there is none."""
        written = in_digits if self.kind in BY_SCORE else in_percent
        return "..".join(written(number) for number in (self.rate, self.to) if number is not None)

    @property
    def family(self) -> str:
        """The check that gives findings of this name: `segments` gives those of a target in a segment."""
        if self.segment is not None:
            return "segments"
        return "ranges" if self.to is not None and self.kind == "fpr" else self.kind


def is_detector(text: str) -> bool:
    """Whether a detector may have this name, which becomes a directory."""
    return re.fullmatch(DETECTOR, text) is not None and text not in (".", "..")


def in_percent(rate: Decimal) -> str:
    """A rate as in a name: `10%`, `0.01%`. In a sentence a space precedes the sign."""
    return f"{in_digits(rate * 100)}%"


def parse_name(text: str) -> CheckName | None:
    """The name that a text gives, with any form of its rate; None if the text is no name."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    written = (found["rate"], found["to"])
    rate, to = (None if text is None else exact_number(text) for text in written)
    if any(text is not None and not 0 < (number or 0) <= 1 for text, number in zip(written, (rate, to), strict=True)):
        return None
    return CheckName(found["kind"], rate, to, found["segment"], found["detector"])


def exact_number(text: str) -> Decimal | None:
    """The number that digits name, `0.1%` in percent; None if it is of no ordinary size."""
    exact = Decimal(text.removesuffix("%").replace("_", ""))
    if exact and not -40 < exact.adjusted() < 40:
        return None
    return exact / 100 if text.endswith("%") else exact


NOT_A_NAME: LiteralString = "must be the name of a check, such as fpr@0.01%"


def _name(value: Any) -> Any:
    if isinstance(value, CheckName):
        return value
    found = parse_name(value) if isinstance(value, str) else None
    if found is None:
        raise PydanticCustomError("check", NOT_A_NAME)
    return found


Name = Annotated[CheckName, PlainValidator(_name), PlainSerializer(str), WithJsonSchema({"type": "string"})]
