"""An object that is written again and again within a second is told once, with who writes it."""

from __future__ import annotations

from msgspec import Raw

from fairlead.model import codec
from fairlead.model.commands import Caller, Command, PutStatus
from fairlead.model.journal import Blob, Entry, Header
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.lifecycle import Role
from fairlead.observe.fights import WRITES_MAX, FightChecker


def batch(key: str, role: Role, time_ms: int) -> Blob:
    command = Command(Caller("somebody", role), PutStatus("Node", "", "n1", NodeStatus()))
    return Blob(Header(1, 1, 1, "a", 1, time_ms), (Entry(Raw(codec.encode(command)), ((key, b"x"),)),))


def told(key: str, every_ms: int, writes: int = 2 * WRITES_MAX) -> list[str]:
    found: list[str] = []
    checker = FightChecker(found.append)
    for number in range(writes):
        checker.committed(batch(key, Role.AGENT if number % 2 else Role.NODE, 5_000 + number * every_ms))
    return found


def test_two_that_do_not_agree_are_named_once() -> None:
    (found,) = told("nodes//n1", 3)
    assert found.startswith(f"nodes//n1 was written {WRITES_MAX} times within a second: ")
    assert f"agent {WRITES_MAX // 2}" in found
    assert f"node-controller {WRITES_MAX // 2}" in found


def test_many_writes_over_several_seconds_are_no_fight() -> None:
    assert told("nodes//n1", 40) == []


def test_what_is_written_with_every_batch_is_none_either() -> None:
    assert told("sessions//c1", 3) == []
