"""The policy: from YAML text to frozen values, or to every error at once with its file, line and key."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
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
MAX_NUMBER_LENGTH = 40  # longer digits are no rate or count, and big exponents would cost memory to expand

Location = tuple[str | int, ...]


# --- values -------------------------------------------------------------------------------------------------


def _decimal(value: object) -> Decimal:
    """An exact decimal from `0.001`, `1e-3` or `0.1%`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise PydanticCustomError("rate", "must be a number such as 0.001, 1e-3 or 0.1%")
    text = str(value).strip()
    number = text.removesuffix("%")
    if len(text) > MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(number):
        raise PydanticCustomError("rate", "must be a number such as 0.001, 1e-3 or 0.1%")
    exact = Decimal(number.replace("_", ""))
    if exact and not -40 < exact.adjusted() < 40:
        raise PydanticCustomError("rate", "must be a number of ordinary size")
    return exact / 100 if text.endswith("%") else exact


def _count(value: object) -> int:
    """A whole number, also when written `1e6` or `98_000`."""
    try:
        exact = _decimal(value)
    except PydanticCustomError:
        exact = Decimal("0.5")
    if isinstance(value, str) or exact != exact.to_integral_value():
        raise PydanticCustomError("count", "must be a whole number such as 98000")
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


def _date(value: object) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        raise PydanticCustomError("date", "must be a date written as 2026-12-31") from None


_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_RATE_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^({_NUMBER.pattern})%?$"}]}

Rate = Annotated[Decimal, BeforeValidator(_decimal), WithJsonSchema(_RATE_SCHEMA)]
Count = Annotated[int, BeforeValidator(_count), WithJsonSchema({"type": "integer", "minimum": 1})]
Number = Annotated[float, BeforeValidator(_float), WithJsonSchema(_RATE_SCHEMA)]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Day = Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
Flag = Annotated[bool, Field(strict=True)]


def fpr_check(fpr: Decimal) -> str:
    """The name of the check at one target, the same however its rate was written: `fpr@0.0001`."""
    return f"fpr@{fpr.normalize():f}"


# --- models -------------------------------------------------------------------------------------------------


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tolerance(_Frozen):
    """The band around a target, as relative errors; `below: 1` or more means that only excess counts."""

    above: Rate
    below: Rate

    @field_validator("above", "below")
    @classmethod
    def _positive(cls, value: Decimal) -> Decimal:
        if not 0 < value <= 1000:
            raise PydanticCustomError("tolerance", "must be above 0, such as 0.5 for plus or minus 50 %")
        return value

    @model_validator(mode="before")
    @classmethod
    def _symmetric(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping) else {"above": value, "below": value}

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


class ContractPoint(_Frozen):
    fpr: Rate
    score: Rate


class Calibration(_Frozen):
    """How the release's calibrator is fitted."""

    knots: Count = Field(default=10_000, description="size of the stored curve")
    plotting_position: Literal["filliben", "mean"] = "filliben"
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

    score: Text = "score"
    label: Text | None = Field(default=None, description="null: every row is benign")
    benign: Label = Field(default="0", description="the value in the label column that marks a benign row")


class Waiver(_Frozen):
    """A finding that is known, owned and accepted until a date."""

    check: Text = Field(description="the check waived, as reports name it, such as fpr@0.0001")
    reason: Text
    owner: Text
    expires: Day = Field(description="the last day on which it waives")

    @field_validator("check")
    @classmethod
    def _canonical(cls, value: str) -> str:
        kind, at, rest = value.partition("@")
        rate, slash, segment = rest.partition("/")
        if kind == "fpr" and at and (_NUMBER.fullmatch(rate.removesuffix("%"))):
            return fpr_check(_decimal(rate)) + slash + segment
        return value


class Policy(_Frozen):
    """What a release must show before it may be deployed."""

    version: Literal[1]
    name: Text
    rule: Literal["proven", "observed", "not-refuted"] = "proven"
    confidence: Rate = Decimal("0.95")
    calibration: Calibration = Calibration()
    contract: tuple[ContractPoint, ...] = Field(
        default=tuple(ContractPoint(fpr=a.fpr, score=a.score) for a in PAPER_ANCHORS),
        description="FPR strictly falls, score strictly rises; 1 <-> 0 and 1e-10 <-> 0.99 are implied",
    )
    targets: tuple[Target, ...]
    data: Columns = Columns()
    checks: dict[str, object] = Field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    @field_validator("confidence")
    @classmethod
    def _confidence_inside(cls, value: Decimal) -> Decimal:
        if not Decimal("0.5") <= value < 1:
            raise PydanticCustomError("confidence", "must be at least 0.5 and below 1, such as 0.95")
        return value

    @field_validator("checks")
    @classmethod
    def _known_checks(cls, value: dict[str, object]) -> dict[str, object]:
        if value:
            raise PydanticCustomError("checks", "must be empty: this version judges the targets only")
        return value

    @model_validator(mode="after")
    def _coherent(self) -> Policy:
        previous = FLAG_ALL
        for i, point in enumerate(self.contract):
            if not LOWEST.fpr < point.fpr < previous.fpr:
                raise _at(("contract", i, "fpr"), "must fall strictly from below 1 to above 1e-10")
            if not previous.score < point.score < LOWEST.score:
                raise _at(("contract", i, "score"), "must rise strictly from above 0 to below 0.99")
            previous = Anchor(point.fpr, point.score)
        if not self.targets:
            raise _at(("targets",), "must list at least one target: nothing measured is never a pass")
        anchors = [point.fpr for point in self.contract]
        for i, target in enumerate(self.targets):
            if target.fpr not in anchors:
                known = ", ".join(f"{fpr.normalize():f}" for fpr in anchors)
                raise _at(("targets", i, "fpr"), f"must be an anchor of the contract ({known})")
            if target.fpr in [earlier.fpr for earlier in self.targets[:i]]:
                raise _at(("targets", i, "fpr"), "must differ from every other target's")
        return self

    @cached_property
    def anchors(self) -> Contract:
        return Contract(tuple(Anchor(point.fpr, point.score) for point in self.contract))


