"""Keeps an exported history as a regression test: `python -m tests.replays.keep FILE NAME`.

Copies it to tests/replays/NAME.fairlead, and what comes out of it today to NAME.json; tests/replays/test_kept.py asks for the
same ever after. Without arguments the example is recorded anew: a real authority and scheduler, a few slots, one that has to
wait, and another policy half way.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from fairlead.authority.judge import Settings
from fairlead.cli.replay import judged_again
from fairlead.main import decided_again
from fairlead.store.archive import Archive
from fairlead.store.export import Plane, write_export
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import REGION
from tests.scheduler.running import rig

HERE = Path(__file__).parent
BYTES_MAX = 64 << 10  # a kept history is a few kB: cut it down to what it is about


def outcome_of(path: Path) -> dict[str, Any]:
    """What must come out again: every verdict, the objects at the end, every placement."""
    judged, placed = judged_again(path), decided_again(path, "")
    return {
        "identical": judged["identical"],
        "judged": judged["judged"],
        "decisions_hash": judged["decisions_hash_now"],
        "state_hash": judged["state_hash_now"],
        "placements": {name: placed[name] for name in ("decided", "same", "waits", "waits_same", "now_hash")} if placed else {},
    }


def keep(path: Path, name: str) -> None:
    kept = HERE / f"{name}.fairlead"
    if path != kept:
        shutil.copyfile(path, kept)
    (HERE / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(outcome_of(kept)), indent=2) + b"\n")


async def record(disk: MemoryDisk) -> None:
    async with rig(store=MemoryStore(disk)) as found:
        for n in range(3):
            await found.plane.add_node(f"n{n}", cpu=4_000, zone="ab"[n % 2])
        await found.schedule()
        await found.bound(*[await found.ask("api", n) for n in range(3)])
        await found.end("api-1")
        await found.promote(1, packing="Balance")
        await found.bound(*[await found.ask("worker", n, cpu=500) for n in range(3)])
        await found.ask("huge", 0, cpu=8_000)
        await found.waits("huge-0", "NoMatchingCapacity")


def export(disk: MemoryDisk, folder: Path) -> Path:
    archive = Archive(folder / "history")
    for entry in disk.journal:
        archive.append(entry.batch)
    archive.sync()
    archive.close()
    path = folder / "all.fairlead"
    plane = Plane("region", REGION, Settings().node_lease_s, str(folder / "history"))
    write_export(plane, 0, path, "test")
    return path


def main(arguments: list[str]) -> None:
    if arguments:
        keep(Path(arguments[0]), arguments[1])
        return
    disk = MemoryDisk()
    asyncio.run(record(disk))
    with tempfile.TemporaryDirectory() as folder:
        keep(export(disk, Path(folder)), "example")


if __name__ == "__main__":
    main(sys.argv[1:])
