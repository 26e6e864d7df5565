"""The name of a check: one value for every way of writing it, printed in percent, and read back as it was."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gate.checks import CHECKS, owner
from gate.names import BY_SCORE, CheckName, Name, in_percent, parse_name

kinds = st.from_regex(r"[a-z]{1,12}(-[a-z]{1,8}){0,2}", fullmatch=True)
rates = st.builds(
    lambda digits, places: Decimal(digits).scaleb(-places), st.integers(1, 10**12), st.integers(0, 24)
).filter(lambda rate: rate <= 1)
segments = st.text(min_size=1, max_size=40)
detectors = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


@st.composite
def names(draw: st.DrawFn) -> CheckName:
    """Every form: with a rate, a range, a segment, a detector, or none of them."""
    rate = draw(st.none() | rates)
    return CheckName(
        draw(kinds | st.sampled_from([*BY_SCORE, "fpr", "tpr", "tpr-drop", "granularity"])),
        rate,
        None if rate is None else draw(st.none() | rates),
        draw(st.none() | segments),
        draw(st.none() | detectors),
    )


@given(names())
def test_a_name_reads_back_as_it_was_printed(name: CheckName) -> None:
    again = parse_name(str(name))
    assert again == name
    assert hash(again) == hash(name)
    assert str(again) == str(name)


@given(rates, st.booleans())
def test_a_rate_is_the_same_in_whatever_form_it_is_written(rate: Decimal, scored: bool) -> None:
    """`fpr@0.001`, `fpr@1e-3`, `fpr@0.1%` and `fpr@0.10%` are one check; so are scores, which have no percent."""
    kind = BY_SCORE[0] if scored else "fpr"
    forms = [f"{rate:f}", f"{rate:e}", f"{rate * 100:f}%", f"{rate * 100:e}%", f"{rate:f}".rstrip("0").rstrip(".")]
    found = {parse_name(f"{kind}@{form}") for form in forms if len(form) < 60}
    assert found == {CheckName(kind, rate)}
    [name] = found
    assert str(name).endswith("%") == (not scored)


@given(rates)
def test_percents_are_exact_plain_numbers(rate: Decimal) -> None:
    shown = in_percent(rate)
    assert re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?%", shown)
    assert Decimal(shown.removesuffix("%")) == rate * 100


@pytest.mark.parametrize(
    ("text", "name", "family"),
    [
        ("fpr@10%", CheckName("fpr", Decimal("0.1")), "fpr"),
        ("fpr@0.01%", CheckName("fpr", Decimal("0.0001")), "fpr"),
        ("tpr@0.1%", CheckName("tpr", Decimal("0.001")), "tpr"),
        ("tpr-drop@1%", CheckName("tpr-drop", Decimal("0.01")), "tpr-drop"),
        ("granularity@1%", CheckName("granularity", Decimal("0.01")), "granularity"),
        ("fpr@10%..0.1%", CheckName("fpr", Decimal("0.1"), Decimal("0.001")), "ranges"),
        ("fpr@1%/language=de", CheckName("fpr", Decimal("0.01"), segment="language=de"), "segments"),
        ("fpr@1%/path=a/b@c", CheckName("fpr", Decimal("0.01"), segment="path=a/b@c"), "segments"),
        ("segment/language=de", CheckName("segment", segment="language=de"), "segments"),
        ("injection:fpr@1%", CheckName("fpr", Decimal("0.01"), detector="injection"), "fpr"),
        ("injection:overlap", CheckName("overlap", detector="injection"), "overlap"),
        ("system@0.5", CheckName("system", Decimal("0.5")), "system"),
        ("overlap", CheckName("overlap"), "overlap"),
        ("segments", CheckName("segments"), "segments"),
    ],
)
def test_each_form_is_read_into_its_parts_and_has_a_family(text: str, name: CheckName, family: str) -> None:
    assert parse_name(text) == name
    assert str(name) == text
    assert name.family == family


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "fpr@", "@1%", "fpr@%", "fpr@.", "fpr@e5", "fpr@x", "fpr@-1%", "fpr@+1%", "fpr@1,5%", "fpr@0x1"),
        *("fpr@0", "fpr@0%", "fpr@101%", "fpr@1.5", "fpr@1e-999", "fpr@1e999", "fpr@nan", "fpr@inf", "fpr@01%"),
        *("Fpr@1%", "fpr 1%", "fpr@1%/", "fpr@1%..", "fpr@1%..0", "fpr@1%..x", "fpr@1%..1%..1%", "-fpr", "fpr-"),
        *("a b:fpr@1%", ":fpr@1%", "x" * 65 + ":fpr", "fpr@1%\n", "\nfpr@1%", "fpr@1٪", "fpr@١%"),
    ],
)
def test_what_is_no_name_is_none(text: str) -> None:
    assert parse_name(text) is None


@given(st.text())
def test_any_text_is_a_name_that_reads_back_or_none(text: str) -> None:
    name = parse_name(text)
    assert name is None or parse_name(str(name)) == name


class Holder(BaseModel):
    check: Name


@given(names())
def test_a_record_keeps_a_name_as_text(name: CheckName) -> None:
    holder = Holder(check=name)
    assert holder.model_dump(mode="json") == {"check": str(name)}
    assert Holder.model_validate_json(holder.model_dump_json()) == holder


@pytest.mark.parametrize("value", [None, 7, "", "Fpr", ["fpr@1%"]])
def test_a_record_holds_no_other_name(value: object) -> None:
    with pytest.raises(ValidationError, match="must be the name of a check"):
        Holder.model_validate({"check": value})


def test_every_family_has_one_check_that_answers_for_it() -> None:
    families = [family for check in CHECKS for family in check.names]
    assert len(families) == len({*families})
    for check in CHECKS:
        for family in check.names:
            assert owner(CheckName(family)) is check
    assert owner(CheckName("fpr", Decimal("0.1"), segment="language=de")) is owner(CheckName("segments"))
    assert owner(CheckName("horoscope")) is None
