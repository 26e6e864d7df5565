"""What a record may hold: numbers that no sample has are refused on reading, so that a report need not fear them."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

Outcome = Literal["pass", "fail", "inconclusive"]
Count = Annotated[int, Field(ge=0, le=10**15)]
Rate = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[float, Field(ge=0, le=1e15)]


class Section(BaseModel):
    # Keys may be added within a schema version, so a reader ignores those it does not know.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Judgement(NamedTuple):
    """What a check decides and says of its evidence."""

    outcome: Outcome
    required: bool
    reason: str
    message: str
    remedy: str | None
