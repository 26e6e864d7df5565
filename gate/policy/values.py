"""The values of a policy: exact rates, counts, days and words, each read from YAML or refused with what it must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError

from gate.names import NUMBER as UNSIGNED
from gate.names import exact_number
from gate.words import in_digits

LEAST_SHARE = Decimal("1e-9")  # of the rows that a split puts on one side
MAX_NUMBER_LENGTH = 28  # the digits that decimal arithmetic keeps exactly

# The positions that a policy may name, and their classes; `{np: C}` takes a number and is written in its own way.
PLOTTING_POSITIONS = {
    "filliben": "gate.calibration.positions:Filliben",
    "mean": "gate.calibration.positions:Mean",
    "median": "gate.calibration.positions:Median",
    "conformal": "gate.calibration.positions:Conformal",
}

Location = tuple[str | int, ...]


def exact_decimal(value: object, kind: str = "a number such as 0.001, 1e-3 or 0.1%") -> Decimal:
    """An exact decimal from `0.001`, `1e-3` or `0.1%`."""
    text = str(value).strip()
    number = text.removesuffix("%")
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal) or not NUMBER.fullmatch(number):
        raise PydanticCustomError("number", f"must be {kind}")
    if len(text) > MAX_NUMBER_LENGTH:
        raise PydanticCustomError("number", f"must be written in at most {MAX_NUMBER_LENGTH} characters")
    exact = exact_number(text)
    if exact is None:
        raise PydanticCustomError("number", "must be a number of ordinary size")
    return exact


def _count(value: object) -> int:
    """A whole number, also when written `1e6` or `98_000`."""
    kind = "a whole number such as 98000"
    exact = exact_decimal(value, kind)
    if exact != exact.to_integral_value() or str(value).strip().endswith("%"):
        raise PydanticCustomError("number", f"must be {kind}")
    return int(exact)


def _float(value: object) -> float:
    return float(exact_decimal(value))


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


def _label_column(value: object) -> str | bool | None:
    """The name of a column, nothing, or false: whoever wrote the policy says that there are no labels."""
    if value is None or value is False:
        return value
    if value is True:
        raise PydanticCustomError("label", "must be the name of a column, null, or false where there are no labels")
    return _text(value)


def _share(value: object) -> Decimal:
    share = exact_decimal(value, "a share of the rows such as 50% or 0.3")
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE:
        raise PydanticCustomError("share", "must be above 0 and below 1, such as 50%")
    return share


def _labels(value: object) -> tuple[str, ...]:
    """One label, or a list of labels that all mean the same."""
    try:
        labels = tuple(map(_label, value)) if isinstance(value, list | tuple) else (_label(value),)
    except PydanticCustomError:
        raise PydanticCustomError("label", _LABELS) from None
    if not labels or len({*labels}) < len(labels):
        raise PydanticCustomError("label", _LABELS)
    return labels


def _paths(value: object) -> tuple[str, ...]:
    """One file, directory, pattern or URI, or a list of those."""
    paths = tuple(value) if isinstance(value, list | tuple) else (value,)
    texts = [path for path in paths if isinstance(path, str) and 0 < len(path.strip()) <= 4096 and path.isprintable()]
    if not paths or len(texts) < len(paths) or "-" in texts:
        raise PydanticCustomError("paths", "must be the name of a file, directory, pattern or URI, or a list of those")
    return tuple(texts)


_LABELS = "must be a number or a word of the label column, or a list of those"


def _countable(value: int) -> int:
    if not 1 <= value <= 10**12:
        raise PydanticCustomError("min_n", "must be from 1 to 10^12")
    return value


def _date(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        day = date.fromisoformat(str(value))  # it also reads 20261231 and 2026-W53-4, which nobody means to write
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
        confidence = exact_decimal(value["np"])
        if Decimal("0.5") <= confidence < 1:
            return f"np {in_digits(confidence)}"
        raise PydanticCustomError("position", "must be {np: C} with C at least 0.5 and below 1")
    names = ", ".join(PLOTTING_POSITIONS)
    raise PydanticCustomError("position", f"must be one of {names}, or {{np: 0.95}}")


ANCHOR_DIGITS = 12  # two rates that differ in these differ as floats too, and so do their logarithms

NUMBER = re.compile(rf"[-+]?{UNSIGNED}")
RATE_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^({NUMBER.pattern})%?$"}]}
_NP_SCHEMA = {
    "type": "object",
    "properties": {"np": {**RATE_SCHEMA, "description": "how surely each threshold's rate is at most its target"}},
    "required": ["np"],
    "additionalProperties": False,
}


class _PositionSchema:
    """The names that exist at the time when the schema is made."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"enum": [*PLOTTING_POSITIONS]}, _NP_SCHEMA]}


_COUNT_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^({NUMBER.pattern})$"}]}

_LABEL_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_LABELS_SCHEMA = {
    "anyOf": [_LABEL_SCHEMA, {"type": "array", "items": _LABEL_SCHEMA, "minItems": 1, "uniqueItems": True}]
}
_PATHS_SCHEMA = {
    "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}

PolicyRate = Annotated[Decimal, BeforeValidator(exact_decimal), WithJsonSchema(RATE_SCHEMA)]
PolicyCount = Annotated[int, BeforeValidator(_count), WithJsonSchema(_COUNT_SCHEMA)]
MinRows = Annotated[PolicyCount, AfterValidator(_countable)]
PolicyNumber = Annotated[float, BeforeValidator(_float), WithJsonSchema(RATE_SCHEMA)]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema(_LABEL_SCHEMA)]
LabelColumn = Annotated[
    str | Literal[False] | None,
    BeforeValidator(_label_column),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"const": False}, {"type": "null"}]}),
]
Share = Annotated[Decimal, BeforeValidator(_share), WithJsonSchema(RATE_SCHEMA)]
PolicyLabels = Annotated[tuple[str, ...], BeforeValidator(_labels), WithJsonSchema(_LABELS_SCHEMA)]
Paths = Annotated[tuple[str, ...], BeforeValidator(_paths), WithJsonSchema(_PATHS_SCHEMA)]
Day = Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
PlottingPosition = Annotated[str, BeforeValidator(_plotting_position), _PositionSchema()]
Flag = Annotated[bool, Field(strict=True)]


def rate(text: str) -> Decimal | None:
    """The exact rate that `0.001`, `1e-3` or `0.1%` names, None for any other text."""
    try:
        return exact_decimal(text)
    except PydanticCustomError:
        return None


def distinguishable(value: Decimal) -> Decimal:
    """A rate of the contract, or the end of a range of it."""
    if len(value.normalize().as_tuple().digits) > ANCHOR_DIGITS:
        raise PydanticCustomError("anchor", f"must have at most {ANCHOR_DIGITS} significant digits")
    return value


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