def _at(location: Location, must: str) -> PydanticCustomError:
    """An error of the whole policy that belongs to one of its keys."""
    return PydanticCustomError("coherence", "{must}", {"must": must, "location": location})


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

    def with_columns(self, given: Mapping[str, str | None]) -> Document:
        """The same document with the columns that the command line names instead of the policy's."""
        named = {key: value for key, value in given.items() if value is not None}
        try:
            columns = Columns.model_validate({**self.policy.data.model_dump(), **named})
        except ValidationError as error:
            raise GateError(
                *(f"data.{_key(e['loc'])}: {e['msg']}, got {_shown(e['input'])}" for e in error.errors())
            ) from None
        return replace(self, policy=self.policy.model_copy(update={"data": columns}))


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
    except OSError as error:
        raise GateError(f"{path}: must be a readable policy file, got {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise GateError(f"{path}: must be a policy of at most {MAX_BYTES:,} bytes; is this a score file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GateError(f"{path}: must be UTF-8 text, got byte 0x{raw[error.start]:02x}; save it as UTF-8") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Document:
    """Turn YAML text into a policy; `path` only names it in messages."""
    tree = _Tree(text, path)
    errors = list(tree.errors)
    if not isinstance(tree.value, dict):
        errors.append((1, f"{path}:1: must be a mapping that starts with `version: 1`"))
    else:
        try:
            policy = Policy.model_validate(tree.value)
        except ValidationError as error:
            errors += [tree.locate(detail) for detail in error.errors()]
    if errors:
        raise GateError(*(line for _, line in sorted(set(errors))))
    return Document(policy, text, path, tree.lines)


class _Tree:
    """YAML as plain values with a line for every key: numbers exact, repeated keys and aliases refused."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.lines: dict[Location, int] = {(): 1}
        self.errors: list[tuple[int, str]] = []
        try:
            self._refuse_traps(text)
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise GateError(f"{path}:{line}: must be YAML, got an error: {error.problem or error.context}") from None
        except yaml.YAMLError as error:
            raise GateError(f"{path}: must be YAML, got an error: {str(error).splitlines()[0]}") from None
        self.value = None if node is None else self._build(node, ())

    def _refuse_traps(self, text: str) -> None:
        """Aliases can expand without bound and deep nesting can exhaust the stack: stop before composing."""
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                raise GateError(f"{self.path}:{line}: must not use YAML aliases, got *{event.anchor}; write it out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise GateError(f"{self.path}:{line}: must not nest deeper than {MAX_DEPTH} levels")

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
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        if len(text) <= MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text):
            exact = Decimal(text.replace("_", ""))
            return int(exact) if re.fullmatch(r"[-+]?[\d_]+", text) else exact
        return text

    def _build_mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise GateError(f"{self.path}:{line}: must have plain words as keys, got a list or mapping as one")
            key = str(key_node.value)
            if key in mapping:
                again = f"must be given once, got it again (first on line {self.lines[(*at, key)]}); delete one"
                self.errors.append((line, f"{self.path}:{line}: {_key((*at, key))}: {again}"))
                continue
            self.lines[(*at, key)] = line
            mapping[key] = self._build(value_node, (*at, key))
        return mapping

    def locate(self, detail: Any) -> tuple[int, str]:
        """One pydantic error as `file:line: key: must ..., got ...; ...`."""
        context = detail.get("ctx", {})
        location: Location = context.get("location", detail["loc"])
        known = next(location[:i] for i in range(len(location), -1, -1) if location[:i] in self.lines)
        line = self.lines[known]
        key, got = _key(known), _shown(self._value_at(known))
        must = _MUST.get(detail["type"])
        if detail["type"] == "missing":
            return line, f"{self.path}:{line}: {_key(location)}: must be given"
        if detail["type"] == "extra_forbidden":
            return line, f"{self.path}:{line}: {key}: must be a known key{_nearest(location)}"
        if detail["type"] == "literal_error":
            must = f"must be {context['expected']}"
        must = must or str(context.get("must", detail["msg"]))
        requirement, semicolon, instead = must.partition("; ")
        return line, f"{self.path}:{line}: {key}: {requirement}, got {got}{semicolon}{instead}"

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
    "too_long": "must be two numbers, such as [0.0, 1.0]",
}


def _key(location: Location) -> str:
    """`targets[1].fpr`, as a person would point at it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".") or "policy"


def _shown(value: object) -> str:
    """A value as the policy file would write it, short enough for one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list" if value else "an empty list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(location: Location) -> str:
    """The valid key that a misspelt one probably meant, else all of them."""
    keys = list(_keys_at(location[:-1]))
    close = difflib.get_close_matches(str(location[-1]), keys, n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else f"; known here: {', '.join(keys)}"


def _keys_at(location: Location) -> Iterator[str]:
    model: type[BaseModel] = Policy
    for step in location:
        if isinstance(step, str):
            model = _MODELS[step]
    yield from model.model_fields


_MODELS: dict[str, type[BaseModel]] = {
    "calibration": Calibration,
    "contract": ContractPoint,
    "targets": Target,
    "max_relative_error": Tolerance,
    "data": Columns,
    "waivers": Waiver,
}


def schema() -> dict[str, Any]:
    """The JSON Schema of a policy file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema()}
