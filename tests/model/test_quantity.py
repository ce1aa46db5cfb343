"""Quantities are exact: what is written is what is held, or it is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.model.quantity import AMOUNT_MAX, BadQuantity, format_quantity, parse_quantity

FACTORS = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60), "e3": Fraction(1000), "E-2": Fraction(1, 100), "e+1": Fraction(10),
}  # fmt: skip

amounts = st.integers(0, AMOUNT_MAX)


@settings(deadline=None)
@given(amounts)
@example(0)
@example(AMOUNT_MAX)
def test_what_is_formatted_parses_back_to_itself(amount: int) -> None:
    assert parse_quantity(format_quantity(amount)) == amount
    assert parse_quantity(format_quantity(amount, binary=True)) == amount
    assert parse_quantity(format_quantity(amount, unit_exponent=-3), unit_exponent=-3) == amount


@settings(deadline=None)
@given(
    whole=st.integers(0, 10**12),
    fraction=st.one_of(st.none(), st.text("0123456789", max_size=12)),
    suffix=st.sampled_from(sorted(FACTORS)),
    unit_exponent=st.sampled_from([0, -3]),
)
@example(whole=0, fraction="5", suffix="", unit_exponent=-3)
@example(whole=0, fraction="0005", suffix="", unit_exponent=-3)
@example(whole=9007199254740992, fraction=None, suffix="", unit_exponent=0)
@example(whole=9007199254740993, fraction=None, suffix="", unit_exponent=0)
def test_a_quantity_is_the_exact_fraction_or_it_is_refused(
    whole: int, fraction: str | None, suffix: str, unit_exponent: int
) -> None:
    text = f"{whole}{'' if fraction is None else '.' + fraction}{suffix}"
    number = Fraction(f"{whole}.{fraction}" if fraction else whole)
    exact = number * FACTORS[suffix] / Fraction(10) ** unit_exponent
    if exact.denominator == 1 and exact <= AMOUNT_MAX:
        assert parse_quantity(text, unit_exponent=unit_exponent) == exact
    else:
        with pytest.raises(BadQuantity):
            parse_quantity(text, unit_exponent=unit_exponent)


@pytest.mark.parametrize(
    ("text", "unit_exponent", "amount"),
    [
        ("500m", -3, 500),
        ("2", -3, 2000),
        ("1.5", -3, 1500),
        ("0.001", -3, 1),
        ("4Gi", 0, 4 << 30),
        ("0.5Gi", 0, 1 << 29),
        ("2e3", 0, 2000),
        ("1E", 0, 10**18),
        ("+7", 0, 7),
        ("1000m", 0, 1),
    ],
)
def test_the_usual_forms_mean_what_kubernetes_means_by_them(text: str, unit_exponent: int, amount: int) -> None:
    if amount > AMOUNT_MAX:
        with pytest.raises(BadQuantity, match="too large"):
            parse_quantity(text, unit_exponent=unit_exponent)
    else:
        assert parse_quantity(text, unit_exponent=unit_exponent) == amount


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a quantity"),
        (" 1", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
        ("0x10", "is not a quantity"),
        ("NaN", "is not a quantity"),
        ("Infinity", "is not a quantity"),
        ("1_000", "is not a quantity"),
        ("1,5", "is not a quantity"),
        ("1\n", "is not a quantity"),
        ("\u0661", "is not a quantity"),
        ("1e400", "is not a quantity"),
        ("9" * 1000, "is not a quantity"),
        ("-1", "is negative"),
        ("1gi", "unknown suffix 'gi'"),
        ("1GB", "unknown suffix 'GB'"),
        ("1e", "unknown suffix 'e'"),
        ("1m", "finer than the smallest unit, 1"),
        ("9007199254740993", "too large"),
        ("1Ei", "too large"),
        ("1e99", "too large"),
    ],
)
def test_what_is_no_amount_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(BadQuantity, match=says):
        parse_quantity(text)


def test_a_fraction_of_the_smallest_unit_of_cpu_is_refused_and_the_unit_is_named() -> None:
    with pytest.raises(BadQuantity, match="finer than the smallest unit, 1m"):
        parse_quantity("0.5m", unit_exponent=-3)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_text_gives_an_amount_or_a_refusal(text: str) -> None:
    try:
        amount = parse_quantity(text)
    except BadQuantity:
        return
    assert 0 <= amount <= AMOUNT_MAX
