"""Tells people what happens: follows a plane and writes Events about workloads and nodes, a bounded trickle of them. Measures how
long slots take from stage to stage on the way.

One a plane, under a lease. Everything it says follows from durable changes, so that no scheduler and no controller has to say
anything on its hot path; what it misses (while nobody held its lease, or when it fell behind) is not told. Never decides anything
that matters: if it is gone, nothing but words is missing. Started by the composition root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from fairlead.client.leased import Health, Leased, Terms
from fairlead.client.plane import Change, Feed, Plane
from fairlead.controllers.telling import NOTE_MAX, Sum, Telling
from fairlead.decide import narrating
from fairlead.decide.narrating import Told
from fairlead.decide.slots import millis
from fairlead.model import codec
from fairlead.model.commands import Accepted, Command, Put
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.kinds.work import InstanceStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.observe.histogram import STAGE_S, Histogram
from fairlead.ports import Clock, Random, Tasks

GATHER_S: Final = 0.25  # changes that come within this are looked at together
SAMPLED: Final = 250  # of one take: beyond that every second, third... slot is timed, and counts for as many
KNOWN_MAX: Final = 5_000
WAITING_MAX: Final = 100_000  # slots whose reasons are remembered, to be counted

_S = SlotState
_REGION: Final = ("schedulingrequests", "bindings", "instances", "nodes")  # requests first: see _scheduled
_GLOBAL: Final = ("workloads", "assignments", "regions")
_STAGES: Final = {
    (_S.BOUND, _S.STARTING): "startup",
    (_S.STARTING, _S.READY): "readiness",
    (_S.READY, _S.SERVING): "serving",
    (_S.DRAINING, _S.RELEASED): "draining",
}
STAGES: Final = ("scheduling", *_STAGES.values())


class _Step(msgspec.Struct, frozen=True, gc=False):
    time: datetime


class _Stepped(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    last_transition: _Step | None = None


class _Timed(msgspec.Struct, frozen=True, gc=False):
    """Of a binding, when it made its last step; decoding skips the rest."""

    status: _Stepped = _Stepped()


class _Said(msgspec.Struct, frozen=True, gc=False):
    status: InstanceStatus = InstanceStatus()


_timed = codec.decoder(_Timed).decode
_said = codec.decoder(_Said).decode
_event = codec.decoder(Event).decode


class NarratorMeters:
    def __init__(self) -> None:
        self.written_total = 0
        self.refused_total = 0
        self.restarts_total = 0
        self.changes_total = 0
        self.last_error = ""
        self.progress_ms = 0
        self.stages = {stage: Histogram(STAGE_S) for stage in STAGES}


class Narrator(Leased):
    forgives = (Exception,)  # words are worth no server

    def __init__(self, plane: Plane, clock: Clock, random: Random, holder: str, *, of: str, of_term: bool = False) -> None:
        """`of` a region, or of the global plane. `of_term`: its lease is the leader's, in whose process it is."""
        info = CONTROLLERS["narrator-global" if of == GLOBAL else "narrator"]
        terms = Terms(info.name, holder, info.role, of_term=of_term)
        super().__init__(plane, clock, random, terms, _GLOBAL if of == GLOBAL else _REGION)
        self.meters = NarratorMeters()
        self.telling = Telling()
        self._tellers: dict[str, Callable[[Change, Any], Iterable[Told]]] = {
            "schedulingrequests": self._of_request,
            "bindings": self._of_binding,
            "instances": self._of_instance,
            "nodes": lambda c, old: narrating.of_node(_hot(old), c.hot),
            "workloads": lambda c, old: narrating.of_workload(_hot(old), c.hot),
            "regions": lambda c, old: narrating.of_region(_hot(old), c.hot),
            "assignments": lambda c, old: narrating.of_assignment(_hot(old), c.hot),
        }
        self._reset()

    def _reset(self) -> None:
        self._reasons: dict[tuple[str, str], dict[int, str]] = {}  # of a workload's slots that wait
        self._remembered = 0
        self._known: dict[tuple[str, str], Event] = {}  # as last written, by tenant and name
        self._last_words: dict[tuple[str, str], str] = {}  # of slots that failed in what is being told

    def _restarted(self, error: BaseException) -> None:
        self.meters.restarts_total += 1
        self.meters.last_error = f"started over: {error!r}"

    def health(self) -> Health:
        meters = self.meters
        return Health(len(self.telling), 0.0, meters.changes_total, meters.progress_ms, meters.last_error)

    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        while not self._stopping:
            now_ms = self._plane.plane_ms()
            self.narrate(feed.take_nowait(), now_ms)
            await self._write(self.telling.take(now_ms))
            await self._wait(feed, self.telling.next_due_ms(now_ms), now_ms)
            await self._clock.sleep(GATHER_S)

    # --- what happened ---------------------------------------------------------------------------------------------------

    def narrate(self, changes: Sequence[Change], now_ms: int) -> None:
        """Changes whose earlier version is not known are told of as if they were new, or not at all."""
        self._last_words = _last_words(changes)
        created: dict[tuple[str, str], int] = {}  # when the requests were made that are gone now
        every = 1 + sum(change.plural == "bindings" for change in changes) // SAMPLED
        for at, change in enumerate(changes):
            old = getattr(change, "previous", None)
            for told in self._tellers[change.plural](change, old):
                self.telling.add(told, now_ms)
            if change.plural == "schedulingrequests":
                request = _hot(old) if change.raw is None else None
                if request is not None:
                    created[change.tenant, change.name] = millis(request.metadata.creation_time)
            elif change.plural == "bindings" and change.raw is not None and at % every == 0:
                self._time(change, old, created.get((change.tenant, change.name), 0), every)
        if changes:
            self.meters.changes_total += len(changes)
            self.meters.progress_ms = now_ms

    def _time(self, change: Change, old: Any, created_ms: int, weight: int) -> None:
        before = _hot(old)
        if before is None or before.token != change.hot.token:
            stage, since_ms = "scheduling", created_ms
        else:
            stage = _STAGES.get((before.state, change.hot.state), "")
            since_ms = _stepped_ms(old.raw) if stage else 0
        if since_ms:
            took_ms = _stepped_ms(change.raw) - since_ms
            self.meters.stages[stage].observe(max(0, took_ms) / 1000, weight)

    def _of_request(self, change: Change, old: Any) -> Iterable[Told]:
        """The scheduler writes down why a slot waits, where that changed; here the slots of a workload are counted together."""
        workload, _, index = change.name.rpartition("-")
        key, slot = (change.tenant, workload), int(index)
        reasons = self._reasons.get(key)
        if change.raw is None:
            if reasons is not None and reasons.pop(slot, None) is not None:
                self._remembered -= 1
                if not reasons:
                    del self._reasons[key]
            return ()
        status, before = change.hot.status, _hot(old)
        if status.since_time is None or (before is not None and before.status.reason == status.reason):
            return ()  # nobody has tried it yet, or it waits for what it waited for before
        if reasons is None:
            reasons = self._reasons.setdefault(key, {})
        if slot not in reasons:
            if self._remembered >= WAITING_MAX:
                return ()
            self._remembered += 1
        reasons[slot] = status.reason
        return (narrating.waiting(*key, change.hot.spec.slot.uid, reasons, slot, status.detail),)

    def _of_binding(self, change: Change, old: Any) -> Iterable[Told]:
        words = self._last_words.get((change.tenant, change.name), "") if self._last_words else ""
        return narrating.of_binding(change.tenant, change.name, _hot(old), change.hot, words)

    @staticmethod
    def _of_instance(change: Change, old: Any) -> Iterable[Told]:
        if change.raw is None:
            return ()
        new = _said(change.raw).status
        if not new.message:
            return ()
        before = _said(old.raw).status if old is not None and old.raw is not None else None
        return narrating.of_instance(change.tenant, change.name, before, new)

    # --- writing it down -------------------------------------------------------------------------------------------------

    async def _write(self, sums: list[Sum]) -> None:
        if not sums:
            return
        commands = []
        for each in sums:
            metadata = Metadata(name=narrating.event_name(each.told.regarding, each.told.reason), namespace=each.told.tenant)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            spec = _added(await self._last(metadata), each, self.terms.name)
            event = self._known[metadata.namespace, metadata.name] = Event(metadata=metadata, spec=spec)
            commands.append(Command(self._caller, Put("Event", event)))
        for outcome in await self._plane.submit(commands):
            if isinstance(outcome, Accepted):
                self.meters.written_total += 1
            else:
                self.meters.refused_total += 1
                self.meters.last_error = str(outcome)

    async def _last(self, metadata: Metadata) -> EventSpec | None:
        """What was written about this before, perhaps by whoever held the lease then."""
        known = self._known.get((metadata.namespace, metadata.name))
        if known is not None:
            return known.spec
        change = await self._plane.get("events", metadata.namespace, metadata.name)
        return _event(change.raw).spec if change is not None and change.raw is not None else None


