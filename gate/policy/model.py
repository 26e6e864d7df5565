"""The policy as frozen values. It holds what is asked, and never looks at data."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gate.contract import PAPER_ANCHORS, Anchor, Contract
from gate.names import NOT_A_NAME, CheckName, Name
from gate.policy.coherence import incoherences
from gate.policy.detectors import FILES, MERGED, REPLACED, Detector, SystemTarget, alone
from gate.policy.targets import Range, Target
from gate.policy.values import (
    Day,
    Frozen,
    LabelColumn,
    Paths,
    PlottingPosition,
    PolicyCount,
    PolicyLabels,
    PolicyNumber,
    PolicyRate,
    Share,
    Text,
    distinguishable,
)


class ContractPoint(Frozen):
    """One anchor: benign rows reach the calibrated score at this rate."""

    fpr: PolicyRate = Field(description="the share of benign rows")
    score: PolicyRate = Field(description="the calibrated score that this share reaches")

    @field_validator("fpr", "score")
    @classmethod
    def _distinguishable(cls, value: Decimal) -> Decimal:
        return distinguishable(value)


class Calibration(Frozen):
    """How the release's calibrator is fitted."""

    knots: PolicyCount = Field(default=10_000, description="size of the stored curve")
    plotting_position: PlottingPosition = Field(
        default="filliben",
        description="what FPR the k-th largest benign score stands for; {np: 0.95} is an upper bound",
    )
    ties: Literal["conservative", "average"] = Field(
        default="conservative", description="average is the paper's; conservative never flags more than promised"
    )
    domain: tuple[PolicyNumber, PolicyNumber] = Field(
        default=(0.0, 1.0), description="lowest and highest possible raw score"
    )

    @field_validator("knots")
    @classmethod
    def _enough_knots(cls, value: int) -> int:
        if not 11 <= value <= 1_000_000:
            raise PydanticCustomError("knots", "must be from 11 to 1,000,000")
        return value

    @field_validator("domain")
    @classmethod
    def _rising(cls, value: tuple[float, float]) -> tuple[float, float]:
        low, high = value
        if not low < high:
            raise PydanticCustomError("domain", "must be [lowest, highest] with lowest below highest")
        return value


class Columns(Frozen):
    """Where the scores stand: the files of `gate run` and the columns of all files."""

    # Files are excluded from every dump: a record and a comparison of policies are about what is judged, not where.
    fit: Paths | None = Field(
        default=None, exclude=True, description="benign scores to fit on, from the working directory; --fit wins"
    )
    holdout: Paths | None = Field(
        default=None, exclude=True, description="benign scores to judge on; --holdout wins; `gate check` never uses it"
    )
    benign: Paths | None = Field(
        default=None, exclude=True, description="benign scores to split into the two; --benign wins"
    )
    split: Share | None = Field(
        default=None, exclude=True, description="how much of `benign` to fit on, such as 50%; --split wins"
    )
    malicious: Paths | None = Field(
        default=None, exclude=True, description="malicious scores; --malicious wins; `gate check` never uses it"
    )
    connect: Text | None = Field(default=None, exclude=True, description="the URL of the engine that has the rows")
    score: Text = Field(default="score", description="the column with raw scores, which rise with maliciousness")
    calibrated: Text | None = Field(
        default=None, description="the calibrated scores that were served beside them, for `gate check --calibrated`"
    )
    label: LabelColumn = Field(default=None, description="null: every row is benign; false: as you know, for sure")
    benign_label: PolicyLabels = Field(
        default=("0",), description="the value in the label column that marks a benign row, or a list of such values"
    )
    segment: Text | None = Field(
        default=None, description="a language, product or tenant to judge by itself; a split keeps its share"
    )
    group: Text | None = Field(
        default=None, description="rows of one user, tenant or template, which are not independent"
    )
    id: Text | None = Field(
        default=None, description="what names a row across releases; recognises re-used held-out rows"
    )
    timestamp: Text | None = Field(
        default=None, description="when a row was seen; a split fits on the older rows, and freshness is checked"
    )
    count: Text | None = Field(
        default=None,
        description="how many rows a row stands for, as COUNT(*) gives it; not with id or group",
    )

    @field_validator("count")
    @classmethod
    def _without_names(cls, value: str | None, given: ValidationInfo) -> str | None:
        named = next((key for key in ("id", "group") if given.data.get(key) is not None), None)
        if value is not None and named is not None:
            raise PydanticCustomError("count", f"must be null where data.{named} names a column: such rows are single")
        return value


class Reuse(Frozen):
    """What happens when the same held-out rows judge one release after another (`gate run --ledger`)."""

    max_uses: PolicyCount = Field(
        default=20, description="use t may err at most (1 - confidence) / (t (t + 1)); after so many none decides"
    )

    @field_validator("max_uses")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        if not 1 <= value <= 1000:
            raise PydanticCustomError("max_uses", "must be from 1 to 1,000")
        return value


def _waivable(check: CheckName) -> CheckName:
    """A segment may be called anything; what a person writes is one line."""
    if check.segment is not None and (len(check.segment) > 200 or not check.segment.isprintable()):
        raise PydanticCustomError("check", NOT_A_NAME)
    return check


