"""A document: YAML text becomes a policy with its text, or every error at once by file, line and key. No judgement."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from gate.errors import GateError
from gate.policy.coherence import NO_GROUPS, incoherences
from gate.policy.detectors import alone
from gate.policy.model import Policy
from gate.policy.values import Location
from gate.policy.yaml_tree import SET, Tree, as_written, divide, write_flow, write_yaml
from gate.storage import read_regular

MAX_BYTES = 200_000
BUILT_IN, BUILT_IN_PATH = "built-in", "built-in default"  # instead of a path: as asked for, and as recorded
OWN = Path("policies/release.yaml")  # where `gate init` puts a repository's policy, and `gate run` finds it


@dataclass(frozen=True)
class Document:
    """A policy with the text and the overrides it came from, so that a record can carry them.

    lines       where the text has its keys, so that a message can point into it
    overrides   each `KEY=VALUE` of `--set`, as given: the policy is the text with these values instead
    """

    policy: Policy
    text: str
    path: str
    lines: Mapping[Location, int] = field(repr=False)
    overrides: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return digest_of(self.text, self.overrides)

    def override(self, given: Sequence[str]) -> Document:
        """The document with other values for some keys; they win over those that it was made with."""
        if not given:
            return self
        new = [divide(text)[0] for text in given]
        older = [(text, divide(text)[0]) for text in self.overrides]
        kept = [text for text, key in older if not any(key[: len(one)] == one for one in new)]
        return parse(self.text, self.path, type(self.policy), (*kept, *given))

    def detector(self, name: str) -> Document:
        """The document of one of several detectors, written out; its path is the whole path and its own name."""
        single, path = self.policy.detector(name), f"{self.path}#{name}"
        content = alone(_tree(self.text, self.path, self.overrides).value, name)
        before = self._without_overrides(name)
        if before is None or before.keys() - content.keys():
            before = content
        given = [f"{key}={write_flow(value)}" for key, value in content.items() if before.get(key, ...) != value]
        return replace(parse(write_yaml(before), path, type(single), given), policy=single)

    def _without_overrides(self, name: str) -> dict[str, Any] | None:
        """What the file alone says of a detector, and `load` therefore gives for its path; None if it says nothing."""
        if not self.overrides:
            return None
        try:
            plain = parse(self.text, self.path, type(self.policy))
        except GateError:
            return None
        if name not in [detector.name for detector in plain.policy.detectors]:
            return None
        return alone(_tree(self.text, self.path).value, name)

    @cached_property
    def detectors(self) -> dict[str, Document]:
        """Each detector's own document, by name and in order."""
        return {detector.name: self.detector(detector.name) for detector in self.policy.detectors}

    def require_columns(self) -> None:
        """Raise unless every check asked for has its columns, from the policy or the command line."""
        if self.policy.interval == "sequential" and self.policy.data.group is not None:
            line = self.lines.get(("interval",), 1)
            raise GateError(
                f"{self.path}:{line}: interval: {NO_GROUPS}, got sequential with data.group {self.policy.data.group!r}"
            )
        if self.policy.detectors and self.policy.data.count is not None:
            line = self.lines.get(("data", "count"), self.lines.get(("detectors",), 1))
            raise GateError(
                f"{self.path}:{line}: data.count: must be null beside `detectors`: only single rows can be joined, got "
                f"{self.policy.data.count!r}; write the rows out"
            )
        for check, settings in vars(self.policy.checks).items():
            column = getattr(settings, "column", None)
            if column is not None and getattr(self.policy.data, column) is None:
                line = self.lines.get(("checks", check), 1)
                raise GateError(
                    f"{self.path}:{line}: checks.{check}: must have data.{column} name a column, got null; "
                    f"write `data: {{{column}: NAME}}` or give --set data.{column}=NAME"
                )


_HERE = Path(__file__).parent
# The wheel carries the default in this package; a source checkout has the same file in `policies/`.
_DEFAULTS = (_HERE / "default.yaml", _HERE.parents[1] / "policies" / "default.yaml")


def load_default(model: type[Policy] = Policy) -> Document:
    """The policy used where none is named."""
    path = next(path for path in _DEFAULTS if path.exists())
    return parse(path.read_text(encoding="utf-8"), BUILT_IN_PATH, model)


def find(name: str | None, overrides: Sequence[str] = (), model: type[Policy] = Policy) -> Document:
    """The policy that is named by a path or `built-in`; else the repository's own if it has one, or the default.

    `name` and `overrides` are what the command line says: nothing, or where the policy is, and which keys are other.
    """
    if name is None and OWN.exists():
        return load(OWN, overrides, model)
    return load_default(model).override(overrides) if name in (None, BUILT_IN) else load(name, overrides, model)


