"""YAML as plain values with a line for every key, and the keys that are set otherwise. It knows no key of a policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import yaml

from gate.errors import GateError
from gate.policy.values import MAX_NUMBER_LENGTH, NUMBER, Location

MAX_DEPTH = 20
SET = 0  # in the place of a line: the value is not the file's, but that of a `--set`
_KEY = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[[0-9]{1,4}\])*", re.ASCII)


class _Events(yaml.composer.Composer, yaml.resolver.Resolver):
    """Compose from events that were read before, because scanning the text takes longer than all else here."""

    def __init__(self, events: list[yaml.Event]) -> None:
        yaml.composer.Composer.__init__(self)
        yaml.resolver.Resolver.__init__(self)
        self._left = events[::-1]

    def check_event(self, *kinds: type[yaml.Event]) -> bool:
        return bool(self._left) and (not kinds or isinstance(self._left[-1], kinds))

    def peek_event(self) -> yaml.Event | None:
        return self._left[-1] if self._left else None

    def get_event(self) -> yaml.Event | None:
        return self._left.pop() if self._left else None


class Tree:
    """YAML as plain values with a line for every key: numbers exact, repeated keys and aliases refused."""

    def __init__(self, text: str, path: str, at: Location = ()) -> None:
        self.path, self.at = path, at
        self.lines: dict[Location, int] = {(): 1}
        self.overrides: dict[Location, str] = {}
        self.errors: list[tuple[int, str]] = []
        events = self._events_without_traps(text)
        try:
            node = _Events(events).get_single_node()
        except yaml.MarkedYAMLError as error:
            raise self._not_yaml(error) from None
        self.is_empty = node is None
        self.value: Any = None if node is None else self._build(node, at)

    def override(self, given: Sequence[str]) -> None:
        """Put the value of each `KEY=VALUE` in the place of that key's; what is wrong with a value names it."""
        for text in given:
            key, value, where = divide(text)
            for other, before in self.overrides.items():
                if _overlap(key, other):
                    raise GateError(f"{where}: must be the only --set of this key, got {before} too; delete one")
            tree = Tree(value, where, key)
            if tree.is_empty:
                raise GateError(f"{where}: must have a value after the =, got nothing; write null to unset a key")
            self.errors += tree.errors
            self._put(key, tree.value, where)
            self.lines = {at: line for at, line in self.lines.items() if at[: len(key)] != key}
            self.lines |= {at: SET for at in tree.lines if at}
            self.overrides[key] = where

    def _put(self, key: Location, value: Any, where: str) -> None:
        holder: Any = self.value
        for i, step in enumerate(key):
            inside = key_name(key[:i])
            if isinstance(step, int) and not isinstance(holder, list):
                raise GateError(f"{where}: {inside}: must be a list, got {as_written(holder)}")
            if isinstance(step, int) and step >= len(holder):
                raise GateError(f"{where}: {inside}: must have an entry [{step}], got {len(holder)}; the first is [0]")
            if isinstance(step, str) and not isinstance(holder, dict):
                raise GateError(f"{where}: {inside}: must be a mapping of keys and values, got {as_written(holder)}")
            self.lines.setdefault(key[: i + 1], SET)
            if i == len(key) - 1:
                holder[step] = value
            elif isinstance(step, str) and isinstance(key[i + 1], str) and holder.get(step) is None:
                holder[step] = {}
            holder = holder.get(step) if isinstance(step, str) else holder[step]

    def _events_without_traps(self, text: str) -> list[yaml.Event]:
        """The events of the text; aliases, which can expand without bound, and deep nesting are refused."""
        events: list[yaml.Event] = []
        depth = 0
        try:
            loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            place = self._place(text.count("\n", 0, error.position) + 1)
            got = f"the character U+{ord(text[error.position]):04X}"
            raise GateError(f"{place}: must be YAML, got {got}; remove it") from None
        try:
            while loader.check_event():
                event = loader.get_event()  # type: ignore[no-untyped-call]
                events.append(event)
                place = self._place(event.start_mark.line + 1)
                if isinstance(event, yaml.AliasEvent):
                    raise GateError(f"{place}: must not use YAML aliases, got *{event.anchor}; write it out")
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if depth > MAX_DEPTH:
                    raise GateError(f"{place}: must not nest deeper than {MAX_DEPTH} levels")
        except yaml.MarkedYAMLError as error:
            raise self._not_yaml(error) from None
        except (ValueError, OverflowError):  # PyYAML raises these for "\UFFFFFFFF" and `%YAML 1.111...`
            raise GateError(f"{self._place(loader.line + 1)}: must be YAML, got a number out of range") from None
        return events

    def _place(self, line: int) -> str:
        """The file and its line; of a value of its own, what gave it."""
        return self.path if self.at else f"{self.path}:{line}"

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> GateError:
        mark = error.problem_mark or error.context_mark
        place = self._place(mark.line + 1 if mark else 1)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        return GateError(f"{place}: must be YAML, got an error: {what}")

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
        if len(text) <= MAX_NUMBER_LENGTH and NUMBER.fullmatch(text):
            exact = Decimal(text.replace("_", ""))
            return int(exact) if re.fullmatch(r"[-+]?[0-9_]+", text) else exact
        return text

    def _build_mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            place = self._place(line)
            if not isinstance(key_node, yaml.ScalarNode):
                raise GateError(f"{place}: must have plain words as keys, got a list or mapping as one")
            key = str(key_node.value)
            if not key.isprintable():
                self.errors.append((line, f"{place}: {key_name((*at, key))}: must be a plain word; rename it"))
                continue
            if key in mapping:
                again = f"must be given once, got it again (first on line {self.lines[(*at, key)]}); delete one"
                self.errors.append((line, f"{place}: {key_name((*at, key))}: {again}"))
                continue
            self.lines[(*at, key)] = line
            mapping[key] = self._build(value_node, (*at, key))
        return mapping

    def point(self, location: Location, must: str, found: bool = True) -> tuple[int, str]:
        """A requirement at the line of its key, or of the nearest key around it that the file has."""
        known = next(location[:i] for i in range(len(location), -1, -1) if location[:i] in self.lines)
        line = self.lines[known]
        place = self._place(line) if line != SET else self._override_of(known)
        if not found:
            return line, f"{place}: {key_name(location)}: {must}"
        requirement, semicolon, instead = must.partition("; ")
        got = as_written(self._value_at(known))
        return line, f"{place}: {key_name(known)}: {requirement}, got {got}{semicolon}{instead}"

    def _override_of(self, known: Location) -> str:
        """The `--set` that gave this value, or a value inside it."""
        return next(where for key, where in self.overrides.items() if _overlap(key, known))

    def _value_at(self, location: Location) -> Any:
        value: Any = self.value
        for step in location:
            value = value[step]
        return value


