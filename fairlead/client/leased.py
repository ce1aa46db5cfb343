"""The life of a component that acts under a lease: it acquires it, follows the plane from a list on, works, renews, and starts
over from a list whenever it lost sight of the plane or of its lease.

Owns the lease, the feed and the restarts, and says with each renewal how the work goes (`Health`), so that whoever lists leases
sees a component that is stuck. Never decides what the work is: subclasses do (the scheduler, the controllers' runtime, the
narrator). Called by the composition root through `run` and `stop`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final, NamedTuple

from fairlead.client.plane import Expired, Feed, Plane
from fairlead.model.commands import Accepted, Caller, Command, LeaseAcquire, LeaseRelease, LeaseRenew, Outcome, Refused
from fairlead.model.kinds.ledger import LeaseStatus, ZoneNodes
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition
from fairlead.ports import Clock, Random, Tasks

log = logging.getLogger(__name__)

# Somebody else holds the lease, or the plane has another leader, which knows only what was durable.
_NOT_OURS: Final = frozenset({"FencedOut", "NotOwner", "NotFound", "NotLeader", "LeaseHeld"})
_RESTART_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_ASK_S: Final = 0.2
_ASKS_SOON: Final = 5  # after so many a store that takes nothing is asked by all components together, once a second
_ASK_SELDOM_S: Final = 1.0
_ERROR_MAX: Final = 300
TELL_S: Final = 30.0  # a resync: how often one whose lease is the leader's says how it does at least (reporting.py)


class Lost(Exception):
    """Somebody else may hold the lease, or the plane has another leader: what is known here is history."""


class Terms(NamedTuple):
    """Of a lease."""

    name: str
    holder: str  # this process, as leases name it
    role: Role
    ttl_s: float = 10.0
    renew_s: float = 3.0
    of_term: bool = False  # for as long as the plane's leader leads, whose process this is; then nothing is renewed


class Health(NamedTuple):
    """How a component is doing, as far as it can tell itself. One whose process hangs renews nothing, which others see."""

    queue_length: int = 0
    oldest_s: float = 0.0  # how long what waits longest is due
    looks_total: int = 0
    progress_ms: int = 0  # plane time at the end of the last look; 0: none yet
    last_error: str = ""
    stalled: str = ""  # why it does not get on, in one word; empty: it works
    detail: str = ""
    zones: tuple[ZoneNodes, ...] = ()  # of the region it speaks for

    def status(self) -> LeaseStatus:
        working = Condition(
            type="Working", status="False" if self.stalled else "True", reason=self.stalled or "Working", message=self.detail
        )
        return LeaseStatus(
            queue_length=self.queue_length,
            oldest_seconds=self.oldest_s,
            reconciles=self.looks_total,
            last_reconcile_time=datetime.fromtimestamp(self.progress_ms / 1000, tz=UTC) if self.progress_ms else None,
            last_error=self.last_error[:_ERROR_MAX],
            conditions=(working,),
            zones=self.zones,
        )


class Leased(ABC):
    # What ends in starting over. Anything else ends `run`, and with it whoever started it.
    forgives: ClassVar[tuple[type[Exception], ...]] = (Expired, Lost)

    def __init__(self, plane: Plane, clock: Clock, random: Random, terms: Terms, follows: Sequence[str]) -> None:
        self._plane = plane
        self._clock = clock
        self._random = random
        self.terms = terms
        self._follows = tuple(follows)
        self._caller = self._own(0)
        self._stopping = False
        self._serving = asyncio.Event()
        self._feed: Feed | None = None
        self._lost: asyncio.Future[str] | None = None

    # --- what a component adds -------------------------------------------------------------------------------------------

    def _reset(self) -> None:  # noqa: B027  # not everybody keeps a picture
        """An empty picture: what was known belongs to a history this holder lost sight of."""

    def _follow(self, at: int) -> Feed:
        """The changes since that revision."""
        return self._plane.follow(self._follows, at)

    async def _prepare(self, at: int) -> None:  # noqa: B027  # likewise
        """Lists what it follows; changes since revision `at` wait in the feed."""

    def _vouched(self) -> bool:
        """Whether its lease may say at this moment that it works. Most speak for themselves alone."""
        return True

    @abstractmethod
    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        """Until `_stopping`. Loops started in `tasks` end with it."""

    @abstractmethod
    def _restarted(self, error: BaseException) -> None:
        """Counts it."""

    def _answered(self) -> None:  # noqa: B027  # nor does everybody care
        """The plane has answered about the lease: it is ours, or another's for a while."""

    @abstractmethod
    def health(self) -> Health:
        """How it gets on, as its lease will say."""

    # --- the life --------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Of the lease it holds; 0: it holds none."""
        return self._caller.fencing_epoch

    @property
    def serving(self) -> bool:
        return self._serving.is_set()

    @property
    def feed(self) -> Feed | None:
        return self._feed

    async def wait_serving(self) -> None:
        """Until it has its lease and a picture of the plane."""
        await self._serving.wait()

    def stop(self) -> None:
        self._stopping = True
        if self._feed is not None:
            self._feed.poke()

    async def run(self) -> None:
        """Until stopped. Nothing it knows is needed to start over."""
        tries = 0
        while not self._stopping:
            began = self._clock.monotonic()
            try:
                await self._serve()
            except* self.forgives as group:
                error = _first(group)
                expected = isinstance(error, Expired | Lost | OSError | TimeoutError)
                log.log(logging.INFO if expected else logging.ERROR, "%s starts over: %r", self.terms.name, error)
                self._restarted(error)
                tries = 0 if self._clock.monotonic() - began > self.terms.ttl_s else tries + 1
            finally:
                self._serving.clear()
                self._caller = self._own(0)
                self._close()
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # an error that came with the cancel hid it
                raise asyncio.CancelledError
            if not self._stopping:
                pause_s = _RESTART_S[min(tries, len(_RESTART_S) - 1)]
                await self._clock.sleep(pause_s * (0.5 + self._random.random() / 2))

    def _close(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    async def _serve(self) -> None:
        self._reset()
        if not await self._acquire():
            return
        at = self._plane.revision()
        self._feed = feed = self._follow(at)
        await self._prepare(at)
        self._serving.set()
        async with Tasks() as tasks:
            tasks.start(self._held() if self.terms.of_term else self._renew_loop(), "lease")
            await self._work(feed, tasks)
            tasks.cancel()
        await self._plane.submit([Command(self._caller, LeaseRelease(self.terms.name, self.epoch))])

    def _own(self, epoch: int) -> Caller:
        return Caller(self.terms.holder, self.terms.role, lease=self.terms.name, fencing_epoch=epoch)

    async def _acquire(self) -> bool:
        terms = self.terms
        ttl_s = TELL_S if terms.of_term else terms.ttl_s
        ask = Command(Caller(terms.holder, terms.role), LeaseAcquire(terms.name, terms.role, ttl_s, terms.of_term))
        told, asks = "", 0
        while not self._stopping:
            if not self._vouched():
                await self._clock.sleep(until_next(self._clock.monotonic(), _ASK_SELDOM_S))
                continue
            (got,) = await self._plane.submit([ask])
            held = isinstance(got, Refused) and got.reason == "LeaseHeld"  # it says for how long
            if held or isinstance(got, Accepted):
                self._answered()
            if isinstance(got, Accepted):
                self._caller = self._own(got.epoch)
                return True
            wait_s = got.retry_after_s if isinstance(got, Refused) else 0.0
            if isinstance(got, Refused) and got.reason == "Forbidden" and got.detail != told:
                log.warning("%s gets no lease: %s", terms.name, told := got.detail)  # nobody else says why it does nothing
            asks += 1
            if held or asks < _ASKS_SOON:
                await self._clock.sleep(min(1.0, wait_s or _ASK_S))
            else:
                await self._clock.sleep(until_next(self._clock.monotonic(), _ASK_SELDOM_S))
        return False

    async def _renew_loop(self) -> None:
        while True:
            await self._clock.sleep(until_next(self._clock.monotonic(), self.terms.renew_s))
            if not self._vouched():
                continue
            (got,) = await self._plane.submit([self.renewal(self.health())])
            if isinstance(got, Refused) and got.reason in _NOT_OURS:
                raise Lost(got.detail)
            if isinstance(got, Accepted):
                self._answered()

    async def _held(self) -> None:
        """Until somebody says that it is another's."""
        self._lost = asyncio.get_running_loop().create_future()
        raise Lost(await self._lost)

    def renewal(self, health: Health) -> Command:
        return Command(self._caller, LeaseRenew(self.terms.name, self.epoch, health.status()))

    def renewed(self, got: Outcome) -> None:
        """What was answered to whoever renews for it."""
        if isinstance(got, Refused) and got.reason in _NOT_OURS and self._lost is not None and not self._lost.done():
            self._lost.set_result(got.detail)

    # --- waiting ---------------------------------------------------------------------------------------------------------

    async def _wait(self, feed: Feed, due_ms: int | None, now_ms: int) -> None:
        """Until something changed, or until that plane time."""
        if due_ms is None:
            await feed.wait()
            return
        # A timer of the loop's, not a task that sleeps: there is one of these for every look.
        timer = asyncio.get_running_loop().call_later(max(0.001, (due_ms - now_ms) / 1000), feed.poke)
        try:
            await feed.wait()
        finally:
            timer.cancel()


def until_next(now: float, period_s: float) -> float:
    """To the next multiple of the period, which is the same moment for all components of a process: what they renew is then one
    batch of the plane, not one each. Whoever woke a little before its moment waits for the one after it."""
    left_s = period_s - now % period_s
    return left_s if left_s > period_s * 0.1 else left_s + period_s


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