def load(path: str | Path, overrides: Sequence[str] = (), model: type[Policy] = Policy) -> Document:
    """Read a policy file, or raise with every error in it; `FILE#NAME` names the policy of one detector.

    `overrides` are `KEY=VALUE` each: values in the place of the file's.
    """
    whole, sign, name = str(path).rpartition("#")
    if sign and not Path(path).exists() and Path(whole).exists():
        document = load(whole, (), model)
        known = [detector.name for detector in document.policy.detectors]
        if name not in known:
            raise GateError(f"{path}: must name a detector of {whole} ({', '.join(known) or 'which has none'})")
        return document.detector(name).override(overrides)
    try:
        raw = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        cure = "check the name, or write one with `gate init`"
        raise GateError(f"{path}: must be a readable policy file, got: {reason}; {cure}") from None
    if len(raw) > MAX_BYTES:
        raise GateError(f"{path}: must be a policy of at most {MAX_BYTES:,} bytes, got more; is this a score file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise GateError(f"{path}:{line}: must be UTF-8 text, got byte 0x{byte:02x}; save it as UTF-8") from None
    return parse(text, str(path), model, overrides)


def parse(text: str, path: str, model: type[Policy] = Policy, overrides: Sequence[str] = ()) -> Document:
    """Turn YAML text into a policy of this model, which knows the checks; `path` only names it in messages."""
    tree = _tree(text, path, overrides)
    errors = list(tree.errors)
    try:
        policy = model.model_validate(tree.value)
    except ValidationError as error:
        details = _without_misspelt([detail for detail in error.errors() if detail["type"] != "coherence"], model)
        errors += [_locate(tree, detail, model) for detail in details]
        refused = {detail["loc"] for detail in details}
        for location, must in incoherences(tree.value, model.families):
            if location not in refused:
                errors.append(tree.point(location, must))
    if errors:
        raise GateError(*(line for _, line in sorted(set(errors))))
    lines = {at: line for at, line in tree.lines.items() if line != SET}
    return Document(policy, text, path, lines, tuple(overrides))


def _tree(text: str, path: str, overrides: Sequence[str] = ()) -> Tree:
    tree = Tree(text, path)
    if not isinstance(tree.value, dict):
        raise GateError(f"{path}:1: must be a mapping that starts with `version: 1`, got {as_written(tree.value)}")
    tree.override(overrides)
    return tree


def digest_of(text: str, overrides: Sequence[str]) -> str:
    """The SHA-256 of a policy: that of its text, or, where keys have other values, that of both in any order."""
    whole = json.dumps([text, sorted(overrides)]) if overrides else text
    return hashlib.sha256(whole.encode()).hexdigest()


def _without_misspelt(details: list[Any], model: type[Policy]) -> list[Any]:
    """The errors without the keys that are missing because they are misspelt; the misspelt keys have their own."""
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    meant = {(*location[:-1], key) for location in unknown for key in _meant(_keys(model, location), location)}
    return [detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant]


def _locate(tree: Tree, detail: Any, model: type[Policy]) -> tuple[int, str]:
    """One pydantic error as `file:line: key: must ..., got ...; ...`."""
    location, kind = detail["loc"], detail["type"]
    if kind == "missing" and isinstance(location[-1], str):
        return tree.point(location, "must be given", found=False)
    if kind == "extra_forbidden":
        return tree.point(location, f"must be a known key{_nearest(model, location)}", found=False)
    if kind == "literal_error":
        return tree.point(location, f"must be {detail['ctx']['expected']}")
    return tree.point(location, _MUST.get(kind, detail["msg"]))


_MUST = {
    "bool_type": "must be true or false",
    "model_type": "must be a mapping of keys and values",
    "model_attributes_type": "must be a mapping of keys and values",
    "dict_type": "must be a mapping of keys and values",
    "tuple_type": "must be a list",
    "missing": "must be two numbers, such as [0.0, 1.0]",
    "too_long": "must be two numbers, such as [0.0, 1.0]",
}


def _nearest(model: type[BaseModel], location: Location) -> str:
    """The valid key that a misspelt one probably meant, else all of them."""
    keys = _keys(model, location)
    close = _meant(keys, location)
    return f"; did you mean `{close[0]}`?" if close else f"; known here: {', '.join(keys)}"


def _keys(model: type[BaseModel], location: Location) -> list[str]:
    """The keys that are known in the mapping that holds this one."""
    for step in location[:-1]:
        if isinstance(step, str):
            model = _model_in(model.model_fields[step].annotation)
    return [field.alias or name for name, field in model.model_fields.items()]


def _meant(keys: list[str], location: Location) -> list[str]:
    return difflib.get_close_matches(str(location[-1]), keys, n=1, cutoff=0.6)


def _model_in(annotation: Any) -> type[BaseModel]:
    """The model in an annotation: of a field, of the entries of a list, or of a value that may be null."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(_model_in(part) for part in get_args(annotation) if part is not type(None) and part is not Ellipsis)


def schema(model: type[Policy] = Policy) -> dict[str, Any]:
    """The JSON Schema of a policy file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
