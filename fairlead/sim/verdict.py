"""Owns what a seed came to, as data: what was found, and what was counted, checked and timed on the way there.

Made by world.py; what it is used for is in campaign.py.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

import msgspec

PLACES: Final = 4
WORDS: Final = 600  # a deadlock names every task that waits


class Finding(msgspec.Struct, frozen=True):
    invariant: str
    plane: str
    at_s: float
    detail: str


class Verdict(msgspec.Struct):
    """What a seed came to. Two runs of one seed are equal in every field."""

    seed: int
    profile: str
    findings: list[Finding]
    exits: list[tuple[str, str]]
    steps: int
    simulated_s: float
    trace: str
    commits: int
    counts: dict[str, int]
    refusals: dict[str, int]
    checked: dict[str, int]
    agreed_s: float | None  # after healing; None: never
    timeline: list[tuple[float, str, str]] = []
    strikes: list[str] = []  # of the chaos, as `skips` of a scenario names them
    recovered_s: list[float] = []  # after the loss of a region, one for each critical service
    tape: list[tuple[float, str]] = []  # of a run in which something was found: what was done to it, and when


def broken_off(seed: int, profile: str, why: str) -> Verdict:
    """Of a run of which nothing is left but that it broke off."""
    return Verdict(seed, profile, [Finding("X0", "", 0.0, why)], [], 0, 0.0, "", 0, {}, {}, {}, None)


def told_of(error: BaseException) -> str:
    """What it is, and the last places it came through: the same in every process."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    places = [
        f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)[-PLACES:]
    ]
    return f"the run broke off: {type(error).__name__}: {str(error)[:WORDS]}; in {', '.join(reversed(places))}"
