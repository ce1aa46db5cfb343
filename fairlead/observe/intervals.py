"""S12 asked of what really ran: the running intervals of one exclusive slot, and of what stood in for it, are disjoint in true
time, wherever they ran.

Owns the record of one run and the question. Only whoever stands outside can know true time: the simulator does, and a test rig on
one machine. Shares nothing with agents but the model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from fairlead.model.kinds.slot import Token


class Interval(msgspec.Struct):
    """One run of one life of a slot. `end` None: it runs still."""

    tenant: str
    name: str
    token: Token
    where: str
    begin: float
    end: float | None = None
    exclusive: Literal["", "region", "global"] = ""
    uid: str = ""  # of the workload; a slot's name may be used again by another one
    supersedes: str = ""  # the slots it stood in for, the nearest first, as REGION/SLOT@EPOCH


class Claimed(NamedTuple):
    """A life of a slot that was bound where others had to leave first (P12)."""

    name: str  # TENANT/SLOT
    token: Token
    node: str
    victims: tuple[tuple[str, Token], ...]


def overtook(intervals: Iterable[Interval], claims: Iterable[Claimed]) -> list[str]:
    """Each run that began on a node while somebody it had to wait for ran there still (S2, in true time)."""
    runs: dict[tuple[str, Token, str], list[Interval]] = defaultdict(list)
    for run in intervals:
        runs[f"{run.tenant}/{run.name}", run.token, run.where.rpartition("/")[2]].append(run)
    found = []
    for claim in claims:
        for run in runs.get((claim.name, claim.token, claim.node), ()):
            for name, token in claim.victims:
                others = runs.get((name, token, claim.node), ())
                if any(other.begin < run.begin and (other.end is None or other.end > run.begin) for other in others):
                    found.append(
                        f"{claim.name} began on {claim.node} at {run.begin:.3f}, and {name}, which it replaces, ran still"
                    )
    return found


def overlaps(intervals: Iterable[Interval]) -> list[str]:
    """Each pair of exclusive runs of one slot, or of one chain of stand-ins, that ran at the same time, in words."""
    slots: dict[tuple[str, str, str], list[Interval]] = defaultdict(list)
    for interval in intervals:
        if interval.exclusive:
            for name in {interval.name: None, home_of(interval): None}:
                slots[interval.tenant, name, interval.uid].append(interval)
    found: dict[str, None] = {}
    for runs in slots.values():
        runs.sort(key=lambda run: run.begin)
        last = runs[0]
        for run in runs[1:]:
            if last.end is None or run.begin < last.end:
                ended = "still" if last.end is None else f"until {last.end:.3f}"
                found[
                    f"{last.tenant}/{last.name} ran on {last.where} (token {_text(last.token)}) {ended} and from {run.begin:.3f} "
                    f"{'' if run.name == last.name else f'{run.name} '}on {run.where} (token {_text(run.token)})"
                ] = None
            if last.end is not None and (run.end is None or run.end > last.end):
                last = run
    return list(found)


def ran_again(intervals: Iterable[Interval]) -> int:
    """How many exclusive runs came after another one of their slot, or of its chain of stand-ins: only these could overlap."""
    runs = Counter((run.tenant, home_of(run), run.uid) for run in intervals if run.exclusive)
    return sum(runs.values()) - len(runs)


def home_of(run: Interval) -> str:
    """The slot at the end of the chain of those it stood in for; itself, where it stood in for none."""
    return run.supersedes.rpartition(" ")[2].partition("/")[2].partition("@")[0] or run.name


def went_back(intervals: Iterable[Interval]) -> list[str]:
    """S9 at the agents: on one machine, a slot never runs under a token below one it ran under before."""
    highest: dict[tuple[str, str, str, str], Token] = {}
    found = []
    for run in intervals:
        life = (run.where, run.tenant, run.name, run.uid)
        before = highest.get(life)
        if before is not None and run.token < before:
            found.append(
                f"{run.tenant}/{run.name} ran on {run.where} under token {_text(run.token)}, after it ran under {_text(before)}"
            )
        else:
            highest[life] = run.token
    return found


def _text(token: Token) -> str:
    return ".".join(str(part) for part in msgspec.structs.astuple(token))
