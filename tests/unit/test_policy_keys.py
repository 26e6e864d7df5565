"""`policies/README.md` names every key of a policy, made from the schema that `gate schema policy` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.checks import parse_policy, policy_schema

README = Path(__file__).parents[2] / "policies" / "README.md"
TABLE = re.compile(r"\| key \| default \| meaning \|\n(?:\|.*\n)+")


def resolved(part: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """A property with what its reference, or the reference among its alternatives, adds."""
    options = [part, *part.get("anyOf", ()), part.get("items", {}), *part.get("items", {}).get("anyOf", ())]
    named = next((option["$ref"] for option in options if "$ref" in option), None)
    return part if named is None else {**known[named.rpartition("/")[2]], **part}


def keys(at: str, model: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, part in model["properties"].items():
        whole = resolved(part, known)
        options = [whole, *whole.get("anyOf", ())]
        inner = next((option for option in options if "properties" in option), None)
        place = f"{at}{name}" + ("[]" if whole.get("type") == "array" and inner else "")
        default = "required" if name in model.get("required", ()) else f"`{shown(whole.get('default'))}`"
        if inner and isinstance(whole.get("default"), dict | list):
            default = "see below" if isinstance(whole["default"], dict) else default
        yield place, default, whole.get("description", "").rstrip(".")
        if inner and "where it differs from the policy's" not in whole.get("description", ""):
            yield from keys(f"{place}.", inner, known)


def shown(value: Any) -> str:
    """A default as YAML would write it."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "the paper's table"
    return "null" if value is None else json.dumps(value).replace('"', "")


def test_every_key_stands_there_with_its_default_and_meaning(request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes the table anew."""
    whole = policy_schema()
    found = list(keys("", whole, whole["$defs"]))
    assert [place for place, _, meaning in found if not meaning] == []
    rows = [f"| `{place}` | {default} | {meaning.replace('|', '/')} |\n" for place, default, meaning in found]
    table = "| key | default | meaning |\n| --- | --- | --- |\n" + "".join(rows)
    text = README.read_text()
    if request.config.getoption("--update-golden"):
        text = TABLE.sub(lambda _: table, text)
        README.write_text(text)
    written = TABLE.search(text)
    assert written is not None
    assert written[0] == table, "policies/README.md differs from the schema; use --update-golden"


def test_the_examples_are_policies() -> None:
    examples = re.findall(r"```yaml\n(version: 1\n.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) >= 2
    for example in examples:
        parse_policy(example, "policies/README.md")
