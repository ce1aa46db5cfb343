"""One trace a generation, from the journal of a real authority, handed to OpenTelemetry's real SDK."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fairlead.model.commands import Enqueue
from fairlead.model.lifecycle import Role, SlotState
from fairlead.observe import otel
from fairlead.observe.timeline import Step, Timeline
from fairlead.observe.traces import spans_of
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import agent_of, bind_of, ok, report_of, request_of, running_plane


async def steps_of_a_slot() -> list[Step]:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        await plane.add_node("n0")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 2)))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n0")))
        for state in (SlotState.STARTING, SlotState.READY):
            ok(await plane.send(agent_of("n0"), report_of("risk", "api-0", state)))
    told = Timeline("risk", "api")
    told.feed("us", [entry.batch for entry in disk.journal])
    return told.steps()


def sent(steps: list[Step]) -> list[Any]:
    exporter = InMemorySpanExporter()
    assert otel.send(spans_of("risk", "api", steps), exporter) == len(exporter.get_finished_spans())
    return list(exporter.get_finished_spans())


async def test_every_stay_in_a_stage_is_a_span_below_its_generation_with_its_evidence() -> None:
    spans = sent(await steps_of_a_slot())
    (root,) = [span for span in spans if span.parent is None]
    below = [span for span in spans if span.parent is not None]
    assert {span.context.trace_id for span in spans} == {root.context.trace_id}
    assert {span.parent.span_id for span in below} == {root.context.span_id}
    assert root.attributes["fairlead.generation"] == 1
    of_slot = [span for span in below if span.attributes["fairlead.slot"] == "api-0"]
    assert [span.name for span in of_slot] == ["queued", "bound", "started", "ready"]
    for span, following in pairwise(of_slot):
        assert span.end_time == following.start_time, "a stay ends where the next begins"
    assert of_slot[1].attributes["fairlead.by"].startswith("scheduler ")
    assert "Bound to n0" in of_slot[1].attributes["fairlead.what"]
    assert [span.name for span in below if span.attributes["fairlead.slot"] == "api-1"] == ["queued"]


def step(time_ms: int, what: str, stage: str, generation: int = 1, plane: str = "us", of: str = "binding/api-0") -> Step:
    return Step(time_ms, plane, time_ms, of, what, "scheduler s", "revision 5, 0.1 s old", stage, generation, "u1")


def test_generations_are_traces_of_their_own_and_planes_add_to_the_same_one() -> None:
    admitted = [
        step(10, "created", "admitted", 1, "global", "workload/api"),
        step(50, "generation 2", "admitted", 2, "global", "workload/api"),
    ]
    bound = [step(20, "Bound", "bound"), step(30, "Released", "released"), step(60, "Bound", "bound", 2)]
    together, apart = (
        spans_of("risk", "api", admitted + bound),
        [*spans_of("risk", "api", admitted), *spans_of("risk", "api", bound)],
    )
    assert len({span.trace_id for span in together}) == 2
    assert {span.trace_id for span in together} == {span.trace_id for span in apart}, "whoever makes them, they are the same"
    first = next(span for span in together if span.name == "bound")
    assert (first.begin_ms, first.end_ms) == (20, 30), "what is no stage ends the one before and is no span"
    assert spans_of("risk", "api", admitted + bound) == together
    assert {span.name for span in together} == {"admitted", "bound"}
    exported = {(span.context.trace_id, span.context.span_id) for span in sent(admitted + bound)}
    assert exported == {(span.trace_id, span.span_id) for span in together}, "as they are, and not drawn"


def test_without_the_sdk_it_says_what_to_install_and_nothing_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    exporter: Any = None
    with pytest.raises(otel.NotInstalled, match=r"fairlead\[otel\]"):
        otel.send([], exporter)