def _overlap(one: Location, other: Location) -> bool:
    """Whether one key is the other, or lies inside it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def divide(text: str) -> tuple[Location, str, str]:
    """The key and the value of a `KEY=VALUE`, and how a message names it."""
    name, equals, value = text.partition("=")
    where = f"--set {text if len(text) <= 60 else text[:57] + '...'}"
    if not text.isprintable():
        raise GateError(f"--set {text[:60]!r}: must be one line of printable characters")
    if not equals or not _KEY.fullmatch(name):
        raise GateError(f"{where}: must be KEY=VALUE with a key of the policy, such as data.label=is_fraud")
    steps = re.findall(r"[\w-]+", name)
    return tuple(int(step) if step.isdigit() else step for step in steps), value, where


class _Writer(yaml.SafeDumper):
    """Numbers as they were written, and no aliases, which a policy may not have."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def number(self, value: Decimal) -> yaml.ScalarNode:
        text = f"{value:f}"
        if len(text) > MAX_NUMBER_LENGTH:
            return self.text(str(value))
        return self.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in text else 'int'}", text)

    def text(self, value: str) -> yaml.ScalarNode:
        quoted = "'" if NUMBER.fullmatch(value) else None  # `Tree` may read as a number what YAML 1.1 reads as text
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=quoted)


_Writer.add_representer(Decimal, _Writer.number)
_Writer.add_representer(str, _Writer.text)


def write_yaml(value: Any) -> str:
    """YAML for plain values; `Tree` reads it back as the same values."""
    return str(yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100))


def write_flow(value: Any) -> str:
    """The same in one line, as a `--set` takes it."""
    text = yaml.dump(value, Dumper=_Writer, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return str(text).removesuffix("...\n").strip()


def key_name(location: Location) -> str:
    """`targets[1].fpr`, as a person would point at it; a key that is no plain word is quoted."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{_word(step)}" for step in location]
    return "".join(steps).removeprefix(".") or "policy"


def _word(key: str) -> str:
    return key if re.fullmatch(r"[\w-]{1,60}", key) else as_written(key)


def as_written(value: object) -> str:
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
            text = f"[{', '.join(map(as_written, value[:10]))}{', ...' if len(value) > 10 else ''}]"
        case _:
            text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
