"""Exact quantities: "500m", "4Gi", "1.5", "2e3" to integers and back. Never floating point, never rounding.

Called by resources.py for every amount a person writes.
"""

from __future__ import annotations

import re

# Kubernetes' suffixes. The exponent of ten or two, so that everything stays an integer.
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SHAPE = re.compile(r"([+-]?)(\d{1,40})(?:\.(\d{0,40}))?(?:([eE])([+-]?\d{1,2})|([A-Za-z]{0,2}))", re.ASCII)

# Amounts are added up in signed 64-bit columns. A single one is kept far enough below that a million of them still fit.
AMOUNT_MAX = 1 << 53


class BadQuantity(ValueError):
    """The text is not an amount we can hold exactly; the message says what would be."""


def parse_quantity(text: str, *, unit_exponent: int = 0) -> int:
    """The amount in units of 10**unit_exponent: cpu is counted in thousandths (-3), memory in bytes (0)."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise BadQuantity(f"{text[:60]!r} is not a quantity; write a number with an optional suffix such as 500m, 2 or 4Gi")
    sign, whole, fraction, has_exponent, exponent, suffix = match.groups()
    if sign == "-":
        raise BadQuantity(f"{text[:60]!r} is negative; an amount is 0 or more")
    digits = int(whole + (fraction or ""))
    scale10 = -len(fraction or "") - unit_exponent
    scale2 = 0
    if has_exponent:
        scale10 += int(exponent)
    elif suffix in _BINARY:
        scale2 = _BINARY[suffix]
    elif suffix in _DECIMAL:
        scale10 += _DECIMAL[suffix]
    else:
        raise BadQuantity(f"{text[:60]!r} has the unknown suffix {suffix!r}; use one of m k M G T P E Ki Mi Gi Ti Pi Ei")
    amount: int = digits << scale2
    if scale10 >= 0:
        amount *= 10**scale10
    else:
        amount, rest = divmod(amount, 10**-scale10)
        if rest:
            smallest = format_quantity(1, unit_exponent=unit_exponent)
            raise BadQuantity(f"{text[:60]!r} is finer than the smallest unit, {smallest}")
    if amount > AMOUNT_MAX:
        raise BadQuantity(f"{text[:60]!r} is too large; the most one amount may be is 2^53 units")
    return amount


def format_quantity(amount: int, *, unit_exponent: int = 0, binary: bool = False) -> str:
    """The shortest exact text: 500 thousandths is "500m", 2000 is "2"; 4 << 30 bytes with `binary` is "4Gi"."""
    if binary and amount:
        for suffix, bits in reversed(_BINARY.items()):
            if amount % (1 << bits) == 0:
                return f"{amount >> bits}{suffix}"
    if unit_exponent == -3:
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    assert unit_exponent == 0, f"no suffix for 10^{unit_exponent}"
    return str(amount)
