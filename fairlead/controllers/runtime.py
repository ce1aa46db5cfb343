"""What every controller runs on: a lease with fencing, a cache fed by changes, a queue of keys, backoff, a bounded resync,
commands in batches, meters and a heartbeat. The effects around pure reconcile functions.

A controller says which kinds it follows, which keys a change concerns, and what to do about a key; a wake-up carries no payload,
each look reads all that matters. Never decides anything itself. Started by the composition root, one per controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from fairlead.client.leased import Health, Leased, Lost, Terms
from fairlead.client.plane import Change, Feed, Plane
from fairlead.controllers.cache import Cache, Name
from fairlead.controllers.contract import Controller, Sweeping, View, part_of
from fairlead.controllers.meters import Meters, health_of
from fairlead.controllers.queue import KeyQueue, Taken
from fairlead.decide.oscillation import Oscillation
from fairlead.model import codec
from fairlead.model.commands import Body, Command, Delete, Outcome, Put, Refused, Unknown
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.ids import split_revision
from fairlead.model.meta import Evidence
from fairlead.model.registry import BY_KIND
from fairlead.ports import Clock, Random, Tasks

log = logging.getLogger(__name__)

# These say that this process no longer knows, or may no longer act: it lists again under a lease of its own.
_LOST: Final = frozenset({"FencedOut", "NotLeader", "StaleEvidence"})
# What was to go is gone.
_GONE: Final = frozenset({"NotFound"})
_UNIQUE: Final = frozenset({"SchedulingRequest", "Event"})  # each is written once, and there are many
_SOON_MS: Final = 50  # a look wanted sooner than this is wanted at once
_LOOK_S: Final = 0.005  # after so long the loop is given back, and the rest of the keys wait for the next look (P17)
_TAKEN: Final = 400  # changes taken in between two yields to the loop
_SLICE: Final = 2000  # objects compared between two yields to the loop


class RuntimeSettings(msgspec.Struct, frozen=True):
    holder: str = "controllers-0"  # this process, as leases name it
    lease: str = ""  # empty: the controller's name
    lease_ttl_s: float = 10.0
    renew_s: float = 3.0
    resync_s: float = 30.0
    batch_keys: int = 256  # looked at between two submits
    batch_commands: int = 500
    hear_s: float = 1.0


class Runtime(Leased):
    forgives = (Exception,)  # whatever goes wrong with one controller, the others go on

    def __init__(
        self, controller: Controller, plane: Plane, clock: Clock, random: Random, settings: RuntimeSettings | None = None, *,
        other: Plane | None = None,
    ) -> None:  # fmt: skip
        self.controller = controller
        self.info = CONTROLLERS[controller.name]
        self.meters = Meters()
        self._settings = settings = settings or RuntimeSettings()
        self._lease = settings.lease or getattr(controller, "lease", "") or controller.name
        terms = Terms(self._lease, settings.holder, self.info.role, settings.lease_ttl_s, settings.renew_s)
        super().__init__(plane, clock, random, terms, controller.follows)
        self._other = other
        self._writes = frozenset(self.info.writes)
        self._other_feed: Feed | None = None
        self._reset()

    def _reset(self) -> None:
        self.view = View(self.controller.indexes, self.controller.indexes_other)
        self.queue = KeyQueue(self._random)
        self.fights = Oscillation(self.controller.name)
        self._wrote: dict[Name, int] = {}  # what this holder wrote about a key, and has not seen come back
        self._taken_other = asyncio.Event()
        self._under_way: dict[str, float] = {}  # looks and sweeps that have begun, and when

    # --- the life of a controller ----------------------------------------------------------------------------------------

    def _restarted(self, error: BaseException) -> None:
        self.meters.restarted(error)

    def health(self) -> Health:
        return health_of(self.meters, self.queue, self._plane.plane_ms(), self._settings.resync_s, self.busy_s())

    def busy_s(self) -> float:
        """How long the look or sweep that is under way has taken."""
        began = min(self._under_way.values(), default=None)
        return self._clock.monotonic() - began if began is not None else 0.0

    @contextlib.contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        """A look that never ends is seen from outside."""
        self._under_way[what] = self._clock.monotonic()
        try:
            yield
        finally:
            self._under_way.pop(what, None)

    def _close(self) -> None:
        super()._close()
        if self._other_feed is not None:
            self._other_feed.close()
            self._other_feed = None

    async def _prepare(self, at: int) -> None:
        controller, view = self.controller, self.view
        view.incarnation = split_revision(at)[0]
        view.since_ms = self._plane.plane_ms()
        for plural in controller.follows:
            for change in await self._plane.list(plural):
                view.cache.apply(change)
        if self._other is not None:
            self._other_feed = self._other.follow(controller.follows_other, self._other.revision())
            for plural in controller.follows_other:
                for change in await self._other.list(plural):
                    view.other.apply(change)
        self.queue.add(controller.resync(view), self._plane.plane_ms())

    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        controller = self.controller
        tasks.start(self._resync_loop(feed), "resync")
        if controller.hears:
            tasks.start(self._hear_loop(feed), "hear")
        if self._other_feed is not None:
            tasks.start(self._relay_loop(self._other_feed, feed), "relay")
        if isinstance(controller, Sweeping):
            tasks.start(self._sweep_loop(controller), "sweep")
        await self._loop(feed, tasks)

    async def _resync_loop(self, feed: Feed) -> None:
        while True:
            await self._clock.sleep(self._settings.resync_s)
            await self._list_again(self._plane, self.controller.follows, self.view.cache, False)
            if self._other is not None:
                await self._list_again(self._other, self.controller.follows_other, self.view.other, True)
            self.queue.add(self.controller.resync(self.view), self._plane.plane_ms(), by_resync=True)
            feed.poke()

    async def _list_again(self, plane: Plane, plurals: Sequence[str], cache: Cache, other: bool) -> None:
        """A change that was never told is found here; what only this finds is counted (L3)."""
        for plural in plurals:
            position = split_revision(plane.revision())[1]
            listed = await plane.list(plural)
            for start in range(0, len(listed), _SLICE):
                self._told(listed[start : start + _SLICE], cache, other, self._plane.plane_ms(), by_resync=True)
                await self._clock.sleep(0)
            self._told(cache.unlisted(plural, listed, position), cache, other, self._plane.plane_ms(), by_resync=True)

    async def _hear_loop(self, feed: Feed) -> None:
        since_ms = 0
        while True:
            for node, when_ms in await self._plane.heard(since_ms):
                self.view.heard[node] = when_ms
                since_ms = max(since_ms, when_ms)
            feed.poke()
            await self._clock.sleep(self._settings.hear_s)

    async def _sweep_loop(self, controller: Sweeping) -> None:
        while True:
            with self._watched("a sweep"):
                bodies = await controller.sweep(self._plane, self._clock)
                if bodies:
                    at = self._feed.revision if self._feed is not None else 0
                    await self._submit([(Taken(("", "sweep"), False), bodies)], at)
            await self._clock.sleep(controller.sweep_s)

    async def _relay_loop(self, other: Feed, feed: Feed) -> None:
        """What the second plane says ends the wait for the first."""
        while True:
            await other.wait()
            self._taken_other.clear()
            feed.poke()
            await self._taken_other.wait()

    # --- the loop --------------------------------------------------------------------------------------------------------

    async def _loop(self, feed: Feed, tasks: Tasks) -> None:
        while not self._stopping:
            await self._observe(feed)
            now_ms = self._plane.plane_ms()
            taken = self.queue.take(now_ms, self._settings.batch_keys)
            if taken:
                with self._watched("a look"):
                    await self._look(taken, feed, now_ms)
                await self._clock.sleep(0)
                continue
            await self._wait(feed, tasks, self.queue.next_due_ms(), now_ms)

    async def _observe(self, feed: Feed) -> None:
        await self._take_in(feed.take_nowait(), self.view.cache, False)
        if self._other_feed is not None:
            changes = self._other_feed.take_nowait()
            self._taken_other.set()
            await self._take_in(changes, self.view.other, True)

    async def _take_in(self, changes: Sequence[Change], cache: Cache, other: bool) -> None:
        """All of them, before anything is looked at; of many, a slice at a time (P17)."""
        now_ms = self._plane.plane_ms()
        for start in range(0, len(changes), _TAKEN):
            if start:
                await self._clock.sleep(0)
            self._told(changes[start : start + _TAKEN], cache, other, now_ms)

    def _told(self, changes: Sequence[Change], cache: Cache, other: bool, now_ms: int, by_resync: bool = False) -> None:
        for change in changes:
            old, new = cache.apply(change)
            if old is new:
                continue
            for version in (old, new):
                keys = self.controller.keys(self.view, version, other) if version is not None else ()
                if keys:
                    self.queue.add(keys, now_ms, by_resync=by_resync)

    async def _look(self, taken: list[Taken], feed: Feed, now_ms: int) -> None:
        """Each key decided on the same picture; what follows goes out together, and is heard before the next look."""
        began = self._clock.monotonic()
        self.view.other_ms = self._other.plane_ms() if self._other is not None else 0
        todo: list[tuple[Taken, Sequence[Body]]] = []
        count = 0
        for at, each in enumerate(taken):
            damped_ms = self.fights.damped_until_ms(each.key, now_ms)
            if damped_ms:
                self.queue.add((each.key,), damped_ms)
                continue
            if self._wrote.get(each.key, 0) > feed.revision:
                self.queue.add((each.key,), now_ms + 5)  # its own last write is not in the picture yet
                continue
            self._wrote.pop(each.key, None)
            bodies = self._reconcile(each.key, now_ms)
            if bodies:
                todo.append((each, bodies))
                count += len(bodies)
            if count >= self._settings.batch_commands or self._clock.monotonic() - began > _LOOK_S:
                self.queue.add([later.key for later in taken[at + 1 :]], now_ms)
                break
        if todo:
            await self._submit(todo, feed.revision)
        self.meters.looked(len(taken), self._plane.plane_ms(), self._clock.monotonic() - began)

    def _reconcile(self, key: Name, now_ms: int) -> Sequence[Body]:
        try:
            result = self.controller.reconcile(key, self.view, now_ms)
        except Exception as error:  # one bad object must not keep all others waiting
            log.exception("%s cannot reconcile %s", self._lease, key)
            self.meters.failed(key, repr(error))
            self.queue.failed(key, now_ms)
            return ()
        if result.wake_ms is not None:
            self.queue.add((key,), max(result.wake_ms, now_ms + 1))
        if not result.bodies:
            self.queue.succeeded(key)
        soon = result.wake_ms is not None and result.wake_ms < now_ms + _SOON_MS
        self.queue.looked(key, now_ms, more=bool(result.bodies) or soon)
        return result.bodies

    async def _submit(self, todo: list[tuple[Taken, Sequence[Body]]], seen: int) -> None:
        evidence = Evidence(observed_revision=seen, age_seconds=0.0)
        for _, bodies in todo:
            for body in bodies:
                part = part_of(body)
                assert part in self._writes, f"{self.controller.name} writes {part}, which it did not declare"
        commands = [Command(self._caller, body, None, evidence) for _, bodies in todo for body in bodies]
        outcomes: list[Outcome] = []
        size = self._settings.batch_commands
        for start in range(0, len(commands), size):
            outcomes += await self._plane.submit(commands[start : start + size])
        self.meters.commands_total += len(commands)
        at, now_ms = 0, self._plane.plane_ms()
        for taken, bodies in todo:
            self._hear(taken, bodies, outcomes[at : at + len(bodies)], seen, now_ms)
            at += len(bodies)

    def _note(self, key: Name, body: Body, now_ms: int) -> None:
        """What two writers undo for each other is said, with both names, and done less often."""
        if not isinstance(body, Put) or body.kind in _UNIQUE:
            return
        meta = body.object.metadata
        item = self.view.cache.item(BY_KIND[body.kind].plural, meta.namespace, meta.name)
        seen = item.object.metadata if item is not None else None
        value = hash(codec.encode(body.object.spec))
        fight = self.fights.wrote(key, (body.kind, meta.namespace, meta.name), value, seen, now_ms)
        if fight is not None:
            self.meters.fought(key, fight.words)
            log.warning("%s; %s waits %d s", fight.words, self._lease, (fight.until_ms - now_ms) // 1000)

    def _hear(self, taken: Taken, bodies: Sequence[Body], outcomes: Sequence[Outcome], seen: int, now_ms: int) -> None:
        refused: list[Refused] = []
        for body, outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, Unknown):
                raise Lost(f"the plane's leader changed with commands under way: {outcome.detail}")
            if isinstance(outcome, Refused):
                if outcome.reason in _LOST:
                    raise Lost(outcome.detail)
                if not (isinstance(body, Delete) and outcome.reason in _GONE):
                    refused.append(outcome)
                continue
            refused += [no for _, no in outcome.refused]
            if outcome.revision > seen:
                self.meters.effects(taken.by_resync)
                self._note(taken.key, body, now_ms)
                self._wrote[taken.key] = max(self._wrote.get(taken.key, 0), outcome.revision)
        if not refused:
            self.queue.succeeded(taken.key)
            return
        for no in refused:
            self.meters.refused(taken.key, no)
        self.queue.failed(taken.key, now_ms, int(1000 * max(no.retry_after_s for no in refused)))
