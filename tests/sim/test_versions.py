"""Programs of the version before: what they leave out, what they leave alone, and whole platforms in which both run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.agent.remembered import Remembered
from fairlead.authority.remembering import Remembering, Seen
from fairlead.client.channel import ANSWER, UNFOLLOWS, VERSION, decode, encode
from fairlead.client.remote_feed import heard_or_none
from fairlead.model import codec
from fairlead.model.commands import Bind, Caller, Command, Report
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role
from fairlead.sim.campaign import MIX, scenario_of
from fairlead.sim.coverage import void_reasons
from fairlead.sim.versions import BEFORE, Earlier, EarlierMemory, EarlierSeen, Versions
from fairlead.sim.world import run_scenario


class Wire:
    """One end of a channel: what was sent over it, and what is to be received."""

    def __init__(self, frames: Sequence[list[Any]] = ()) -> None:
        self.sent: list[list[Any]] = []
        self._frames = [encode(frame) for frame in frames]

    async def send(self, frame: bytes) -> None:
        self.sent.append(decode(frame))

    async def receive(self) -> bytes:
        return self._frames.pop(0)

    async def close(self) -> None: ...


class Small:
    """A small file, in memory."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes, *, durable: bool) -> None:
        self.data = data


def report(session: int) -> bytes:
    body = Report("risk", "api-0", Token(1, 2, 3), session=session)
    return codec.encode(Command(Caller("a", Role.AGENT), body))


async def test_it_says_hello_as_the_version_before() -> None:
    wire = Wire()
    await Earlier(wire).send(encode([1, "hello", VERSION, "agent x"]))
    assert wire.sent == [[1, "hello", BEFORE, "agent x"]]
    assert BEFORE < UNFOLLOWS <= VERSION, "it ends no feed"


async def test_its_reports_name_no_session_and_its_other_commands_are_untouched() -> None:
    wire = Wire()
    bind = codec.encode(Command(Caller("s", Role.SCHEDULER), Bind("risk", "api-0", 1, 1, "report", 1, 1)))
    await Earlier(wire).send(encode([1, "submit", [report(7), bind]]))
    [[_, _, [first, second]]] = wire.sent
    assert codec.decoder(Command).decode(first).body == Report("risk", "api-0", Token(1, 2, 3))
    assert second == bind, "though a word of it is report"


async def test_it_hears_no_more_of_an_answer_than_it_knew_and_says_no_more() -> None:
    told = ["heard", 1, 5, [], [], None, None, 15.0, 40.0]
    asking = Earlier(Wire([[1, ANSWER, told]]))
    await asking.send(encode([1, "heartbeat", "node"]))
    asked = heard_or_none(decode(await asking.receive())[2])
    assert asked is not None
    assert (asked.epoch, asked.lease_s, asked.longest_s) == (5, 0.0, 0.0)

    wire = Wire([[1, "heartbeat", "node"], [2, "get", "nodes", "", "n"], [3, "now"]])
    answering = Earlier(wire)
    for answer in (told, ["nodes", "", "n", 9, b"raw", 2], [1_000, 4, 60.0]):
        number = decode(await answering.receive())[0]
        await answering.send(encode([number, ANSWER, answer]))
    assert [frame[2] for frame in wire.sent] == [told[:-2], ["nodes", "", "n", 9, b"raw"], [1_000, 4]]


async def test_what_is_refused_or_missing_is_passed_on() -> None:
    wire = Wire([[1, "get", "nodes", "", "n"], [2, "heartbeat", "node"], [3, "heartbeat", "node"]])
    answering = Earlier(wire)
    for answer in ([ANSWER, None], [1, "NotLeader", "r/1"], [ANSWER, ["unknown"]]):
        number = decode(await answering.receive())[0]
        await answering.send(encode([number, *answer]))
    assert wire.sent == [[1, ANSWER, None], [2, 1, "NotLeader", "r/1"], [3, ANSWER, ["unknown"]]]


def test_a_file_it_wrote_over_gives_what_it_knew_and_takes_the_rest_for_stale() -> None:
    small = Small()
    lease_s, position = 40.0, 10
    present = Remembering(small)
    present.note(Seen(1, 2, position, b"a" * 32, lease_s), 0)
    assert Remembering(EarlierSeen(small)).last() == Seen(1, 2, position, b"a" * 32)

    Remembering(EarlierSeen(small)).note(Seen(1, 3, position + 1, b"b" * 32, 15.0), 0)
    assert Remembering(small).last() == Seen(1, 3, position + 1, b"b" * 32), "the lease beside it was an earlier leader's"


def test_its_memory_has_no_lease_of_a_leader() -> None:
    small = Small()
    present = Remembered(small)
    present.hear(1, 2, 40.0)
    present.begin_session(3)
    assert present.save()
    earlier = Remembered(EarlierMemory(small))
    assert (earlier.session, earlier.leader, earlier.lease_s) == (3, (1, 2), 0.0)
    earlier.hear(1, 3, 15.0)
    assert earlier.save()
    assert Remembered(small).leader == (1, 3)
    assert "lease_s" not in msgspec.msgpack.decode(small.data or b"")


def test_lives_are_drawn_only_where_two_versions_run() -> None:
    draws = random.Random(1)
    state = draws.getstate()
    assert not Versions(0.0, draws).is_earlier()
    assert draws.getstate() == state, "nothing else is drawn otherwise because of it"
    drawn = [Versions(0.5, draws).is_earlier() for _ in range(200)]
    assert 60 < sum(drawn) < 140


def test_both_versions_speak_with_each_other_and_nothing_is_found() -> None:
    verdict = run_scenario(scenario_of(1, "versions", 1.0))
    assert not verdict.findings
    assert verdict.counts["F18"] > 20


def test_a_campaign_of_one_version_alone_is_void() -> None:
    assert "versions" in MIX
    assert [reason["name"] for reason in void_reasons({}, {}, 1, 0, directed="versions")] == ["F18"]
    assert not void_reasons({"F18": 1_000}, {}, 2_000, 0, directed="versions")