class Waiver(Frozen):
    """A finding that is known, owned and accepted until a date."""

    check: Annotated[Name, AfterValidator(_waivable)] = Field(
        description="the check waived, as reports name it, such as fpr@0.01%"
    )
    reason: Text = Field(description="why it is accepted")
    owner: Text = Field(description="who answers for it")
    expires: Day = Field(description="the last day on which it waives")


def _version(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):  # true and 1.0 equal 1 in Python
        raise PydanticCustomError("version", "must be 1")
    return value


Settings = TypeVar("Settings", bound=Frozen)


class Policy(Frozen):
    """What a release must show before it may be deployed.

    Which checks there are is not known here: `with_checks` makes the policy that has their settings.
    """

    families: ClassVar[frozenset[str]] = frozenset()  # the names that a waiver may use; empty: any

    version: Annotated[Literal[1], BeforeValidator(_version)] = Field(description="the format of the file")
    name: Text = Field(description="appears in every report")
    rule: Literal["proven", "observed", "not-refuted"] = Field(
        default="proven",
        description="what ships: what is proven; what is observed inside, not refuted; whatever is not refuted",
    )
    confidence: PolicyRate = Field(
        default=Decimal("0.95"),
        description="of every interval; a bad release is proven at most (1 - C) / 2 of the time",
    )
    interval: Literal["clopper-pearson", "sequential"] = Field(
        default="clopper-pearson", description="sequential: look as often as you like while rows come in"
    )
    calibration: Calibration = Calibration()
    contract: tuple[ContractPoint, ...] = Field(
        default=tuple(ContractPoint(fpr=a.fpr, score=a.score) for a in PAPER_ANCHORS),
        description="FPR strictly falls, score strictly rises; 1 <-> 0 and 1e-10 <-> 0.99 are implied",
        json_schema_extra={"minItems": 1},
    )
    targets: tuple[Target, ...] = Field(
        description="the anchors that are judged on held-out benign rows", json_schema_extra={"minItems": 1}
    )
    ranges: tuple[Range, ...] = Field(
        default=(), description="the stretches of the contract that are judged at every threshold"
    )
    data: Columns = Columns()
    checks: Frozen = Frozen()
    detectors: tuple[Detector, ...] = Field(default=(), description="several detectors that are released together")
    system: tuple[SystemTarget, ...] = Field(default=(), description="what the detectors may flag together")
    reuse: Reuse | None = Field(default=None, description="null: re-used held-out rows are only pointed out")
    waivers: tuple[Waiver, ...] = Field(default=(), description="findings that are known and accepted until a date")

    @field_validator("confidence")
    @classmethod
    def _confidence_inside(cls, value: Decimal) -> Decimal:
        if not Decimal("0.5") <= value < 1:
            raise PydanticCustomError("confidence", "must be at least 0.5 and below 1, such as 0.95")
        return value

    @model_validator(mode="after")
    def _coherent(self) -> Policy:
        for _, must in incoherences(self.model_dump(by_alias=True), self.families):
            raise PydanticCustomError("coherence", "{must}", {"must": must})
        return self

    def alpha(self, use: int = 1) -> Fraction:
        """How often an interval may miss; with `reuse`, the share for the use-th judgement on the same rows.

        alpha / (t (t + 1)) adds up to at most alpha over all uses, as long as only verdicts feed back.
        """
        total = 1 - Fraction(self.confidence)
        return total / (use * (use + 1)) if self.reuse else total

    def detector(self, name: str) -> Self:
        """The policy of one of several detectors by itself: a run by it gives the same verdict."""
        content = self.model_dump(exclude_unset=True, by_alias=True)
        files = {key: getattr(self.data, key) for key in FILES if getattr(self.data, key)}  # a dump leaves them out
        content["data"] = {**content.get("data", {}), **files}
        return type(self).model_validate(alone(content, name))

    @cached_property
    def anchors(self) -> Contract:
        return Contract(tuple(Anchor(point.fpr, point.score) for point in self.contract))

    def settings(self, kind: type[Settings]) -> Settings | None:
        """What the policy asks of one check; None where it does not ask for it."""
        return next((value for value in vars(self.checks).values() if isinstance(value, kind)), None)


def with_checks(fields: Mapping[str, tuple[Any, Any]], families: frozenset[str]) -> type[Policy]:
    """The policy of these checks: the settings of each under its key in `checks:`, and the names that waivers know."""
    known: dict[str, Any] = dict(fields)
    said = "What else is checked beside the targets."
    checks: Any = create_model("Checks", __base__=Frozen, __doc__=said, **known)
    kinds: dict[str, Any] = {name: field.annotation for name, field in Policy.model_fields.items()}
    kinds["checks"] = checks
    own: dict[str, Any] = {
        key: (kinds[key] | None, Field(default=None, description=f"where it differs from the policy's `{key}`"))
        for key in (*REPLACED, *MERGED)
        if key in kinds
    }
    detector: Any = create_model("Detector", __base__=Detector, __doc__=Detector.__doc__, **own)
    listed: Any = (tuple[detector, ...], Policy.model_fields["detectors"])
    model: type[Policy] = create_model(
        "Policy", __base__=Policy, __doc__=Policy.__doc__, checks=(checks, checks()), detectors=listed
    )
    model.families = families
    return model
