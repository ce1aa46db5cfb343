"""One trace for each generation of a workload, made from its timeline: how long every slot was in every stage of its way.

Owns which steps become spans and how they are numbered; ids come from what they name, so whoever makes the same trace again, from
another plane's history too, adds to the same one. Pure: nothing of it runs beside a command. otel.py sends them. Called by
`fairlead timeline --otlp`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from fairlead.observe.timeline import Step

# The stages of a slot's way, as spans are named; the states that are none of these end the one before.
STAGES: Final = {
    "admitted": "admitted", "queued": "queued", "reserved": "reserved", "bound": "bound", "starting": "started",
    "ready": "ready", "serving": "serving",
}  # fmt: skip


class Span(NamedTuple):
    trace_id: int  # 128 bits
    span_id: int  # 64 bits
    parent_id: int  # 0: the root of its trace
    name: str
    begin_ms: int
    end_ms: int
    attributes: dict[str, str | int]


def spans_of(tenant: str, workload: str, steps: Iterable[Step]) -> list[Span]:
    """Of steps in the order of time. A root each generation, and below it a span for every stay of a slot in a stage; the last
    stay ends where the history does not tell more, and has no length."""
    steps = list(steps)
    roots: dict[tuple[str, int], list[Step]] = {}
    slots: dict[str, list[Step]] = {}
    for step in steps:
        if not step.stage:
            continue
        if step.stage in STAGES:
            roots.setdefault((step.uid, step.generation), []).append(step)
        if not step.object.startswith("workload/"):
            slots.setdefault(f"{step.plane}/{step.object.rpartition('/')[2]}", []).append(step)
    found = [_root(tenant, workload, key, of) for key, of in roots.items()]
    for slot, of in slots.items():
        found += _stays(slot, of)
    return sorted(found, key=lambda span: (span.begin_ms, span.parent_id != 0))  # stable: of a slot in the order of its steps


def _root(tenant: str, workload: str, key: tuple[str, int], steps: list[Step]) -> Span:
    uid, generation = key
    attributes: dict[str, str | int] = {
        "fairlead.tenant": tenant, "fairlead.workload": workload, "fairlead.uid": uid, "fairlead.generation": generation,
    }  # fmt: skip
    first = next((step for step in steps if step.stage == "admitted"), None)
    if first is not None:
        attributes |= _evidence(first)
    return Span(_trace(key), _number(*key, "root"), 0, "admitted", steps[0].time_ms, steps[-1].time_ms, attributes)


def _stays(slot: str, steps: list[Step]) -> Iterator[Span]:
    region, _, name = slot.partition("/")
    for step, following in pairwise([*steps, None]):
        assert step is not None
        stage = STAGES.get(step.stage)
        if stage is None:
            continue
        key = (step.uid, step.generation)
        attributes: dict[str, str | int] = {"fairlead.slot": name, "fairlead.region": region, **_evidence(step)}
        end_ms = following.time_ms if following is not None else step.time_ms
        number = _number(*key, slot, step.stage, step.position)
        yield Span(_trace(key), number, _number(*key, "root"), stage, step.time_ms, max(step.time_ms, end_ms), attributes)


def _evidence(step: Step) -> dict[str, str | int]:
    return {
        "fairlead.plane": step.plane, "fairlead.position": step.position, "fairlead.what": step.what, "fairlead.by": step.owner,
        "fairlead.evidence": step.evidence,
    }  # fmt: skip


def _trace(key: tuple[str, int]) -> int:
    return int.from_bytes(hashlib.blake2b(f"{key[0]}@{key[1]}".encode(), digest_size=16).digest(), "big") or 1


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") or 1
