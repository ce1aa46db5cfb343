"""What a shim makes of several orders that come to it at once, as they do on a machine that is busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.agent.drivers.directories import send_order
from fairlead.ports import SystemClock
from tests.agent.processes import driven, instance, sh

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    "orders", ["kill unhealthy\nstop 600.000\n", "stop 600.000\nkill unhealthy\n", "stop 600.000\nstop 0.000\n"]
)
async def test_an_order_to_end_at_once_is_not_put_off_by_one_to_end_later(tmp_path: Path, orders: str) -> None:
    clock = SystemClock()
    async with driven(tmp_path, cgroups=False) as made:
        await made.start(sh(STUBBORN))
        await made.output(wanted=b"up")
        began = clock.monotonic()
        assert send_order(made.driver._runs[instance()].folder, orders)
        end = await made.end()
        assert end.cause == ("unhealthy" if "kill" in orders else "stopped")
        assert clock.monotonic() - began < 60


async def test_an_order_of_many_is_read_whole(tmp_path: Path) -> None:
    async with driven(tmp_path, cgroups=False) as made:
        await made.start(sh("trap 'sleep 0.3; exit 7' TERM; echo up; while :; do sleep 0.05; done"))
        await made.output(wanted=b"up")
        assert send_order(made.driver._runs[instance()].folder, "stop 30.000\n" * 100)
        assert (await made.end()).code == 7, "it was given its time"
