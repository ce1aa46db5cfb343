"""What an earlier version stored is read by this one: every batch, every object, and by a server that takes the plane over."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.model import codec
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.registry import GLOBAL, KINDS
from fairlead.observe.checkers import JournalChecker
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.platform import Platform
from fairlead.sim.scenario import Scenario
from fairlead.sim.walls import unheard, walls
from fairlead.store.contract import FORMAT, Committed, Fence
from tests.sim.formats import HERE, path_of, read

STORED = sorted(HERE.glob("format-*.bin"))


def test_the_present_format_has_a_file() -> None:
    assert path_of(FORMAT) in STORED, "write it with python -m tests.sim.formats"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_every_batch_and_every_object_of_it_can_be_read(path: Path) -> None:
    plane = read(path)
    checker = JournalChecker()
    commands = 0
    for stored in plane.journal:
        blob = decode_blob(stored.blob)
        assert blob.header.format == plane.format
        commands += sum(decode_command(entry.command) is not None for entry in blob.entries)
        checker.feed(stored.batch())
    assert checker.violations == []
    assert commands > 50
    seen = 0
    for key, raw in plane.rows:
        plural, tenant, name = key.split("/", 2)
        if plural in KINDS:
            assert codec.decoder(KINDS[plural].record).decode(raw) == checker.objects[plural][tenant, name]
            seen += 1
    assert seen > 20


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_server_of_this_version_takes_it_over_and_serves_what_is_there(path: Path) -> None:
    plane = read(path)

    async def main(loop: SimLoop) -> list[str]:
        platform = Platform(loop, Scenario(1, servers=1, nodes=3))
        disk = platform.planes[plane.region].store.disk
        fence = disk.acquire("earlier", disk.head)
        assert isinstance(fence, Fence)
        for stored in plane.journal:
            assert isinstance(disk.commit(fence, stored.batch()), Committed)
        platform.start()
        for _ in range(600):
            await sleep(0.1)
            leaders = platform.planes[plane.region].leaders()
            if leaders and platform.planes[GLOBAL].leaders():
                break
        view = leaders[0].authority.view()
        bound = [key.split("/", 2) for key, _ in plane.rows if key.startswith("bindings/")]
        assert bound
        return [name for _, tenant, name in bound if view.get("bindings", tenant, name) is None]

    with unheard(), walls():
        assert sim.run(main, 1).value == []
