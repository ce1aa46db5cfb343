"""The seeded loop: one seed is one run, time is virtual, and a program that cannot go on is reported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.sim import loop as sim
from fairlead.sim.loop import Outcome, SimDeadlock, SimForbidden, SimLoop, SimOverrun, sleep
from fairlead.sim.process import HostClock, Process

ROOT = Path(__file__).resolve().parents[2]


async def race(loop: SimLoop, tasks: int = 5, rounds: int = 4) -> list[str]:
    """Tasks that become ready together, again and again, and write down who went first."""
    order: list[str] = []

    async def runner(name: str) -> None:
        for turn in range(rounds):
            order.append(f"{name}{turn}")
            await sleep(0.010)

    async with asyncio.TaskGroup() as group:
        for index in range(tasks):
            group.create_task(runner(chr(ord("a") + index)))
    return order


def run_race(seed: int) -> Outcome[list[str]]:
    return sim.run(race, seed)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_race(7) == run_race(7)


def test_other_seeds_give_other_orders() -> None:
    runs = [run_race(seed) for seed in range(20)]
    assert len({tuple(outcome.value) for outcome in runs}) == 20
    assert len({outcome.trace for outcome in runs}) == 20


def test_a_run_does_not_depend_on_the_runs_before_it() -> None:
    alone = run_race(3)
    run_race(1)
    run_race(2)
    assert run_race(3) == alone


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_fresh_interpreter_with_another_hash_seed_gives_the_same_trace(hash_seed: str) -> None:
    program = "from tests.sim.test_loop import run_race; print(run_race(11).trace)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONASYNCIODEBUG": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == run_race(11).trace


def test_time_is_virtual_and_jumps_to_the_next_timer() -> None:
    async def main(loop: SimLoop) -> float:
        await sleep(86_400.0)
        return loop.time()

    outcome = sim.run(main, 1)
    assert outcome.value == 86_400.0
    assert outcome.steps < 10


def test_whoever_sleeps_takes_one_step_each_time() -> None:
    async def main(loop: SimLoop) -> int:
        before = loop.steps
        for _ in range(10):
            await sleep(1.0)
        return loop.steps - before

    assert sim.run(main, 1).value == 10


def test_timers_fire_in_order_of_time_and_then_of_being_set() -> None:
    async def main(loop: SimLoop) -> list[str]:
        fired: list[str] = []
        for when, name in [(0.3, "late"), (0.1, "first"), (0.1, "second"), (0.2, "middle")]:
            loop.call_at(when, fired.append, name)
        await sleep(1.0)
        return fired

    for seed in range(10):
        assert sim.run(main, seed).value == ["first", "second", "middle", "late"]


def test_plain_callbacks_keep_their_order_whatever_the_seed() -> None:
    async def main(loop: SimLoop) -> list[int]:
        seen: list[int] = []
        for number in range(10):
            loop.call_soon(seen.append, number)
        await sleep(0)
        await sleep(0)
        return seen

    for seed in range(10):
        assert sim.run(main, seed).value == list(range(10))


def test_a_cancelled_timer_neither_fires_nor_holds_time_back() -> None:
    async def main(loop: SimLoop) -> float:
        for _ in range(2000):
            async with asyncio.timeout(50.0):
                await sleep(0.001)
        assert len(loop._timers) < 1000, "cancelled timers pile up"
        return loop.time()

    assert sim.run(main, 1).value == pytest.approx(2.0)


def test_a_timeout_ends_a_wait_in_virtual_time() -> None:
    async def main(loop: SimLoop) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await loop.create_future()
        return loop.time()

    assert sim.run(main, 1).value == 2.5


def test_a_deadlock_is_reported_with_the_names_of_those_who_wait() -> None:
    async def stuck(loop: SimLoop) -> None:
        await loop.create_future()

    async def main(loop: SimLoop) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stuck(loop), name="waits-for-ever")

    with pytest.raises(SimDeadlock, match="waits-for-ever"):
        sim.run(main, 1)


def test_a_livelock_ends_at_the_step_limit() -> None:
    async def main(loop: SimLoop) -> None:
        while True:
            await sleep(0)

    with pytest.raises(SimOverrun):
        sim.run(main, 1, steps_max=1000)


@pytest.mark.parametrize("timed", ["call_later", "call_at", "sleep"])
def test_whoever_waits_for_less_than_its_clock_can_show_gets_there(timed: str) -> None:
    """Simulator, seeds 1200044 and 1200626: a clock that counts from a million showed no time passing, twenty million times."""

    async def waits(loop: SimLoop, clock: HostClock, until: float) -> int:
        rounds = 0
        while (now := clock.local(loop.now)) < until:
            rounds += 1
            woken = loop.create_future()
            if timed == "sleep":
                await sleep((until - now) / 2)
                continue
            if timed == "call_later":
                loop.call_later((until - now) / 2, woken.set_result, None)
            else:
                loop.call_at(now + (until - now) / 2, woken.set_result, None)
            await woken
        return rounds

    async def program(loop: SimLoop) -> list[int]:
        out = []
        for step in range(50):
            clock = HostClock(local_s=900_000.0 + step / 7, rate=1.0 - step / 9_999)
            until = clock.local(loop.now) + 0.1
            out.append(await loop.spawn(Process(f"p{step}", clock), waits(loop, clock, until), "waits"))
        return out

    assert max(sim.run(program, 1, steps_max=20_000).value) < 60


def test_a_thread_is_refused() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.to_thread(len, "x")

    with pytest.raises(SimForbidden, match="port"):
        sim.run(main, 1)


def test_an_exception_in_a_callback_ends_the_run() -> None:
    def fail() -> None:
        raise ZeroDivisionError("in a callback")

    async def main(loop: SimLoop) -> None:
        loop.call_later(1.0, fail)
        await sleep(5.0)

    with pytest.raises(ZeroDivisionError):
        sim.run(main, 1)


def test_tasks_left_behind_are_cancelled_and_unwind() -> None:
    unwound: list[str] = []

    async def forever(loop: SimLoop) -> None:
        try:
            await loop.create_future()
        finally:
            unwound.append("yes")

    async def main(loop: SimLoop) -> str:
        loop.create_task(forever(loop))
        await sleep(1.0)
        return "done"

    assert sim.run(main, 1).value == "done"
    assert unwound == ["yes"]


def test_a_set_of_tasks_has_the_same_order_in_every_run() -> None:
    async def main(loop: SimLoop) -> list[str]:
        async def nothing() -> None: ...

        tasks = {loop.create_task(nothing(), name=f"t{number}") for number in range(50)}
        order = [task.get_name() for task in tasks]
        await asyncio.gather(*tasks)
        return order

    first = sim.run(main, 1).value
    ballast = [object() for _ in range(1000)]  # moves later allocations to other addresses
    assert sim.run(main, 1).value == first
    del ballast


def test_streams_of_draws_do_not_move_each_other() -> None:
    async def main(loop: SimLoop) -> list[float]:
        one, other = loop.stream("network"), loop.stream("disk")
        for _ in range(loop.seed):  # draws on one stream
            one.random()
        return [other.random() for _ in range(3)]

    loop = SimLoop(5)
    try:
        expected = loop.stream("disk")
        assert sim.run(main, 5).value == [expected.random() for _ in range(3)]
    finally:
        loop.close()
