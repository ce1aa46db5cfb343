"""A scheduler as a process of its own, on a plane server's channel.

`python -m tests.rigs.scheduler_process --channel PATH --report PATH --name NAME --index I --of N [--steal-after MS] [--seed S]`.
SIGTERM stops it gracefully. What it has counted stands in the report, written anew every moment, so that one that is killed
leaves word too. Test code, not a product API. Called by race_rig.py.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.partition import Partition
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from tests.rigs.plane_server import REGION
from tests.rigs.remote_plane import plane_at

REPORT_S = 0.1


class Report(msgspec.Struct):
    """Of one life of one scheduler."""

    name: str
    proposed: int = 0
    bound: int = 0
    victims: int = 0
    restarts: int = 0
    conflicts: int = 0
    refusals: dict[str, int] = {}


def report_of(name: str, scheduler: Scheduler) -> Report:
    meters = scheduler.meters
    return Report(
        name, meters.proposed_total, meters.bound_total, meters.victims_total, meters.restarts_total, meters.conflicts_total,
        dict(meters.refusals),
    )  # fmt: skip


def read_report(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def write_report(path: Path, report: Report) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(report))
    os.replace(draft, path)  # whole or not at all: it may be killed here


async def run(args: argparse.Namespace) -> None:
    partition = Partition(args.index, args.of, args.steal_after)
    settings = SchedulerSettings(name=args.name, region=REGION, hear_s=0.2, cycle_slots=64, partition=partition)
    async with Tasks() as tasks:
        plane = plane_at(args.channel, args.name, args.seed)
        scheduler = Scheduler(plane, SystemClock(), random.Random(args.seed), settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, scheduler.stop)
        tasks.start(plane.run(), "plane")
        await plane.wait_connected()
        working = tasks.start(scheduler.run(), "scheduler")
        while not working.done():
            write_report(args.report, report_of(args.name, scheduler))
            await asyncio.wait([working], timeout=REPORT_S)
        write_report(args.report, report_of(args.name, scheduler))
        tasks.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", required=True)
    parser.add_argument("--report", required=True, type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--steal-after", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    sys.setswitchinterval(0.0005)
    uvloop.run(run(args))


if __name__ == "__main__":
    main()
