"""Targets and ranges as a policy writes them: a rate, a minimum of rows, the band around the rate. No judgement."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from gate.names import CheckName
from gate.policy.values import RATE_SCHEMA, Flag, Frozen, MinRows, PolicyRate, distinguishable


class Tolerance(Frozen):
    """The band around a target, as relative errors; `below: 1` or more means that only excess counts."""

    above: PolicyRate = Field(description="how far the rate may exceed the target, relative to it")
    below: PolicyRate = Field(description="how far it may fall short; 1 or more: only excess counts")

    @field_validator("above", "below")
    @classmethod
    def _positive(cls, value: Decimal) -> Decimal:
        if not 0 < value <= 1000:
            raise PydanticCustomError("tolerance", "must be above 0 and at most 1000, such as 0.5 for 50 %")
        return value

    @model_validator(mode="before")
    @classmethod
    def _symmetric(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping | Tolerance) else {"above": value, "below": value}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [RATE_SCHEMA, handler.resolve_ref_schema(handler(core))]}


class Target(Frozen):
    """An anchor that the policy judges."""

    fpr: PolicyRate = Field(description="the false-positive rate promised at this anchor of the contract")
    min_n: MinRows = Field(description="the fewest held-out benign rows on which a pass is believed")
    max_relative_error: Tolerance = Field(description="how far the rate may be off: 0.5 is plus or minus 50 %")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @property
    def check(self) -> CheckName:
        return CheckName("fpr", self.fpr)

    @property
    def tolerance(self) -> tuple[Decimal, Decimal]:
        """The band of true rates that the policy accepts."""
        error = self.max_relative_error
        return max(self.fpr * (1 - error.below), Decimal(0)), min(self.fpr * (1 + error.above), Decimal(1))


class Span(Frozen):
    """A stretch of the contract, from one rate down to another."""

    start: PolicyRate = Field(alias="from", description="the highest rate, at or below the contract's first anchor")
    stop: PolicyRate = Field(alias="to", description="the lowest rate, at or above its last anchor")

    @field_validator("start", "stop")
    @classmethod
    def _distinguishable(cls, value: Decimal) -> Decimal:
        return distinguishable(value)

    @property
    def check(self) -> CheckName:
        return CheckName("fpr", self.start, self.stop)


class Range(Span):
    """A stretch of the contract that the policy judges at every threshold."""

    min_n: MinRows = Field(description="the fewest held-out benign rows on which a pass is believed")
    max_relative_error: Tolerance = Field(description="how far the rate may be off at every threshold of the range")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")
