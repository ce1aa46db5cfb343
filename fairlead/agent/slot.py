"""One life of one slot on this node: what the region wants of it, how its instance stands, what was last said of it.

Owns that state and its changes, all synchronous. Decides with fairlead/decide/instances.py; touches no process. Called by node.py
and host.py.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from fairlead.agent.drivers.contract import Exit, InstanceId
from fairlead.decide.instances import Again, Condition, Life, Order, Phase, Verdict, after_exit, condition_of
from fairlead.model.kinds.intent import Template
from fairlead.model.kinds.work import Binding, InstanceStatus
from fairlead.model.lifecycle import SlotState

StopCause = Literal["", "ordered", "fenced", "unhealthy"]


class Bound(msgspec.Struct):
    """A binding on this node, as last heard: by the feed, by a listing, or by the answer to our own report."""

    binding: Binding
    state: SlotState
    position: int


def order_of(bound: Bound, provisional: bool = False) -> Order:
    spec = bound.binding.spec
    return Order(spec.token, bound.state, spec.execution, spec.exclusive, spec.start_after, provisional)


def instant(plane_ms: int) -> datetime:
    return datetime.fromtimestamp(plane_ms / 1000, tz=UTC)


class Slot:
    def __init__(self, id: InstanceId, node: str) -> None:
        self.id = id
        self.node = node
        self.binding: Binding | None = None  # of this life, as last heard; kept when it is gone
        self.exclusive: Literal["", "region", "global"] = ""
        self.lasts = math.inf  # until when it may run, where it ends with the lease of a grant; on the agent's clock (P13)
        self.told_lasts = math.inf  # the same, as its driver was told last
        self.template: Template | None = None
        self.driver = ""
        self.phase: Phase = "absent"
        self.verdict: Verdict = ""
        self.run = 0
        self.restarts = 0
        self.ports: dict[str, int] = {}
        self.exit: Exit | None = None
        self.stop_cause: StopCause = ""
        # Bound here before this agent's session or this incarnation, and not found running: another agent may run it.
        self.doubtful = False
        self.outlived = False  # its region believes in it, but a later life of the slot was seen here: this one is over (S9)
        # Bound here in a history that was lost, and not found running: it may have left since, and its quota be another's (S5).
        self.forgone = False
        self.due_at = 0.0
        self.timer_at = float("inf")  # when it will be looked at again by itself
        self.started_at = 0.0
        self.ended_at = 0.0
        self.started_time: datetime | None = None
        self.ready_time: datetime | None = None
        self.startup_passed = False
        self.readiness_passed = False
        self.message = ""
        self.reported: InstanceStatus | None = None
        self.probing: asyncio.Task[Any] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.id.tenant, self.id.name

    @property
    def there(self) -> bool:
        """Whether anything of it may be running."""
        return self.phase in ("launching", "running", "stopping")

    @property
    def over(self) -> bool:
        """Its region believes in it, and must hear that it is over: it is not started any more."""
        return self.outlived or self.forgone

    @property
    def provisional(self) -> bool:
        return self.lasts != math.inf

    @property
    def ready(self) -> bool:
        return self.phase == "running" and self.startup_passed and self.readiness_passed

    def life(self, now: float) -> Life:
        known = not self.outlived and self.verdict in ("succeeded", "failed")  # what came of it is told again
        if self.over and not self.there and not known:
            return Life("ended", "failed")
        return Life(self.phase, self.verdict, now >= self.due_at, bool(self.exclusive))

    def condition(self, now: float) -> Condition:
        return condition_of(self.life(now), self.ready)

    # --- what happens to it ----------------------------------------------------------------------------------------------

    def begin(self, now: float, plane_ms: int) -> None:
        """A run has started."""
        assert self.template is not None
        probes = self.template.probes
        self.phase, self.verdict, self.exit, self.stop_cause = "running", "", None, ""
        self.started_at, self.started_time, self.ready_time = now, instant(plane_ms), None
        self.startup_passed = probes.startup is None
        self.readiness_passed = probes.readiness is None
        self.message = ""
        self._note_ready(plane_ms)

    def adopt(self, run: int, ports: dict[str, int], template: Template | None, now: float) -> None:
        """Found running. What it was to the region before, it is until a probe says otherwise (see `assume`). Its number says how
        often it was restarted, not how long ago: the limit may be reached by what comes now, never by that alone."""
        most = template.max_restarts if template is not None else 0
        restarts = max(0, min(run, most) - 1)
        self.phase, self.run, self.restarts, self.ports, self.template = "running", run, restarts, ports, template
        self.started_at = now

    def assume(self, state: SlotState) -> None:
        was_ready = state in (SlotState.READY, SlotState.SERVING)
        probes = self.template.probes if self.template is not None else None
        self.startup_passed = was_ready or probes is None or probes.startup is None
        self.readiness_passed = was_ready or probes is None or probes.readiness is None

    def probed(self, kind: str, passing: bool, detail: str, plane_ms: int) -> bool:
        """Takes a verdict in. True: the instance is unhealthy and must be ended."""
        if kind == "startup":
            self.startup_passed = passing
        elif kind == "readiness":
            self.readiness_passed = passing
        self.message = "" if passing else f"{kind} probe: {detail}"
        self._note_ready(plane_ms)
        return not passing and kind != "readiness"

    def _note_ready(self, plane_ms: int) -> None:
        if self.ready and self.ready_time is None:
            self.ready_time = instant(plane_ms)

    def end(self, exit: Exit, now: float, excused: bool = False) -> None:
        """A run is over, with all of its processes. `excused`: through no fault of its own."""
        template = self.template or Template(restart_policy="Never")
        excused = excused or exit.cause == "fenced" or self.stop_cause == "fenced"
        code = exit.code or 1 if self.stop_cause == "unhealthy" else exit.code
        asked = self.stop_cause == "ordered" or (exit.cause == "stopped" and self.stop_cause != "unhealthy")
        if asked:  # by this agent, or by an earlier one: no verdict about the instance
            ending: Again | Verdict = Again(0.0, self.restarts)
        else:
            ran_s = now - self.started_at
            ending = after_exit(template.restart_policy or "Always", template.max_restarts, self.restarts, code, ran_s, excused)
        self.phase, self.exit, self.ended_at = "ended", exit, now
        self.startup_passed = self.readiness_passed = False
        if not (self.stop_cause == "unhealthy" and self.message):
            self.message = f"{exit.cause} with code {exit.code}" + (f": {exit.message}" if exit.message else "")
        if isinstance(ending, Again):
            self.verdict, self.restarts, self.due_at = "again", ending.restarts, now + ending.delay_s
        else:
            self.verdict = ending
        self.stop_cause = ""

    def status(self, condition: Condition) -> InstanceStatus:
        # Of a run before a restart the message tells; and of one that was stopped, that it was is no verdict about it.
        final = self.exit if condition in ("succeeded", "failed") and condition == self.verdict else None
        return InstanceStatus(
            ready=self.ready,
            restarts=self.restarts,
            exit_code=final.code if final is not None else None,
            ports=self.ports if self.there else {},
            started_time=self.started_time,
            ready_time=self.ready_time if self.ready else None,
            message=self.message[:500],
        )
