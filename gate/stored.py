"""The types of a record's values: reading refuses numbers that no sample has, so that reports can rely on them."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

Outcome = Literal["pass", "fail", "inconclusive"]
Grade = Literal["proven", "open", "refuted"]
MOST = 10**15
MOST_ROWS = 10**10  # of a sample; advice looks no further, and lists with an entry for every so many rows stay small
# One bound on each side: if an annotation had two, the looser would win.
Count = Annotated[int, Field(ge=0, le=MOST)]
Ordinal = Annotated[int, Field(ge=1, le=MOST)]
RowCount = Annotated[int, Field(ge=1, le=MOST_ROWS)]
Rate = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[float, Field(ge=0, le=1e15)]


def exact(number: float) -> Decimal:
    """The shortest decimal that names a float, as the record writes it; it has all digits that an anchor may have."""
    return Decimal(repr(number))


def _exact(value: Any) -> Any:
    """A number as a policy writes it; text is refused here as elsewhere in the record."""
    number = float(value) if isinstance(value, str) else value
    return exact(number) if isinstance(number, float | int) and not isinstance(number, bool) else number


_Exact = Annotated[Decimal, BeforeValidator(_exact), PlainSerializer(float)]
ExactRate = Annotated[
    _Exact, Field(gt=0, le=1), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
]
# An end of the tolerance, as a rate or as an error: as exact as a rate, and perhaps absent.
ExactEdge = Annotated[_Exact, Field(ge=0, le=1), WithJsonSchema({"maximum": 1, "minimum": 0, "type": "number"})]
ExactError = Annotated[_Exact, Field(ge=0, le=1000), WithJsonSchema({"type": "number"})]


class Section(BaseModel):
    """A part of the record. Keys may be added within a schema version, so a reader ignores those it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
