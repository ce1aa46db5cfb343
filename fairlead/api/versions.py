"""resourceVersion at a front door (P19): a decimal, the sum of rev_i * 2^(64 i) over its planes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlead.api.failures import bad_request

COMPONENT_BITS: Final = 64
COMPONENT_MAX: Final = (1 << COMPONENT_BITS) - 1
DIGITS_MAX: Final = 1300  # 64 planes; converting a longer text costs the square of its length


def component_text(index: int, revision: int) -> str:
    """Of an object: its own plane's revision, so that it stands still while the object does."""
    return str(revision << (COMPONENT_BITS * index))


def vector_text(revisions: Mapping[int, int]) -> str:
    """Of a list, a bookmark or an event: everything a client needs to go on from there."""
    return str(sum(revision << (COMPONENT_BITS * index) for index, revision in revisions.items()))


def component(text: str, index: int) -> int:
    return (parse(text) >> (COMPONENT_BITS * index)) & COMPONENT_MAX


def parse(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise bad_request(f"invalid resource version {text[:40]!r}: expected a decimal number")
    return int(text)
