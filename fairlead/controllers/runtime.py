"""What every controller runs on: a lease with fencing, a picture of its plane, a queue of keys, backoff, a bounded resync,
commands in batches, meters and a heartbeat. The effects around pure reconcile functions.

A controller says which kinds it follows, which keys a change concerns, and what to do about a key; a wake-up carries no payload,
each look reads all that matters. It waits for no disk between two looks (sent.py). Never decides anything itself. Started by the
composition root, one per controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from fairlead.client.leased import Health, Leased, Lost, Terms
from fairlead.client.plane import Feed, Plane
from fairlead.controllers.cache import Cache, Item, Name, same_but_for_status
from fairlead.controllers.contested import SWEEP, contested, not_held_back
from fairlead.controllers.contract import Controller, Counting, Sweeping, View, part_of
from fairlead.controllers.meters import Meters, health_of
from fairlead.controllers.picture import Picture, PictureFeed
from fairlead.controllers.queue import KeyQueue, Taken
from fairlead.controllers.sent import LOST, Batch, Sent, Written, submit_in_parts
from fairlead.decide.oscillation import Oscillation
from fairlead.model.commands import Body, Command, Delete, Outcome, Refused, Unknown
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.ids import split_revision
from fairlead.model.meta import Evidence
from fairlead.ports import Clock, Random, Tasks

log = logging.getLogger(__name__)

# What was to go is gone.
_GONE: Final = frozenset({"NotFound"})
_SOON_MS: Final = 50  # a look wanted sooner than this is wanted at once
_PACE_LEAST: Final = 8
PULSE_S: Final = 1.0
STOOD_STILL_S: Final = 5.0  # a third of a node's lease: whoever is heard every five seconds may have been missed
_LOOK_S: Final = 0.005  # after so long the loop is given back, and the rest of the keys wait for the next look (P17)


class RuntimeSettings(msgspec.Struct, frozen=True):
    holder: str = "controllers-0"  # this process, as leases name it
    lease: str = ""  # empty: the controller's name
    lease_ttl_s: float = 10.0
    renew_s: float = 3.0
    of_term: bool = False  # its lease is the leader's, in whose process it is
    resync_s: float = 30.0
    batch_keys: int = 256  # looked at between two submits
    batch_commands: int = 500
    hear_s: float = 1.0


class Runtime(Leased):
    forgives = (Exception,)  # whatever goes wrong with one controller, the others go on

    def __init__(
        self, controller: Controller, plane: Plane, clock: Clock, random: Random, settings: RuntimeSettings | None = None, *,
        other: Plane | None = None, picture: Picture | None = None, other_picture: Picture | None = None,
    ) -> None:  # fmt: skip
        """`picture` is of `plane`, `other_picture` of `other`, where other controllers look at the same; else it has its own."""
        self.controller = controller
        self.info = CONTROLLERS[controller.name]
        self.meters = Meters()
        self._settings = settings = settings or RuntimeSettings()
        self._lease = settings.lease or getattr(controller, "lease", "") or controller.name
        terms = Terms(
            self._lease, settings.holder, self.info.role, settings.lease_ttl_s, settings.renew_s, settings.of_term
        )  # fmt: skip
        super().__init__(plane, clock, random, terms, controller.follows)
        self._other = other
        self._writes = frozenset(self.info.writes)
        self._judges_silence = controller.hears or getattr(controller, "judges_silence", False)
        self._speaks_for_other = getattr(controller, "speaks_for_other", False)
        # Asked once: it looks through the names of the interface, and every renewal says how a controller is.
        self._counting = controller if isinstance(controller, Counting) else None
        self._for_many = getattr(controller, "for_many", False)
        self._named: frozenset[str] = frozenset(getattr(controller, "named", ()))
        self._by_spec: frozenset[str] = frozenset(getattr(controller, "by_spec", ()))
        self._picture = picture or Picture(plane, clock)
        self._other_picture = other_picture or (Picture(other, clock) if other is not None else None)
        self._kept = [] if picture is not None else [self._picture]  # pictures of its own
        if self._other_picture is not None and other_picture is None:
            self._kept.append(self._other_picture)
        self._picture.include(controller.follows)
        if self._other_picture is not None:
            self._other_picture.include(controller.follows_other)
        self._reset()

    def _reset(self) -> None:
        self.view = View(self.controller.indexes, self.controller.indexes_other)
        self.queue = KeyQueue(self._random)
        self.fights = Oscillation(self.controller.name)
        self._wrote: dict[Name, int] = {}  # what this holder wrote about a key, and has not seen come back
        self._sent = Sent(self.controller.follows)
        self._looks = 0
        self._ended = asyncio.Event()  # of the loop that was told to stop
        self._pace = self._settings.batch_keys  # how many keys are looked at together
        self._under_way: dict[str, float] = {}  # looks and sweeps that have begun, and when
        self._pulse = self._clock.monotonic()  # when it was last seen not to stand still

    # --- the life of a controller ----------------------------------------------------------------------------------------

    def _restarted(self, error: BaseException) -> None:
        self.meters.restarted(error)

    def _answered(self) -> None:
        touch = getattr(self.controller, "touch", None)
        if touch is not None:
            touch.answered(self._clock.monotonic())

    def health(self) -> Health:
        found = health_of(self.meters, self.queue, self._plane.plane_ms(), self._settings.resync_s, self.busy_s())
        return found._replace(zones=self._counting.zones(self.view)) if self._counting is not None else found

    def _vouched(self) -> bool:
        return not self._speaks_for_other or self._other is None or self._other.vouches

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
        feed = self._feed
        super()._close()
        if self._other_picture is not None and isinstance(feed, PictureFeed):
            self._other_picture.leave(feed)
        for picture in self._kept:
            picture.close()

    def _follow(self, at: int) -> Feed:
        return PictureFeed(self._picture)

    async def _prepare(self, at: int) -> None:
        controller, view, feed = self.controller, self.view, self._feed
        assert isinstance(feed, PictureFeed)
        view.incarnation = split_revision(at)[0]
        view.since_ms, self._pulse = self._plane.plane_ms(), self._clock.monotonic()
        await self._picture.open()
        view.cache = Cache(controller.indexes, self._picture.objects, controller.follows)
        self._picture.join(feed, controller.follows, self._told)
        if self._other_picture is not None:
            await self._other_picture.open()
            view.other = Cache(controller.indexes_other, self._other_picture.objects, controller.follows_other)
            view.other_incarnation = split_revision(self._other_picture.revision)[0]
            self._other_picture.join(feed, controller.follows_other, self._told_other)
        self.queue.add(controller.resync(view), self._plane.plane_ms())

    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        controller = self.controller
        tasks.start(self._resync_loop(feed), "resync")
        if controller.hears:
            tasks.start(self._hear_loop(feed), "hear")
        if self._judges_silence:
            tasks.start(self._pulse_loop(), "pulse")
        for picture in self._kept:
            tasks.start(picture.run(), "picture")
        if isinstance(controller, Sweeping):
            tasks.start(self._sweep_loop(controller), "sweep")
        tasks.start(self._loop(feed, tasks), "loop")
        await self._ended.wait()

    async def _resync_loop(self, feed: Feed) -> None:
        while True:
            await self._clock.sleep(self._settings.resync_s)
            for picture in (self._picture, self._other_picture):
                if picture is not None:
                    await picture.list_again(self._settings.resync_s / 2)
            self.queue.add(self.controller.resync(self.view), self._plane.plane_ms(), by_resync=True)
            feed.poke()

    async def _pulse_loop(self) -> None:
        while True:
            self._notice_pause()
            await self._clock.sleep(PULSE_S)

    def _notice_pause(self) -> None:
        """A process that stood still (stopped, swapped out, on a machine that slept) heard nobody: what others said meanwhile
        waits unread while it would already judge them. Its observation begins anew, as under a new lease. Asked before every
        look as well, because after a pause nobody knows which task goes on first."""
        now = self._clock.monotonic()
        still_s = now - self._pulse
        self._pulse = now
        if still_s > PULSE_S + STOOD_STILL_S:
            self.view.since_ms = self._plane.plane_ms()
            self.meters.pauses_total += 1
            log.warning(
                "%s stood still for %.1f s: it judges nobody's silence before it has listened again", self._lease, still_s
            )

    async def _hear_loop(self, feed: Feed) -> None:
        since_ms = 0
        while True:
            heard, now_ms = await self._plane.heard(since_ms), self._plane.plane_ms()
            for node, when_ms in heard:  # nobody is heard in the future
                self.view.heard[node] = min(when_ms, now_ms)
                since_ms = max(since_ms, min(when_ms, now_ms))
            feed.poke()
            await self._clock.sleep(self._settings.hear_s)

    async def _sweep_loop(self, controller: Sweeping) -> None:
        while True:
            with self._watched("a sweep"):
                found = await controller.sweep(self._plane, self._clock)
                bodies, _ = not_held_back(self.fights, found, self._plane.plane_ms())
                if bodies:
                    at = self._feed.revision if self._feed is not None else 0
                    await self._submit([(Taken(SWEEP, False), bodies)], at)
            await self._clock.sleep(controller.sweep_s)

    # --- the loop --------------------------------------------------------------------------------------------------------

    async def _loop(self, feed: Feed, tasks: Tasks) -> None:
        """Until it has something to send, or is told to stop. There is one at any time."""
        while not self._stopping:
            await self._observe(feed)
            if self._judges_silence:
                self._notice_pause()
            now_ms = self._plane.plane_ms()
            if not self._sent.may_look:
                await feed.wait()  # for the picture, or for an answer
                continue
            taken = self.queue.take(now_ms, min(self._settings.batch_keys, self._pace))
            if taken:
                todo = self._look(taken, feed, now_ms)
                if todo:
                    # Sent right now, by this task; another looks on while this one waits for the answer.
                    written = self._sent.send(todo)
                    tasks.start(self._loop(feed, tasks), "loop")
                    await self._send(todo, written, feed.revision, len(taken))
                    return
                now_ms = self._plane.plane_ms()
            due_ms = self.queue.next_due_ms()
            if due_ms is not None and due_ms <= now_ms:
                await self._clock.sleep(0)
            else:
                await self._wait(feed, due_ms, now_ms)
        self._ended.set()

    async def _observe(self, feed: Feed) -> None:
        """Raises what ended the picture."""
        feed.take_nowait()
        while self._picture.busy or (self._other_picture is not None and self._other_picture.busy):
            await self._clock.sleep(0)  # all that is told together, before anything is looked at

    def _told(self, old: Item | None, new: Item | None, by_resync: bool) -> bool:
        # Six controllers are told of each change, twenty of which a workload makes in its region: what has nobody to tell is
        # not called.
        derived, sent = self.view.cache.derived, self._sent
        if derived is not None:
            derived.told(old, new)
        item = new or old
        goes_on = bool(sent.unseen) and item is not None and sent.told(item)  # what waited for the picture is looked at
        return self._concerns(old, new, False, by_resync) or goes_on

    def _told_other(self, old: Item | None, new: Item | None, by_resync: bool) -> bool:
        self.view.other.told(old, new)
        return self._concerns(old, new, True, by_resync)

    def _concerns(self, old: Item | None, new: Item | None, other: bool, by_resync: bool) -> bool:
        now_ms: int | None = None  # asked for once there is something to look at
        item = new or old
        assert item is not None, "something has changed"
        if item.plural in self._by_spec and old is not None and new is not None and same_but_for_status(old, new):
            return False
        for version in (item,) if item.plural in self._named else (old, new):
            keys = self.controller.keys(self.view, version, other) if version is not None else ()
            if keys:
                now_ms = self._plane.plane_ms() if now_ms is None else now_ms
                self.queue.add(keys, now_ms, by_resync=by_resync)
        return now_ms is not None

    def _look(self, taken: list[Taken], feed: Feed, now_ms: int) -> Batch:
        """Each key decided on the same picture; what follows goes out together, and is in the picture before the next look."""
        began = self._clock.monotonic()
        self.view.other_ms = self._other.plane_ms() if self._other is not None else 0
        todo: list[tuple[Taken, Sequence[Body]]] = []
        count = 0
        for at, each in enumerate(taken):
            if self._sent.holds(each):
                continue
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
            if at + 1 == len(taken):
                break  # most looks are at one key, and ask nobody what time it is
            if count >= self._settings.batch_commands or self._clock.monotonic() - began > _LOOK_S:
                self.queue.add([later.key for later in taken[at + 1 :]], now_ms)
                del taken[at + 1 :]
                break
        self._pace = 2 * len(taken) + _PACE_LEAST  # on a slow machine, fewer: what is not reached in time is taken again
        if not todo:
            self.meters.looked(len(taken), self._plane.plane_ms(), self._clock.monotonic() - began)
        return todo

    async def _send(self, todo: Batch, written: Written, seen: int, keys: int) -> None:
        """What a look came to, and what is answered to it. The next look may begin meanwhile."""
        began = self._clock.monotonic()
        self._looks += 1
        with self._watched(f"look {self._looks}"):
            await self._submit(todo, seen)
        now_ms = self._plane.plane_ms()
        for each in self._sent.answered(todo, written):
            self.queue.add((each.key,), now_ms, by_resync=each.by_resync)
        self.meters.looked(keys, now_ms, self._clock.monotonic() - began)
        if self._feed is not None:
            self._feed.poke()

    def _reconcile(self, key: Name, now_ms: int) -> Sequence[Body]:
        try:
            result = self.controller.reconcile(key, self.view, now_ms)
        except Exception as error:  # one bad object must not keep all others waiting
            log.exception("%s cannot reconcile %s", self._lease, key, extra={"controller": self._lease, "key": key})
            self.meters.failed(key, repr(error))
            self.queue.failed(key, now_ms)
            return ()
        if result.wake_ms is not None:
            self.queue.add((key,), max(result.wake_ms, now_ms + 1))
        bodies = result.bodies
        if self._for_many and bodies:
            bodies, held_ms = not_held_back(self.fights, bodies, now_ms)
            self.queue.add((key,) if held_ms else (), held_ms)
        if not bodies:
            self.queue.succeeded(key)
        soon = result.wake_ms is not None and result.wake_ms < now_ms + _SOON_MS
        self.queue.looked(key, now_ms, more=bool(bodies) or soon)
        return bodies

    async def _submit(self, todo: Batch, seen: int) -> None:
        evidence = Evidence(observed_revision=seen, age_seconds=0.0)
        for _, bodies in todo:
            for body in bodies:
                part = part_of(body)
                assert part in self._writes, f"{self.controller.name} writes {part}, which it did not declare"
        commands = [Command(self._caller, body, None, evidence) for _, bodies in todo for body in bodies]
        outcomes = await submit_in_parts(self._plane, commands, self._settings.batch_commands)
        self.meters.commands_total += len(commands)
        at, now_ms = 0, self._plane.plane_ms()
        for taken, bodies in todo:
            self._hear(taken, bodies, outcomes[at : at + len(bodies)], seen, now_ms)
            at += len(bodies)

    def _note(self, key: Name, body: Body, now_ms: int) -> None:
        """What two writers undo for each other is said, with both names, and done less often."""
        waits = None if self._for_many or key == SWEEP else key
        fight = contested(self.fights, self.view, waits, body, now_ms)
        if fight is not None:
            self.meters.fought(key, fight.words)
            log.warning("%s; %s waits %d s", fight.words, self._lease, (fight.until_ms - now_ms) // 1000)

    def _hear(self, taken: Taken, bodies: Sequence[Body], outcomes: Sequence[Outcome], seen: int, now_ms: int) -> None:
        refused: list[Refused] = []
        for body, outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, Unknown):
                raise Lost(f"the plane's leader changed with commands under way: {outcome.detail}")
            if isinstance(outcome, Refused):
                if outcome.reason in LOST:
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
