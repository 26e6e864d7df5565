"""The policy: from YAML text to frozen values, or to every error at once with its file, line and key."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from gate.contract import FLAG_ALL, LOWEST, PAPER_ANCHORS, Anchor, Contract
from gate.errors import GateError

MAX_BYTES = 200_000
MAX_DEPTH = 20
MAX_NUMBER_LENGTH = 28  # the digits that decimal arithmetic keeps exactly
ANCHOR_DIGITS = 12  # two rates that differ in these differ as floats too, and so do their logarithms

PLOTTING_POSITIONS = ("filliben", "mean", "median", "conformal")

Location = tuple[str | int, ...]


# --- values -------------------------------------------------------------------------------------------------


def _decimal(value: object, kind: str = "a number such as 0.001, 1e-3 or 0.1%") -> Decimal:
    """An exact decimal from `0.001`, `1e-3` or `0.1%`."""
    text = str(value).strip()
    number = text.removesuffix("%")
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal) or not _NUMBER.fullmatch(number):
        raise PydanticCustomError("number", f"must be {kind}")
    if len(text) > MAX_NUMBER_LENGTH:
        raise PydanticCustomError("number", f"must be written in at most {MAX_NUMBER_LENGTH} characters")
    exact = Decimal(number.replace("_", ""))
    if exact and not -40 < exact.adjusted() < 40:
        raise PydanticCustomError("number", "must be a number of ordinary size")
    return exact / 100 if text.endswith("%") else exact


def _count(value: object) -> int:
    """A whole number, also when written `1e6` or `98_000`."""
    kind = "a whole number such as 98000"
    exact = _decimal(value, kind)
    if exact != exact.to_integral_value() or str(value).strip().endswith("%"):
        raise PydanticCustomError("number", f"must be {kind}")
    return int(exact)


def _float(value: object) -> float:
    return float(_decimal(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("text", "must be text; put it in quotes")
    if not value.strip() or len(value) > 200 or not value.isprintable():
        raise PydanticCustomError("text", "must be one line of 1 to 200 printable characters")
    return value


def _label(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str | Decimal):
        return _text(str(value))
    raise PydanticCustomError("label", "must be one number or one word, as it stands in the label column")


def _labels(value: object) -> tuple[str, ...]:
    """One label, or a list of labels that all mean the same."""
    try:
        labels = tuple(map(_label, value)) if isinstance(value, list | tuple) else (_label(value),)
    except PydanticCustomError:
        raise PydanticCustomError("label", _LABELS) from None
    if not labels or len({*labels}) < len(labels):
        raise PydanticCustomError("label", _LABELS)
    return labels


_LABELS = "must be a number or a word of the label column, or a list of those"


def _date(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        day = date.fromisoformat(str(value))  # also reads 20261231 and 2026-W53-4, which nobody means to write
    except ValueError:
        day = None
    if day is None or day.isoformat() != value:
        raise PydanticCustomError("date", "must be a date written as 2026-12-31")
    return day


def _plotting_position(value: object) -> str:
    """A name, or `{np: 0.95}`, which is kept as `np 0.95`."""
    if isinstance(value, str) and value in PLOTTING_POSITIONS:
        return value
    if isinstance(value, str) and value.startswith("np "):
        value = {"np": value.removeprefix("np ")}
    if isinstance(value, Mapping) and list(value) == ["np"]:
        confidence = _decimal(value["np"])
        if Decimal("0.5") <= confidence < 1:
            return f"np {confidence.normalize():f}"
        raise PydanticCustomError("position", "must be {np: C} with C at least 0.5 and below 1")
    names = ", ".join(PLOTTING_POSITIONS)
    raise PydanticCustomError("position", f"must be one of {names}, or {{np: 0.95}}")


def _version(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):  # true and 1.0 equal 1 in Python
        raise PydanticCustomError("version", "must be 1")
    return value


# No leading zeros: `010` is eight to YAML 1.1 and ten to YAML 1.2, so here it is text.
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9_]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_RATE_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^({_NUMBER.pattern})%?$"}]}
_POSITION_SCHEMA = {
    "anyOf": [
        {"enum": list(PLOTTING_POSITIONS)},
        {
            "type": "object",
            "properties": {
                "np": {**_RATE_SCHEMA, "description": "how surely each threshold's rate is at most its target"}
            },
            "required": ["np"],
            "additionalProperties": False,
        },
    ]
}
_COUNT_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^({_NUMBER.pattern})$"}]}

_LABEL_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_LABELS_SCHEMA = {
    "anyOf": [_LABEL_SCHEMA, {"type": "array", "items": _LABEL_SCHEMA, "minItems": 1, "uniqueItems": True}]
}

Rate = Annotated[Decimal, BeforeValidator(_decimal), WithJsonSchema(_RATE_SCHEMA)]
Count = Annotated[int, BeforeValidator(_count), WithJsonSchema(_COUNT_SCHEMA)]
Number = Annotated[float, BeforeValidator(_float), WithJsonSchema(_RATE_SCHEMA)]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema(_LABEL_SCHEMA)]
Labels = Annotated[tuple[str, ...], BeforeValidator(_labels), WithJsonSchema(_LABELS_SCHEMA)]
Day = Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
PlottingPosition = Annotated[str, BeforeValidator(_plotting_position), WithJsonSchema(_POSITION_SCHEMA)]
Flag = Annotated[bool, Field(strict=True)]


def rate(text: str) -> Decimal | None:
    """The exact rate that `0.001`, `1e-3` or `0.1%` names, None for any other text."""
    try:
        return _decimal(text)
    except PydanticCustomError:
        return None


def fpr_check(fpr: Decimal) -> str:
    """The name of the check at one target, the same however its rate was written: `fpr@0.0001`."""
    return f"fpr@{fpr.normalize():f}"


# --- models -------------------------------------------------------------------------------------------------


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tolerance(_Frozen):
    """The band around a target, as relative errors; `below: 1` or more means that only excess counts."""

    above: Rate = Field(description="how far the rate may exceed the target, relative to it")
    below: Rate = Field(description="how far it may fall short; 1 or more: only excess counts")

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
        return {"anyOf": [_RATE_SCHEMA, handler.resolve_ref_schema(handler(core))]}


class Target(_Frozen):
    """An anchor that the policy judges."""

    fpr: Rate = Field(description="the false-positive rate promised at this anchor of the contract")
    min_n: Count = Field(description="the fewest held-out benign rows on which a pass is believed")
    max_relative_error: Tolerance = Field(description="how far the rate may be off: 0.5 is plus or minus 50 %")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("min_n")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        if not 1 <= value <= 10**12:
            raise PydanticCustomError("min_n", "must be from 1 to 10^12")
        return value

    @property
    def check(self) -> str:
        return fpr_check(self.fpr)

    @property
    def tolerance(self) -> tuple[Decimal, Decimal]:
        """The band of true rates that the policy accepts."""
        error = self.max_relative_error
        return max(self.fpr * (1 - error.below), Decimal(0)), min(self.fpr * (1 + error.above), Decimal(1))


class ContractPoint(_Frozen):
    """One anchor: benign rows reach the calibrated score at this rate."""

    fpr: Rate = Field(description="the share of benign rows")
    score: Rate = Field(description="the calibrated score that this share reaches")

    @field_validator("fpr", "score")
    @classmethod
    def _distinguishable(cls, value: Decimal) -> Decimal:
        if len(value.normalize().as_tuple().digits) > ANCHOR_DIGITS:
            raise PydanticCustomError("anchor", f"must have at most {ANCHOR_DIGITS} significant digits")
        return value


class Calibration(_Frozen):
    """How the release's calibrator is fitted."""

    knots: Count = Field(default=10_000, description="size of the stored curve")
    plotting_position: PlottingPosition = Field(
        default="filliben",
        description="what FPR the k-th largest benign score stands for; {np: 0.95} is an upper bound",
    )
    ties: Literal["conservative", "average"] = Field(
        default="conservative", description="average is the paper's; conservative never flags more than promised"
    )
    domain: tuple[Number, Number] = Field(default=(0.0, 1.0), description="lowest and highest possible raw score")

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


