"""Owns the seeded event loop: virtual time, a seeded choice of who runs next, and a hash of everything that ran.

One seed is one run: the same program gives the same steps, times and trace hash in any process, whatever PYTHONHASHSEED
says. Never opens a socket, starts a thread or reads a clock; code that asks for one fails with
SimForbidden. Called by the simulator's worlds (`run`) and, through asyncio, by the production code they run.

How it differs from asyncio's own loop:

- When several *tasks* are ready, the seed picks which of them steps next. Plain callbacks keep their order, because
  asyncio promises that order and production code may rely on it.
- When nothing is ready, time jumps to the next timer. When there is no timer either, nothing can ever happen again:
  SimDeadlock, with the names of the tasks that wait.
- Tasks and futures hash by serial number, so a set of tasks has the same order in every process.
- An exception that asyncio would only log ends the run.
- Everything that runs belongs to a simulated process (or to the world). A paused process's steps wait until it is resumed; a
  dead one's are dropped, so that not even a `finally` of it runs. `time` is the clock of whoever asks.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import gc
import hashlib
import heapq
import inspect
import itertools
import random
import struct
import sys
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from fairlead.sim.handles import Call, SimFuture, SimHandle, SimTask, SimTimer
from fairlead.sim.handles import Outcome as Outcome
from fairlead.sim.handles import SimDeadlock as SimDeadlock
from fairlead.sim.handles import SimError as SimError
from fairlead.sim.handles import SimForbidden as SimForbidden
from fairlead.sim.handles import SimOverrun as SimOverrun
from fairlead.sim.process import Process, label_of, place_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Draws = random.Random  # The type of a stream, for those who may not import random.

PICK_WINDOW = 16  # Candidates looked at for each seeded pick: enough to reorder any burst, and a bound on its cost.
STEPS_MAX = 20_000_000  # A run this long is a livelock, where nobody says how long it may be.
UNWIND_STEPS_MAX = 1_000_000  # For cancelled tasks to finish in; one that needs more swallows its cancellation.
TIDY_EVERY_STEPS = 1_024  # asking more often whether there is anything to tidy up would cost more than tidying
GC_EVERY_STEPS = 400 * TIDY_EVERY_STEPS  # Collections happen at fixed steps, so finalizers run at the same step in every process.
TIDY_TASKS = 1_000  # Forget the ones that are done whenever there are this many more.
_STEP = struct.Struct("<dq")
_SLEPT = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]  # what the timer of asyncio.sleep calls
TRACE_BYTES = 1 << 16  # what ran is hashed in pieces of this size: a call for every step would cost more than the hash itself
_collect = gc.collect  # as it is here: while a world runs, production code's own collections are switched off
CANCELLED_TIMERS_MAX = 256  # Rebuild the heap beyond this; asyncio.timeout leaves one cancelled timer behind per use.


# A step that may be taken, the task whose step it is (None for a plain callback), and whose it is.
_Ready = tuple[SimHandle | SimTimer | Call, SimTask[Any] | None, Process | None]
_KEPT_BY_NOBODY = SimHandle(bool, (), None)


class SimLoop(asyncio.BaseEventLoop):
    """Replaces the one method of BaseEventLoop that does the work (`_run_once`) and everything that feeds it."""

    def __init__(self, seed: int, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self.set_debug(False)  # PYTHONASYNCIODEBUG would add callbacks and so change the trace.
        self.get_debug = bool  # type: ignore[method-assign]  # False, without a frame: asked for every future
        self.seed = seed
        self.steps = 0
        self.now = 0.0  # true time, which nobody inside the simulation can read
        self.current: Process | None = None  # whose step is being taken
        self.seeded: tuple[float, float] = (0, float("inf"))  # outside of these steps whoever came first runs first
        self._steps_max = steps_max
        self._serials = itertools.count(1)
        self._below = random.Random(f"{seed}/picks")._randbelow  # type: ignore[attr-defined]  # what randrange draws
        self._queue: collections.deque[_Ready] = collections.deque()
        self._timers: list[tuple[float, int, SimTimer, Process | None]] = []
        self._timers_cancelled = 0
        # All that are not done: a task that nobody holds would end when the collector happens to come by.
        self._tasks: dict[int, SimTask[Any]] = {}
        self._tidy_at = TIDY_TASKS
        self._trace = hashlib.blake2b(digest_size=16)
        self._untraced = bytearray()  # what ran and is not in the hash yet
        self._failures: list[dict[str, Any]] = []

    # What a world uses.

    def stream(self, purpose: str) -> Draws:
        """A generator of its own for each purpose, so that one more draw here moves no draw elsewhere."""
        return random.Random(f"{self.seed}/{purpose}")

    def note(self, text: str) -> None:
        """Folds an event of the program into the trace hash."""
        self._untraced += text.encode()

    def trace_hash(self) -> str:
        self._trace.update(self._untraced)
        self._untraced.clear()
        return self._trace.copy().hexdigest()

    def waiting_tasks(self) -> list[str]:
        return [f"{task.get_name()} in {place_of(task)}" for _, task in self._tasks.items() if not task.done()]

    def after(self, seconds: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> asyncio.TimerHandle:
        """The world's own timer, in true time, whoever sets it."""
        return self._set_timer(self.now + seconds, self.now + seconds, None, callback, args, None)

    def later(self, process: Process, seconds: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """As `after`, and a step of that process: not while it is paused, never once it is dead."""
        self._set_timer(self.now + seconds, self.now + seconds, process, callback, args, None)

    def soon(self, process: Process, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Calls it as a step of that process: not while it is paused, never once it is dead."""
        self._queue.append((SimHandle(callback, args, self), None, process))

    def spawn(self, process: Process | None, work: Coroutine[Any, Any, T], name: str) -> SimTask[T]:
        """A task of that process, whoever starts it."""
        before, self.current = self.current, process
        try:
            return self.create_task(work, name=name)
        finally:
            self.current = before

    def pause(self, process: Process) -> None:
        process.paused = True

    def resume(self, process: Process) -> None:
        process.paused = False
        parked, process.parked = process.parked, []
        self._queue.extend(parked)

    def kill(self, process: Process) -> None:
        """Nothing of it runs again, not even to end."""
        process.dead = True
        process.parked = []
        process.kept = [task for _, task in self._tasks.items() if task.process is process and not task.done()]

    def drop_tasks(self) -> None:
        """Cancels what the run leaves behind and lets it unwind, without virtual time."""
        self._steps_max = self.steps + UNWIND_STEPS_MAX
        for _ in range(100):  # A task may catch a cancellation once or twice; one that always does is a bug.
            leftover = [task for task in self._tasks.values() if not task.done() and not (task.process and task.process.dead)]
            if not leftover:
                break
            for task in leftover:
                if task.process is not None and task.process.paused:
                    self.resume(task.process)
                task.cancel()
            while self._queue:
                self._step()
        else:
            raise SimError(f"tasks that refuse to be cancelled: {self.waiting_tasks()}")
        self._drop_dead()

    def _drop_dead(self) -> None:
        """Those of dead processes cannot unwind: what they wait for was dropped. Destroying them runs code that no longer
        matters to anybody, and what it complains about neither."""
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for task in self._tasks.values():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if inspect.iscoroutine(work := task.get_coro()) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                    work.close()  # Killed before its first step, which Python would complain about.
                if task.process is not None:
                    task.process.kept = []
            self._tasks.clear()
            self._timers.clear()
            _collect()
        finally:
            sys.unraisablehook = before

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.now if self.current is None else self.current.clock.local(self.now)

    def create_future(self) -> SimFuture[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        future.serial = next(self._serials)
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> SimTask[T]:
        serial = next(self._serials)
        task = SimTask(serial, coro, self, None if name is None else str(name), context)
        self._tasks[serial] = task
        if len(self._tasks) >= self._tidy_at:
            self._tasks = {number: each for number, each in self._tasks.items() if not each.done()}
            self._tidy_at = len(self._tasks) * 2 + TIDY_TASKS
        return task

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        owner = getattr(callback, "__self__", None)
        if type(owner) is SimTask and context is not None:  # asyncio itself, which always says in which context
            self._queue.append(((callback, args, context), owner, owner.process))
            return _KEPT_BY_NOBODY
        handle = SimHandle(callback, args, self, context)
        self._queue.append((handle, owner, owner.process) if type(owner) is SimTask else (handle, None, self.current))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        # There is one thread, so this is call_soon; asyncio itself comes here to close async generators.
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = self.current
        if process is None:
            return self._set_timer(when, when, None, callback, args, context)
        due_s = process.clock.due(when, self.now, when > process.clock.local(self.now))
        return self._set_timer(when, due_s, process, callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = self.current
        if process is None:
            return self._set_timer(self.now + delay, self.now + delay, None, callback, args, context)
        when = process.clock.local(self.now) + delay
        return self._set_timer(when, process.clock.due(when, self.now, delay > 0.0), process, callback, args, context)

    def _set_timer(
        self, when: float, true_s: float, process: Process | None, callback: Callable[..., object], args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> SimTimer:  # fmt: skip
        handle = SimTimer(when, callback, args, self, context)
        # The serial breaks ties, so timers for one moment fire in the order they were set.
        heapq.heappush(self._timers, (true_s, next(self._serials), handle, process))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += handle._scheduled  # type: ignore[attr-defined]
        if self._timers_cancelled > CANCELLED_TIMERS_MAX and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def run_in_executor(self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        raise SimForbidden(f"{label_of(func)} asked for a thread; in simulation it must be reached through a port")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._failures.append(context)

    def _run_once(self) -> None:
        """Many times: until the main task is done."""
        queue, failures, step, advance = self._queue, self._failures, self._step, self._advance
        while not self._stopping:  # type: ignore[attr-defined]
            if queue:
                step()
            else:
                advance()
            if failures:
                context = failures.pop(0)
                error = context.get("exception")
                raise error if isinstance(error, BaseException) else SimError(str(context.get("message")))

    # The two moves: time jumps, or one thing runs.

    def _advance(self) -> None:
        """Moves time to the earliest live timer and makes everything due at that moment ready."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._timers_cancelled = max(0, self._timers_cancelled - 1)
        if not timers:
            raise SimDeadlock(f"nothing can happen any more at {self.now:.3f} s; waiting: {'; '.join(self.waiting_tasks())}")
        now = self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= now:
            _, _, handle, process = heapq.heappop(timers)
            handle._scheduled = False
            if handle._cancelled:
                self._timers_cancelled = max(0, self._timers_cancelled - 1)
            elif handle._callback is _SLEPT:
                # The sleeper's own step is next: it waits if its process is paused, and is dropped if that is dead.
                self.current = process
                _SLEPT(*handle._args)
                self.current = None
            else:
                self._queue.append((handle, None, process))

    def _step(self) -> None:
        # Before the pick: a step that is taken off the queue and not run would leave its task hanging for ever.
        if self.steps >= self._steps_max:
            raise SimOverrun(f"{self.steps} steps by {self.now:.3f} s; waiting: {'; '.join(self.waiting_tasks())}")
        queue = self._queue
        ready = queue.popleft()
        if ready[1] is not None and queue and queue[0][1] is not None:
            ready = self._pick(ready)
        work, task, process = ready
        if isinstance(work, tuple):
            callback, args, context = work
        elif work._cancelled:
            return
        else:
            callback, args, context = work._callback, work._args, work._context
        if process is not None and (process.dead or process.paused):
            if not process.dead:
                process.parked.append(ready)
            return
        self.steps += 1
        if task is not None:
            self._untraced += _STEP.pack(self.now, task.serial)
        else:
            self._untraced += _STEP.pack(self.now, 0)
            self._untraced += label_of(callback).encode()
        self.current = process
        try:
            context.run(callback, *args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._failures.append({"message": f"Exception in callback {callback!r}", "exception": error})
        self.current = None
        if not self.steps % TIDY_EVERY_STEPS:
            self._tidy()

    def _tidy(self) -> None:
        if len(self._untraced) > TRACE_BYTES:
            self.trace_hash()
        if not self.steps % GC_EVERY_STEPS:
            _collect()

    def _pick(self, first: _Ready) -> _Ready:
        """That one or another task, where the first two in the queue are steps of tasks."""
        queue = self._queue
        candidates = 1
        for ready in queue:
            if ready[1] is None or candidates == PICK_WINDOW:
                break
            candidates += 1
        index = self._below(candidates)
        if not index or not self.seeded[0] <= self.steps < self.seeded[1]:
            return first
        # One task's own callbacks (a step, then a cancel someone scheduled) stay in order.
        chosen = queue[index - 1][1]
        if first[1] is chosen:
            return first
        for at in range(index):
            if queue[at][1] is chosen:
                ready = queue[at]
                del queue[at]
                queue.appendleft(first)
                return ready
        raise AssertionError("what was chosen is in the queue")


def run(
    main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int, steps_max: int = STEPS_MAX, *, last: bool = False
) -> Outcome[T]:
    """Runs `main` to its end on a fresh loop; what it leaves running is cancelled and counts no more. `last`: the process ends
    with it, and what is left is the system's to clear away."""
    loop = SimLoop(seed, steps_max)
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # what was there before is none of this run's garbage, and is most of what a collection would look through
    try:
        value = loop.run_until_complete(main(loop))
        outcome = Outcome(value, loop.steps, loop.now, loop.trace_hash())
    finally:
        if not last:
            asyncio.events._set_running_loop(loop)
            try:
                loop.drop_tasks()
            finally:
                asyncio.events._set_running_loop(None)
                loop.close()
            gc.unfreeze()
            if collecting:
                gc.enable()
    return outcome


def draws_of(seed: int, purpose: str) -> Draws:
    """Draws before there is a loop: for what a world is to be like."""
    return random.Random(f"{seed}/{purpose}")


def sleep(seconds: float) -> Coroutine[Any, Any, None]:
    """Lets virtual time pass for the calling task."""
    return asyncio.sleep(seconds)
