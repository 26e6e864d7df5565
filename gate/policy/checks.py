"""The settings of every check beside the targets."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gate.policy.targets import Span, Target, Tolerance
from gate.policy.values import Count, Flag, Frozen, Label, Rate


class Exchangeability(Frozen):
    """Whether held-out and fit benign scores can come from one population."""

    alpha: Rate = Field(default=Decimal("0.001"), description="how often samples that do may be called different")
    required: Flag = Field(default=False, description="true: a difference blocks the release")

    @field_validator("alpha")
    @classmethod
    def _testable(cls, value: Decimal) -> Decimal:
        if not Decimal("0.0001") <= value <= Decimal("0.2"):
            raise PydanticCustomError("alpha", "must be from 0.0001 to 0.2")
        return value


class DetectionTarget(Frozen):
    """An anchor at which enough malicious rows must be detected."""

    fpr: Rate = Field(description="the false-positive rate promised at this anchor of the contract")
    min_tpr: Rate = Field(description="the share of malicious rows that must be flagged there")

    @field_validator("min_tpr")
    @classmethod
    def _provable(cls, value: Decimal) -> Decimal:
        if not 0 < value < 1:
            raise PydanticCustomError("min_tpr", "must be above 0 and below 1, such as 0.8")
        return value

    @property
    def check(self) -> str:
        return f"tpr@{self.fpr.normalize():f}"

    @property
    def drop_check(self) -> str:
        return f"tpr-drop@{self.fpr.normalize():f}"


class Detection(Frozen):
    """What the detector must still catch (`--malicious`)."""

    targets: tuple[DetectionTarget, ...] = Field(
        description="the shares that must be detected", json_schema_extra={"minItems": 1}
    )
    max_drop: Rate | None = Field(
        default=None, description="how far the share may fall below the baseline's (`--baseline`): 0.02 is two points"
    )
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_drop")
    @classmethod
    def _margin(cls, value: Decimal | None) -> Decimal | None:
        if value is not None and not 0 < value < 1:
            raise PydanticCustomError("max_drop", "must be above 0 and below 1, such as 0.02 for two points")
        return value


class Direction(Frozen):
    """Whether malicious rows (`--malicious`) are flagged at least as often as benign ones."""

    required: Flag = Field(default=True, description="false: shown, but never blocks a release")


class Overlap(Frozen):
    """Whether held-out rows are among the fit rows: then they are not held out."""

    max_share: Rate = Field(default=Decimal("0.001"), description="the share of held-out rows that may be")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_share")
    @classmethod
    def _share(cls, value: Decimal) -> Decimal:
        if not 0 <= value < 1:
            raise PydanticCustomError("share", "must be at least 0 and below 1, such as 0.001")
        return value


class Duplicates(Frozen):
    """Whether rows count more than once: copies are no further evidence."""

    max_share: Rate = Field(default=Decimal("0.001"), description="the share of a sample's rows that may repeat others")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_share")
    @classmethod
    def _share(cls, value: Decimal) -> Decimal:
        return Overlap._share(value)


class Freshness(Frozen):
    """How old the held-out rows may be."""

    max_age_days: Count = Field(description="no held-out row may be older than this on the day of the release")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_age_days")
    @classmethod
    def _days(cls, value: int) -> int:
        if not 1 <= value <= 36_500:
            raise PydanticCustomError("days", "must be from 1 to 36,500")
        return value


class Granularity(Frozen):
    """Whether the detector's scores are fine enough for each target's rate to exist."""

    required: Flag = Field(default=False, description="true: scores too coarse for a target block the release")


class Floor(Frozen):
    """Whether the fit sample is large enough to see each target's rate."""

    required: Flag = Field(default=False, description="true: a target beyond the fit sample blocks the release")


class Segments(Frozen):
    """The targets judged again in every segment (`data.segment`), corrected for how many there are."""

    targets: tuple[Rate, ...] = Field(description="which anchors", json_schema_extra={"minItems": 1})
    ranges: tuple[Span, ...] = Field(default=(), description="which stretches of the contract, at every threshold")
    min_n: Count = Field(description="the fewest held-out rows of a segment on which a pass is believed")
    max_relative_error: Tolerance = Field(description="how far a segment's rate may be off")
    required: Flag = Field(default=False, description="true: a segment that does not pass blocks the release")
    expect: tuple[Label, ...] = Field(default=(), description="segments that must be among the held-out rows")

    @field_validator("min_n")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        return Target._at_least_one(value)


class Checks(Frozen):
    """What else is checked beside the targets."""

    overlap: Overlap = Overlap()
    duplicates: Duplicates = Duplicates()
    exchangeability: Exchangeability = Exchangeability()
    detection: Detection | None = Field(default=None, description="null: malicious scores are shown and not judged")
    direction: Direction = Direction()
    granularity: Granularity = Granularity()
    floor: Floor = Floor()
    freshness: Freshness | None = Field(default=None, description="null: the age of rows does not matter")
    segments: Segments | None = Field(default=None, description="null: segments are not judged by themselves")
