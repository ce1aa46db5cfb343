"""The simulated network: order within a connection, what a cut holds back, what a reset loses, who learns of a death and when."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlead.client.channel import Closed
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Machines, Running, for_ever
from fairlead.sim.network import End, Network


class Rig:
    """A server that keeps what it receives, and a client that dials it."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.machines = Machines(loop)
        self.network = Network(self.machines)
        self.here, self.there = self.machines.machine("a/client"), self.machines.machine("b/server")
        self.got: list[Any] = []
        self.server_end: End | None = None
        self.ended = ""
        self.server = self.machines.program("server", self.there, self._serve)
        self.client = self.machines.program("client", self.here, lambda running: for_ever())
        self.server.start()
        self.client.start()

    async def _serve(self, running: Running) -> None:
        self.network.listen(running, "https://server", "channel", self._accept)
        await for_ever()

    async def _accept(self, end: End, hello: Any) -> None:
        self.server_end = end
        try:
            while True:
                self.got.append(await end.receive())
        except Closed as error:
            self.ended = str(error)

    async def dial(self) -> End:
        await sleep(0.1)
        assert self.client.running is not None
        return await self.network.dial(self.client.running, "https://server", "channel", "me", self.there)

    def cut(self, *, back: bool = True) -> None:
        self.network.block(self.here, self.there)
        if back:
            self.network.block(self.there, self.here)

    def join(self) -> None:
        self.network.unblock(self.here, self.there)
        self.network.unblock(self.there, self.here)


