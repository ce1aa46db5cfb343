"""What the ports themselves promise: a wait for a signal or a moment, and groups of tasks. In virtual time."""

from __future__ import annotations

import asyncio

from fairlead.ports import TASKS_DONE_MAX, Tasks, wait_signal
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep


def test_a_signal_ends_a_wait_before_its_time_and_no_timer_is_left() -> None:
    async def main(loop: SimLoop) -> tuple[float, bool]:
        signal = asyncio.Event()
        loop.after(1.0, signal.set)
        await wait_signal(signal, 5.0)
        at = loop.now
        signal.clear()
        await sleep(10.0)
        return at, signal.is_set()

    assert sim.run(main, 1).value == (1.0, False)


def test_a_wait_without_a_signal_ends_in_its_time() -> None:
    async def main(loop: SimLoop) -> tuple[float, float]:
        await wait_signal(asyncio.Event(), 5.0)
        ended = loop.now
        await wait_signal(asyncio.Event(), -1.0)
        return ended, loop.now

    assert sim.run(main, 1).value == (5.0, 5.0)


def test_a_wait_without_an_end_is_for_the_signal_alone() -> None:
    async def main(loop: SimLoop) -> float:
        signal = asyncio.Event()
        loop.after(1000.0, signal.set)
        await wait_signal(signal, None)
        return loop.now

    assert sim.run(main, 1).value == 1000.0


def test_a_group_forgets_those_who_are_done_and_ends_the_others_in_the_order_of_their_start() -> None:
    async def main(loop: SimLoop) -> tuple[int, list[str]]:
        ended: list[str] = []

        async def stays(name: str) -> None:
            try:
                await loop.create_future()
            finally:
                ended.append(name)

        async with Tasks() as tasks:
            for name in ("a", "b", "c"):
                tasks.start(stays(name), name)
            for _ in range(20 * TASKS_DONE_MAX):
                await tasks.start(sleep(0.001), "short")
            kept = len(tasks._tasks)
            loop.seeded = (0, 0)  # whoever is cancelled first ends first
            tasks.cancel()
        return kept, ended

    kept, ended = sim.run(main, 1).value
    assert kept <= 2 * TASKS_DONE_MAX
    assert ended == ["a", "b", "c"]
