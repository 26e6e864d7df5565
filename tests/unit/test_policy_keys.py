"""`policies/README.md` names every key of a policy, made from the schema that `gate schema policy` prints, and every
check and plotting position, made from what each says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import evidence

from gate.calibration.positions import NeymanPearson, named
from gate.checks import EVERY, parse_policy, policy_schema
from gate.checks.check import CheckOf
from gate.policy import PLOTTING_POSITIONS

README = Path(__file__).parents[2] / "policies" / "README.md"
KEYS = "| key | default | meaning |\n| --- | --- | --- |\n"
POSITIONS = "| position | what it promises at a threshold |\n| --- | --- |\n"
ASKED = "| check | asks | blocks a release |\n| --- | --- | --- |\n"


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


def write(head: str, rows: list[str], request: pytest.FixtureRequest) -> None:
    """The table of this head has these rows; `--update-golden` writes it anew."""
    table, text = head + "".join(rows), README.read_text()
    part = re.compile(re.escape(head) + r"(?:\|.*\n)*")
    if request.config.getoption("--update-golden"):
        text = part.sub(lambda _: table, text)
        README.write_text(text)
    written = part.search(text)
    assert written is not None
    assert written[0] == table, "a table of policies/README.md has changed; use --update-golden"


def test_every_key_stands_there_with_its_default_and_meaning(request: pytest.FixtureRequest) -> None:
    whole = policy_schema()
    found = list(keys("", whole, whole["$defs"]))
    assert [place for place, _, meaning in found if not meaning] == []
    rows = [f"| `{place}` | {default} | {meaning.replace('|', '/')} |\n" for place, default, meaning in found]
    write(KEYS, rows, request)


def test_every_plotting_position_stands_there_with_its_promise(request: pytest.FixtureRequest) -> None:
    written = {f"`{name}`": named(name).promise for name in PLOTTING_POSITIONS} | {"`{np: C}`": NeymanPearson.promise}
    write(POSITIONS, [f"| {name} | {promise} |\n" for name, promise in written.items()], request)


# --- every check --------------------------------------------------------------------------------------------

LEAST = "version: 1\nname: least\ntargets: [{fpr: 1%, min_n: 9700, max_relative_error: 0.5}]\n"
MOST = f"""\
{LEAST}ranges: [{{from: 10%, to: 1%, min_n: 9700, max_relative_error: 0.5}}]
data: {{segment: language, timestamp: seen}}
checks:
  freshness: {{max_age_days: 30}}
  detection: {{targets: [{{fpr: 1%, min_tpr: 0.8}}], max_drop: 0.02}}
  segments: {{targets: [1%], min_n: 9700, max_relative_error: 0.5}}
reuse: {{max_uses: 20}}
"""


def blocks(check: CheckOf[Any, Any]) -> str:
    """Whether it does so by itself; where a policy must ask for it, by which key."""
    least, most = (
        [asked.required for asked in check.asked(policy, whole)]
        for policy in (parse_policy(text, "policy.yaml").policy for text in (LEAST, MOST))
        for whole in [replace(evidence(policy, malicious_n=1000), calibrated=True)]
    )
    place = ".".join(map(str, check.places[0]))
    if not least and not most and getattr(check.default, "required", False):
        return "yes"
    if least or (most and not all(most)):
        return "yes" if all(least or most) else f"with `{place}.required: true`"
    return f"with `{place}`"


def test_every_check_stands_there_with_what_it_asks_and_whether_it_blocks(request: pytest.FixtureRequest) -> None:
    rows = []
    for check in EVERY:
        others = ", ".join(f"`{name}`" for name in check.names if name != check.key)
        name = f"`{check.key}`" + (f" ({others})" if others else "")
        rows.append(f"| {name} | {check.asks} | {blocks(check)} |\n")
    write(ASKED, rows, request)


def test_the_examples_are_policies() -> None:
    examples = re.findall(r"```yaml\n(version: 1\n.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) >= 2
    for example in examples:
        parse_policy(example, "policies/README.md")