def rigged(work: Callable[[Rig], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    async def main(loop: SimLoop) -> Any:
        return await work(Rig(loop))

    return sim.run(main, seed).value


def test_frames_arrive_once_and_in_order_even_when_packets_are_lost() -> None:
    async def work(rig: Rig) -> None:
        end = await rig.dial()
        for link in rig.network.links().values():
            link.loss = 0.3
        for number in range(50):
            await end.send(number)
        await sleep(60.0)
        assert rig.got == list(range(50))
        assert rig.machines.counts["F1"] > 5

    for seed in range(3):
        rigged(work, seed)


def test_a_cut_link_holds_frames_back_until_it_is_joined() -> None:
    async def work(rig: Rig) -> None:
        end = await rig.dial()
        rig.cut()
        await end.send("late")
        await sleep(5.0)
        assert rig.got == []
        rig.join()
        await sleep(1.0)
        assert rig.got == ["late"]

    rigged(work)


def test_one_direction_can_be_cut_alone() -> None:
    async def work(rig: Rig) -> None:
        end = await rig.dial()
        rig.cut(back=False)
        await end.send("held")
        assert rig.server_end is not None
        await rig.server_end.send("heard")
        assert await end.receive() == "heard"
        assert rig.got == []

    rigged(work)


def test_a_dialler_notices_a_long_cut_by_its_pings_and_the_acceptor_only_when_it_is_joined() -> None:
    async def work(rig: Rig) -> None:
        end = await rig.dial()
        rig.cut()
        with pytest.raises(Closed, match="pings"):
            await end.receive()
        assert 10.0 <= rig.loop.now <= 16.0
        assert rig.ended == ""
        rig.join()
        await sleep(1.0)
        assert rig.ended

    rigged(work)


def test_a_reset_loses_what_was_under_way_and_both_ends_learn_it() -> None:
    async def work(rig: Rig) -> None:
        end = await rig.dial()
        await end.send("lost")
        rig.network.reset(end)
        with pytest.raises(Closed, match="reset"):
            await end.receive()
        await sleep(1.0)
        assert rig.got == []
        assert "reset" in rig.ended

    rigged(work)


def test_a_killed_process_is_noticed_at_once_and_a_dead_machine_only_by_pings() -> None:
    async def killed(rig: Rig) -> float:
        end = await rig.dial()
        rig.server.kill()
        with pytest.raises(Closed):
            await end.receive()
        return rig.loop.now

    async def without_power(rig: Rig) -> float:
        end = await rig.dial()
        rig.there.up = False
        rig.server.kill(silent=True)
        with pytest.raises(Closed):
            await end.receive()
        return rig.loop.now

    assert rigged(killed) < 1.0
    assert rigged(without_power) > 10.0


def test_nobody_listens_is_a_refusal_and_a_dead_machine_is_silence() -> None:
    async def refused(rig: Rig) -> None:
        rig.server.kill()
        with pytest.raises(ConnectionRefusedError):
            await rig.dial()

    async def silent(rig: Rig) -> None:
        rig.there.up = False
        rig.server.kill(silent=True)
        with pytest.raises(Closed, match="no answer"):
            await rig.dial()

    rigged(refused)
    rigged(silent)


def test_a_paused_server_accepts_and_reads_later() -> None:
    async def work(rig: Rig) -> None:
        rig.server.pause()
        end = await rig.dial()
        await end.send("early")
        await sleep(3.0)
        assert rig.got == []
        rig.server.resume()
        await sleep(0.1)
        assert rig.got == ["early"]

    async def delayed(rig: Rig) -> None:
        await sleep(0.05)
        await work(rig)

    rigged(delayed)


def test_a_late_frame_of_an_old_connection_can_arrive_after_those_of_a_new_one() -> None:
    async def work(rig: Rig) -> None:
        old, new = await rig.dial(), await rig.dial()
        link = rig.network.link(rig.here, rig.there)
        low_s, high_s = link.low_s, link.high_s
        link.low_s = link.high_s = 5.0
        await old.send("old")
        link.low_s, link.high_s = low_s, high_s
        await new.send("new")
        await sleep(10.0)
        assert rig.got == ["new", "old"]
        assert rig.machines.counts["F3"] == 1

    rigged(work)


def test_a_clogged_link_holds_everything_and_lets_connections_go_in_any_order_each_in_its_own() -> None:
    async def work(rig: Rig) -> list[Any]:
        ends = [await rig.dial() for _ in range(3)]
        rig.network.clog(rig.here, rig.there)
        for number in range(4):
            for name, end in zip("abc", ends, strict=True):
                await end.send((name, number))
        await sleep(5.0)
        assert rig.got == []
        assert rig.machines.counts["F6"] == 0
        rig.network.unclog(rig.here, rig.there)
        await sleep(5.0)
        assert rig.machines.counts["F6"] == 1
        for name in "abc":
            assert [number for who, number in rig.got if who == name] == [0, 1, 2, 3]
        return [name for name, number in rig.got if number == 0]

    orders = {tuple(rigged(work, seed)) for seed in range(8)}
    assert len(orders) > 2, "whoever was first does not stay first"


def test_a_clog_that_held_nothing_is_not_counted_and_one_under_a_cut_is_held_by_that() -> None:
    async def work(rig: Rig) -> None:
        end = await rig.dial()
        rig.network.clog(rig.here, rig.there)
        rig.network.unclog(rig.here, rig.there)
        assert rig.machines.counts["F6"] == 0
        rig.network.clog(rig.here, rig.there)
        await end.send("late")
        rig.cut()
        rig.network.unclog(rig.here, rig.there)
        await sleep(2.0)
        assert rig.got == []
        rig.join()
        await sleep(1.0)
        assert rig.got == ["late"]

    rigged(work)


def test_a_cut_is_counted_once_and_only_where_anybody_had_something_to_say() -> None:
    async def work(rig: Rig) -> None:
        end, counts = await rig.dial(), rig.machines.counts
        both = [(rig.here, rig.there), (rig.there, rig.here)]
        rejoin = rig.network.cut(both)
        rejoin()
        await end.send("before")
        assert counts["F5"] == 0
        rejoin = rig.network.cut(both)
        for word in ("held", "too"):
            await end.send(word)
        assert counts["F5"] == 1
        rejoin()
        await sleep(1.0)
        assert (rig.got, counts["F5"]) == (["before", "held", "too"], 1)

    rigged(work)


def test_a_slow_link_is_counted_when_it_is_used_and_is_as_before_afterwards() -> None:
    async def work(rig: Rig) -> None:
        end, counts, link = await rig.dial(), rig.machines.counts, rig.network.link(rig.here, rig.there)
        usual_s = link.high_s
        rig.network.slow([link], 4.0)()
        await end.send("before")
        assert (link.high_s, counts["F4"]) == (usual_s, 0)
        quicken = rig.network.slow([link], 4.0)
        await end.send("late")
        await end.send("too")
        quicken()
        await end.send("after")
        assert (link.high_s, counts["F4"]) == (usual_s, 1)

    rigged(work)


def test_only_links_between_machines_that_have_carried_something_are_used() -> None:
    async def work(rig: Rig) -> None:
        other = rig.machines.machine("c/other")
        rig.network.block(rig.here, other)
        rig.network.carry(rig.here, rig.here, lambda: None)
        assert rig.network.used() == {}
        await rig.dial()
        assert set(rig.network.used()) == {("a/client", "b/server"), ("b/server", "a/client")}

    rigged(work)


def test_a_loss_holds_for_links_that_are_yet_to_be_made() -> None:
    async def work(rig: Rig) -> None:
        rig.network.lose(0.5)
        assert rig.network.links() == {}
        assert rig.network.link(rig.here, rig.there).loss == 0.5
        assert rig.network.link(rig.here, rig.here).loss == 0.0
        rig.network.lose(0.0)
        assert rig.network.link(rig.here, rig.there).loss == 0.0

    rigged(work)