def _added(before: EventSpec | None, each: Sum, reporter: str) -> EventSpec:
    told, last = each.told, _instant(each.last_ms)
    if before is not None and told.uid and before.uid and told.uid != before.uid:
        before = None  # another object of that name: what happened to the one before is not its history
    return EventSpec(
        regarding=told.regarding,
        reason=told.reason,
        note=told.note[:NOTE_MAX],
        type="Warning" if told.warning else "Normal",
        reporter=reporter,
        count=each.times + (before.count if before is not None else 0),
        first_time=before.first_time if before is not None and before.first_time is not None else _instant(each.first_ms),
        last_time=last,
        uid=told.uid or (before.uid if before is not None else ""),
    )


def _last_words(changes: Sequence[Change]) -> dict[tuple[str, str], str]:
    """What agents said of slots that failed: the step and the words come in one report, and the instance goes with the slot."""
    failed = {
        (change.tenant, change.name)
        for change in changes
        if change.plural == "bindings" and change.raw is not None and change.hot.state is _S.FAILED
    }
    if not failed:
        return {}
    out: dict[tuple[str, str], str] = {}
    for change in changes:
        if change.plural == "instances" and change.raw is not None and (change.tenant, change.name) in failed:
            out[change.tenant, change.name] = _said(change.raw).status.message
    return out


def _hot(rec: Any) -> Any:
    return rec.hot if rec is not None and rec.raw is not None else None


def _stepped_ms(raw: bytes | None) -> int:
    step = _timed(raw).status.last_transition if raw is not None else None
    return millis(step.time) if step is not None else 0


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
