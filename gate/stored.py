"""What a record may hold: numbers that no sample has are refused on reading, so that no report need fear them."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

Outcome = Literal["pass", "fail", "inconclusive"]
Grade = Literal["proven", "open", "refuted"]
MOST = 10**15
MOST_ROWS = 10**10  # of a sample: advice looks no further, and what is made for every so many rows stays small
# One bound on each side: of two in one annotation the looser would win.
Count = Annotated[int, Field(ge=0, le=MOST)]
Ordinal = Annotated[int, Field(ge=1, le=MOST)]
Rate = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[float, Field(ge=0, le=1e15)]


def _exact(value: Any) -> Any:
    """A rate as a policy writes it: floats keep all digits that an anchor may have."""
    return Decimal(repr(value)) if isinstance(value, float | int) and not isinstance(value, bool) else value


ExactRate = Annotated[
    Decimal,
    BeforeValidator(_exact),
    Field(gt=0, le=1),
    PlainSerializer(float),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
]


class Section(BaseModel):
    """A part of the record. Keys may be added within a schema version, so a reader ignores those it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