class Columns(_Frozen):
    """Where the scores stand in the files."""

    score: Text = Field(default="score", description="the column with raw scores, which rise with maliciousness")
    label: Text | None = Field(default=None, description="null: every row is benign")
    benign: Labels = Field(
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


class Exchangeability(_Frozen):
    """Whether held-out and fit benign scores can come from one population."""

    alpha: Rate = Field(default=Decimal("0.001"), description="how often samples that do may be called different")
    required: Flag = Field(default=False, description="true: a difference blocks the release")

    @field_validator("alpha")
    @classmethod
    def _testable(cls, value: Decimal) -> Decimal:
        if not Decimal("0.0001") <= value <= Decimal("0.2"):
            raise PydanticCustomError("alpha", "must be from 0.0001 to 0.2")
        return value


class DetectionTarget(_Frozen):
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


class Detection(_Frozen):
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


class Direction(_Frozen):
    """Whether malicious rows (`--malicious`) are flagged at least as often as benign ones."""

    required: Flag = Field(default=True, description="false: shown, but never blocks a release")


class Overlap(_Frozen):
    """Whether held-out rows are among the fit rows: then they are not held out."""

    max_share: Rate = Field(default=Decimal("0.001"), description="the share of held-out rows that may be")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_share")
    @classmethod
    def _share(cls, value: Decimal) -> Decimal:
        if not 0 <= value < 1:
            raise PydanticCustomError("share", "must be at least 0 and below 1, such as 0.001")
        return value


class Duplicates(_Frozen):
    """Whether rows count more than once: copies are no further evidence."""

    max_share: Rate = Field(default=Decimal("0.001"), description="the share of a sample's rows that may repeat others")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_share")
    @classmethod
    def _share(cls, value: Decimal) -> Decimal:
        return Overlap._share(value)


class Freshness(_Frozen):
    """How old the held-out rows may be."""

    max_age_days: Count = Field(description="no held-out row may be older than this on the day of the release")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_age_days")
    @classmethod
    def _days(cls, value: int) -> int:
        if not 1 <= value <= 36_500:
            raise PydanticCustomError("days", "must be from 1 to 36,500")
        return value


class Granularity(_Frozen):
    """Whether the detector's scores are fine enough for each target's rate to exist."""

    required: Flag = Field(default=False, description="true: scores too coarse for a target block the release")


class Floor(_Frozen):
    """Whether the fit sample is large enough to see each target's rate."""

    required: Flag = Field(default=False, description="true: a target beyond the fit sample blocks the release")


class Segments(_Frozen):
    """The targets judged again in every segment (`data.segment`), corrected for how many there are."""

    targets: tuple[Rate, ...] = Field(description="which anchors", json_schema_extra={"minItems": 1})
    min_n: Count = Field(description="the fewest held-out rows of a segment on which a pass is believed")
    max_relative_error: Tolerance = Field(description="how far a segment's rate may be off")
    required: Flag = Field(default=False, description="true: a segment that does not pass blocks the release")
    expect: tuple[Label, ...] = Field(default=(), description="segments that must be among the held-out rows")

    @field_validator("min_n")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        return Target._at_least_one(value)


class Checks(_Frozen):
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


class Reuse(_Frozen):
    """What happens when the same held-out rows judge one release after another (`gate run --ledger`)."""

    spending: Literal["harmonic-square"] = Field(
        default="harmonic-square", description="use t of the rows may err at most (1 - confidence) / (t (t + 1))"
    )
    max_uses: Count = Field(default=20, description="after so many uses the rows no longer decide")

    @field_validator("max_uses")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        if not 1 <= value <= 1000:
            raise PydanticCustomError("max_uses", "must be from 1 to 1,000")
        return value


class Waiver(_Frozen):
    """A finding that is known, owned and accepted until a date."""

    check: Text = Field(description="the check waived, as reports name it, such as fpr@0.0001")
    reason: Text = Field(description="why it is accepted")
    owner: Text = Field(description="who answers for it")
    expires: Day = Field(description="the last day on which it waives")

    @field_validator("check")
    @classmethod
    def _canonical(cls, value: str) -> str:
        kind, at, rest = value.partition("@")
        rate, slash, segment = rest.partition("/")
        if kind in ("fpr", "tpr", "tpr-drop") and at and (_NUMBER.fullmatch(rate.removesuffix("%"))):
            return f"{kind}@{_decimal(rate).normalize():f}{slash}{segment}"
        return value


class Policy(_Frozen):
    """What a release must show before it may be deployed."""

    version: Annotated[Literal[1], BeforeValidator(_version)] = Field(description="the format of the file")
    name: Text = Field(description="appears in every report")
    rule: Literal["proven", "observed", "not-refuted"] = Field(
        default="proven",
        description="what ships: what is proven; what is observed inside, not refuted; whatever is not refuted",
    )
    confidence: Rate = Field(
        default=Decimal("0.95"),
        description="of every interval; a bad release is proven at most (1 - C) / 2 of the time",
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
    data: Columns = Columns()
    checks: Checks = Checks()
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
        for _, must in _incoherences(self.model_dump()):
            raise PydanticCustomError("coherence", "{must}", {"must": must})
        return self

    def alpha(self, use: int = 1) -> Fraction:
        """How often an interval may miss; with `reuse`, what is left to the use-th judgement on the same rows.

        alpha / (t (t + 1)) adds up to at most alpha over all uses, as long as only verdicts feed back.
        """
        total = 1 - Fraction(self.confidence)
        return total / (use * (use + 1)) if self.reuse else total

    @cached_property
    def anchors(self) -> Contract:
        return Contract(tuple(Anchor(point.fpr, point.score) for point in self.contract))


def _incoherences(policy: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """What only several keys together show. A value that cannot be read is passed over: its own error says so."""
    contract: Any = policy.get("contract", [{"fpr": anchor.fpr, "score": anchor.score} for anchor in PAPER_ANCHORS])
    fprs, scores = _rates(contract, "fpr"), _rates(contract, "score")
    if contract in ([], ()):
        yield ("contract",), "must list at least one anchor"
    higher, lower = FLAG_ALL.fpr, FLAG_ALL.score
    for i, (fpr, score) in enumerate(zip(fprs, scores, strict=True)):
        if fpr is not None and not LOWEST.fpr < fpr < higher:
            yield ("contract", i, "fpr"), "must fall strictly from below 1 to above 1e-10"
        if score is not None and not lower < score < LOWEST.score:
            yield ("contract", i, "score"), "must rise strictly from above 0 to below 0.99"
        higher, lower = fpr or higher, score or lower
    for at in (("targets",), ("checks", "detection", "targets")):
        targets = _value_at(policy, at)
        if targets in ([], ()):
            yield at, "must list at least one target: nothing measured is never a pass"
        rates = _rates(targets, "fpr")
        yield from _bad_targets([(*at, i, "fpr") for i in range(len(rates))], rates, fprs)
    listed = _value_at(policy, ("checks", "segments", "targets"))
    if listed in ([], ()):
        yield ("checks", "segments", "targets"), "must list at least one target"
    rates = _rates([{"fpr": rate} for rate in listed] if isinstance(listed, list | tuple) else [], "fpr")
    yield from _bad_targets([("checks", "segments", "targets", i) for i in range(len(rates))], rates, fprs)


def _value_at(tree: Any, keys: Location) -> Any:
    """What stands under these keys, None where they lead nowhere."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def _bad_targets(
    places: list[Location], targets: list[Decimal | None], anchors: list[Decimal | None]
) -> Iterator[tuple[Location, str]]:
    """Targets that are no anchors of the contract, or stand there twice."""
    highest = sorted((fpr for fpr in anchors if fpr is not None), reverse=True)[:10]
    known = ", ".join(f"{fpr.normalize():f}" for fpr in highest)
    judged: set[Decimal] = set()
    for place, target in zip(places, targets, strict=True):
        if target is None:
            continue
        if target in judged:
            yield place, "must differ from every other target's"
        elif anchors and None not in anchors and target not in anchors:
            yield place, f"must be an anchor of the contract ({known})"
        judged.add(target)


def _rates(points: object, key: str) -> list[Decimal | None]:
    """One number of each point of a list, None where it cannot be read."""
    rates: list[Decimal | None] = []
    for point in points if isinstance(points, list | tuple) else ():
        try:
            rates.append(_decimal(point[key]))
        except (PydanticCustomError, LookupError, TypeError):
            rates.append(None)
    return rates


# --- documents ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    """A policy with the text it came from, so that a record can carry it and a message can point into it."""

    policy: Policy
    text: str
    path: str
    lines: Mapping[Location, int] = field(repr=False)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def with_columns(self, given: Mapping[str, str | tuple[str, ...] | None]) -> Document:
        """The same document with the columns that the command line names instead of the policy's."""
        named = {key: value for key, value in given.items() if value is not None and value != ()}
        try:
            columns = Columns.model_validate({**self.policy.data.model_dump(), **named})
        except ValidationError as error:
            raise GateError(
                *(f"data.{_key(e['loc'])}: {e['msg']}, got {_shown(e['input'])}" for e in error.errors())
            ) from None
        return replace(self, policy=self.policy.model_copy(update={"data": columns}))

    def require_columns(self) -> None:
        """Whether the checks asked for have the columns they need, from the policy or the command line."""
        needs = (("freshness", "timestamp"), ("segments", "segment"))
        for check, column in needs:
            if getattr(self.policy.checks, check) is not None and getattr(self.policy.data, column) is None:
                line = self.lines.get(("checks", check), 1)
                raise GateError(
                    f"{self.path}:{line}: checks.{check}: must have data.{column} name a column, got null; "
                    f"write `data: {{{column}: NAME}}` or give --{column}-column NAME"
                )


_HERE = Path(__file__).parent
# The wheel carries the default beside this module; a source checkout has the same file in `policies/`.
_DEFAULTS = (_HERE / "default.yaml", _HERE.parent / "policies" / "default.yaml")


def load_default() -> Document:
    """The policy used where none is named."""
    path = next(path for path in _DEFAULTS if path.exists())
    return parse(path.read_text(encoding="utf-8"), "built-in default")


def load(path: str | Path) -> Document:
    """Read a policy file, or raise with all that is wrong in it."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise GateError(f"{path}: must be a readable policy file, got: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise GateError(f"{path}: must be a policy of at most {MAX_BYTES:,} bytes, got more; is this a score file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise GateError(f"{path}:{line}: must be UTF-8 text, got byte 0x{byte:02x}; save it as UTF-8") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Document:
    """Turn YAML text into a policy; `path` only names it in messages."""
    tree = _Tree(text, path)
    errors = list(tree.errors)
    if not isinstance(tree.value, dict):
        raise GateError(f"{path}:1: must be a mapping that starts with `version: 1`, got {_shown(tree.value)}")
    try:
        policy = Policy.model_validate(tree.value)
    except ValidationError as error:
        errors += [tree.locate(detail) for detail in error.errors() if detail["type"] != "coherence"]
        errors += [tree.point(location, must) for location, must in _incoherences(tree.value)]
    if errors:
        raise GateError(*(line for _, line in sorted(set(errors))))
    return Document(policy, text, path, tree.lines)


class _Tree:
    """YAML as plain values with a line for every key: numbers exact, repeated keys and aliases refused."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.lines: dict[Location, int] = {(): 1}
        self.errors: list[tuple[int, str]] = []
        self._refuse_traps(text)
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            raise self._not_yaml(error) from None
        self.value = None if node is None else self._build(node, ())

    def _refuse_traps(self, text: str) -> None:
        """Aliases can expand without bound and deep nesting can exhaust the stack: stop before composing."""
        depth = 0
        try:
            loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            got = f"the character U+{ord(text[error.position]):04X}"
            raise GateError(f"{self.path}:{line}: must be YAML, got {got}; remove it") from None
        try:
            while loader.check_event():
                event = loader.get_event()  # type: ignore[no-untyped-call]
                line = event.start_mark.line + 1
                if isinstance(event, yaml.AliasEvent):
                    raise GateError(f"{self.path}:{line}: must not use YAML aliases, got *{event.anchor}; write it out")
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if depth > MAX_DEPTH:
                    raise GateError(f"{self.path}:{line}: must not nest deeper than {MAX_DEPTH} levels")
        except yaml.MarkedYAMLError as error:
            raise self._not_yaml(error) from None
        except (ValueError, OverflowError):  # what PyYAML lets through for "\UFFFFFFFF" and `%YAML 1.111...`
            raise GateError(f"{self.path}:{loader.line + 1}: must be YAML, got a number out of range") from None

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> GateError:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        what = ", ".join(part for part in (error.context, error.problem) if part)
        return GateError(f"{self.path}:{line}: must be YAML, got an error: {what}")

    def _build(self, node: yaml.Node, at: Location) -> Any:
        self.lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(item, (*at, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, at)
        text = str(node.value)
        if getattr(node, "style", None) is not None:  # quoted
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if len(text) <= MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text):
            exact = Decimal(text.replace("_", ""))
            return int(exact) if re.fullmatch(r"[-+]?[0-9_]+", text) else exact
        return text

    def _build_mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise GateError(f"{self.path}:{line}: must have plain words as keys, got a list or mapping as one")
            key = str(key_node.value)
            if not key.isprintable():
                self.errors.append((line, f"{self.path}:{line}: {_key((*at, key))}: must be a plain word; rename it"))
                continue
            if key in mapping:
                again = f"must be given once, got it again (first on line {self.lines[(*at, key)]}); delete one"
                self.errors.append((line, f"{self.path}:{line}: {_key((*at, key))}: {again}"))
                continue
            self.lines[(*at, key)] = line
            mapping[key] = self._build(value_node, (*at, key))
        return mapping

    def locate(self, detail: Any) -> tuple[int, str]:
        """One pydantic error as `file:line: key: must ..., got ...; ...`."""
        location, kind = detail["loc"], detail["type"]
        if kind == "missing" and isinstance(location[-1], str):
            return self.point(location, "must be given", found=False)
        if kind == "extra_forbidden":
            return self.point(location, f"must be a known key{_nearest(location)}", found=False)
        if kind == "literal_error":
            return self.point(location, f"must be {detail['ctx']['expected']}")
        return self.point(location, _MUST.get(kind, detail["msg"]))

    def point(self, location: Location, must: str, found: bool = True) -> tuple[int, str]:
        """A requirement at the line of its key, or of the nearest key around it that the file has."""
        known = next(location[:i] for i in range(len(location), -1, -1) if location[:i] in self.lines)
        line = self.lines[known]
        if not found:
            return line, f"{self.path}:{line}: {_key(location)}: {must}"
        requirement, semicolon, instead = must.partition("; ")
        got = _shown(self._value_at(known))
        return line, f"{self.path}:{line}: {_key(known)}: {requirement}, got {got}{semicolon}{instead}"

    def _value_at(self, location: Location) -> Any:
        value: Any = self.value
        for step in location:
            value = value[step]
        return value


_MUST = {
    "bool_type": "must be true or false",
    "model_type": "must be a mapping of keys and values",
    "model_attributes_type": "must be a mapping of keys and values",
    "dict_type": "must be a mapping of keys and values",
    "tuple_type": "must be a list",
    "missing": "must be two numbers, such as [0.0, 1.0]",
    "too_long": "must be two numbers, such as [0.0, 1.0]",
}


def _key(location: Location) -> str:
    """`targets[1].fpr`, as a person would point at it; a key that is no plain word is quoted."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{_word(step)}" for step in location]
    return "".join(steps).removeprefix(".") or "policy"


def _word(key: str) -> str:
    return key if re.fullmatch(r"[\w-]{1,60}", key) else _shown(key)


def _shown(value: object) -> str:
    """A value as the policy file would write it, short enough for one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case []:
            return "an empty list"
        case list() if any(isinstance(item, list | dict) for item in value[:10]):
            return "a list"
        case list():
            text = f"[{', '.join(map(_shown, value[:10]))}{', ...' if len(value) > 10 else ''}]"
        case _:
            text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(location: Location) -> str:
    """The valid key that a misspelt one probably meant, else all of them."""
    keys = list(_keys_at(location[:-1]))
    close = difflib.get_close_matches(str(location[-1]), keys, n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else f"; known here: {', '.join(keys)}"


def _keys_at(location: Location) -> Iterator[str]:
    words = [step for step in location if isinstance(step, str)]
    place = ".".join(words[-2:])
    model = _MODELS.get(place, _MODELS[words[-1]]) if words else Policy
    yield from model.model_fields


_MODELS: dict[str, type[BaseModel]] = {
    "calibration": Calibration,
    "contract": ContractPoint,
    "targets": Target,
    "max_relative_error": Tolerance,
    "data": Columns,
    "checks": Checks,
    "overlap": Overlap,
    "duplicates": Duplicates,
    "exchangeability": Exchangeability,
    "detection": Detection,
    "detection.targets": DetectionTarget,
    "direction": Direction,
    "granularity": Granularity,
    "floor": Floor,
    "freshness": Freshness,
    "segments": Segments,
    "reuse": Reuse,
    "waivers": Waiver,
}


def schema() -> dict[str, Any]:
    """The JSON Schema of a policy file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema()}
