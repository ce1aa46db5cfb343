"""Owns what a seed came to, as data: what was found, and what was counted, checked and timed on the way there.

Made by world.py; what it is used for is in campaign.py.
"""

from __future__ import annotations

import msgspec


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
