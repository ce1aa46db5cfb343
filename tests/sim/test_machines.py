"""Machines and their programs: what a pause holds back, what a death drops, what a power cut leaves, how clocks run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Machines, Running, SimIds


def run(main: Any, seed: int = 1) -> Any:
    return sim.run(main, seed).value


def test_a_paused_process_does_nothing_while_its_clock_goes_on() -> None:
    async def main(loop: SimLoop) -> tuple[list[float], float]:
        machines = Machines(loop)
        ticks: list[float] = []

        async def tick(running: Running) -> None:
            while True:
                await sleep(1.0)
                ticks.append(round(loop.now))

        program = machines.program("ticker", machines.machine("a/one"), tick)
        program.start()
        await sleep(2.5)
        program.pause()
        await sleep(10.0)
        program.resume()
        await sleep(1.6)
        return ticks, round(loop.now, 1)

    ticks, _ = run(main)
    assert ticks[:2] == [1, 2], "it ran before"
    assert 12 in ticks or 13 in ticks, "what was due while it was paused happens when it is resumed"
    assert not [tick for tick in ticks if 3 < tick < 12], "nothing ran meanwhile"


def test_a_killed_process_runs_no_finally_and_starts_again_with_nothing_in_memory() -> None:
    async def main(loop: SimLoop) -> tuple[list[str], list[bytes | None]]:
        machines = Machines(loop)
        said: list[str] = []
        found: list[bytes | None] = []

        async def program_main(running: Running) -> None:
            machine = running.machine
            found.append(machine.file("kept").read())
            machine.file("kept").write(running.name.encode(), durable=True)
            try:
                await asyncio.Event().wait()
            finally:
                said.append(f"{running.name} unwound")

        program = machines.program("server", machines.machine("a/one"), program_main)
        program.start()
        await sleep(1.0)
        program.kill()
        await sleep(1.0)
        program.start()
        await sleep(1.0)
        return list(said), found

    said, found = run(main)
    assert said == []
    assert found == [None, b"server.1"]


def test_a_power_cut_takes_back_what_was_not_made_durable() -> None:
    async def main(loop: SimLoop) -> bytes | None:
        machine = Machines(loop).machine("a/one")
        machine.file("fence").write(b"old", durable=True)
        machine.file("fence").write(b"new", durable=False)
        machine.lose_power()
        return machine.file("fence").read()

    assert run(main) == b"old"


def test_what_was_not_made_durable_may_also_be_there_or_be_torn() -> None:
    async def main(loop: SimLoop) -> set[bytes | None]:
        machines, left, draws = Machines(loop), set[bytes | None](), loop.stream("power")
        for number in range(40):
            machine = machines.machine(f"a/{number}")
            machine.file("fence").write(b"old", durable=True)
            machine.file("fence").write(b"newer", durable=False)
            machine.file("tokens").write(b"kept", durable=True)
            machine.lose_power(draws)
            assert machine.file("tokens").read() == b"kept"
            left.add(machine.file("fence").read())
        assert machines.counts["F13"] > 0, "a torn one is counted"
        return left

    left = run(main)
    assert {b"old", b"newer"} < left
    assert all(data is not None and (data == b"old" or b"newer".startswith(data)) for data in left)


def test_a_full_disk_refuses_writes_and_a_broken_one_does_and_each_time_is_counted_once() -> None:
    async def main(loop: SimLoop) -> None:
        machines = Machines(loop)
        machine = machines.machine("a/one")
        machine.disk_full = True
        assert machines.counts["F13"] == 0
        with pytest.raises(OSError, match="no space"):
            machine.file("x").write(b"1", durable=True)
        with pytest.raises(OSError, match="no space"):
            machine.file("x").write(b"1", durable=True)
        assert machines.counts["F13"] == 1, "however often it is tried"
        machine.disk_full = False
        machine.file("x").write(b"1", durable=True)
        machine.disk_broken = True
        with pytest.raises(OSError, match="does not take it"):
            machine.file("x").write(b"1", durable=True)
        assert machines.counts["F13"] == 2

    run(main)


def test_machines_disagree_about_time_but_not_by_more_than_the_protocols_allow() -> None:
    async def main(loop: SimLoop) -> list[float]:
        machines = Machines(loop)
        passed: list[float] = []

        async def measure(running: Running) -> None:
            clock = machines.clock(running)
            begin = clock.monotonic()
            await clock.sleep(100.0)
            passed.append(loop.now)
            assert clock.monotonic() - begin == pytest.approx(100.0)

        for number in range(8):
            machines.program(f"p{number}", machines.machine(f"a/{number}"), measure).start()
        await sleep(120.0)
        assert machines.exits == []
        return passed

    passed = run(main)
    assert len({round(each, 6) for each in passed}) == 8, "no two clocks run alike"
    assert all(99.0 < each < 101.0 for each in passed)


def test_a_program_that_fails_is_started_again_and_the_failure_is_kept() -> None:
    async def main(loop: SimLoop) -> tuple[int, list[tuple[str, str]]]:
        machines = Machines(loop)

        async def fail(running: Running) -> None:
            await sleep(1.0)
            if running.name == "server.1":
                raise ValueError("a bug")

        program = machines.program("server", machines.machine("a/one"), fail)
        program.start()
        await sleep(10.0)
        return program.lives, machines.exits

    lives, exits = run(main)
    assert lives == 2
    assert exits[0][0] == "server.1"
    assert "a bug" in exits[0][1]


def test_ids_come_from_the_seed() -> None:
    async def main(loop: SimLoop) -> list[str]:
        ids = SimIds(loop.stream("ids"))
        return [ids.token() for _ in range(3)]

    assert run(main, 5) == run(main, 5) != run(main, 6)
    assert all(len(token) == 16 for token in run(main, 5))
