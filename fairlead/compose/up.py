"""`fairlead up`, `down` and `chaos`: the local platform from nothing until it is ready, and to its end. Called by main.py."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fairlead.compose.chaos import Chaos
from fairlead.compose.layout import Layout
from fairlead.compose.local import Interrupted, Local, PortTaken
from fairlead.compose.own_users import are_possible
from fairlead.compose.program import stop_on_signals
from fairlead.compose.renewing import Renewing
from fairlead.compose.users_later import AS_ROOT, give_users
from fairlead.compose.wiring import PLANES
from fairlead.ports import Clock, Ids

Say = Callable[[str], None]


async def up(state: Path, stores: dict[str, str], node_lease_s: float, clock: Clock, ids: Ids, detach: bool, say: Say) -> bool:
    """False: it was told to stop before it was ready. Nothing of it runs then."""
    layout = Layout(state.resolve(), sys.executable)
    local = Local(layout, clock)
    _make_layout(layout, local, stores, node_lease_s, clock, ids, say)
    stopped = asyncio.Event()
    stop_on_signals(stopped.set)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        # Its processes have sessions of their own: nobody else would tell them that the terminal is gone.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stopped.set)
    try:
        ready = await _started(layout, local, clock, stopped, say)
        if ready and detach:
            return True
        if not ready or await local.wait_stopped(stopped):
            _tell(say, ["stopping"])
    except PortTaken:
        raise
    except BaseException:
        await local.processes.stop_all()
        raise
    await local.processes.stop_all()
    return ready


async def _started(layout: Layout, local: Local, clock: Clock, stopped: asyncio.Event, say: Say) -> bool:
    began = clock.monotonic()
    try:
        await local.start(stopped)
    except Interrupted:
        return False
    late = await local.wait_nodes(stopped)
    if stopped.is_set():
        return False
    took_s, agents = clock.monotonic() - began, len(local.processes.agents())
    said = [f"ready after {took_s:.1f} s: a global plane, {len(PLANES) - 1} regions, {agents} agents"]
    if late:
        said.append(f"not ready yet: {', '.join(late)}; `fairlead get nodes` shows when they are, {layout.path('logs')} why not")
    _tell(say, [*said, _what_next(layout, local)])
    return True


def _tell(say: Say, lines: Sequence[str]) -> None:
    """What runs goes on, and what stops is stopped, whoever still reads: a pipe may be closed (`| head`), a terminal gone."""
    with suppress(OSError):
        for line in lines:
            say(line)


def _make_layout(
    layout: Layout, local: Local, stores: dict[str, str], node_lease_s: float, clock: Clock, ids: Ids, say: Say
) -> None:
    """Raises ValueError for what cannot be."""
    unknown = sorted(set(stores) - set(PLANES))
    if unknown:
        raise ValueError(f"--store: there is no plane {unknown[0]}; there are {', '.join(PLANES)}")
    if len(set(stores.values())) < len(stores):
        raise ValueError("--store: two planes cannot share one store; PostgreSQL: add ?plane=NAME, etcd: another prefix")
    if not 3 <= node_lease_s <= 120:
        raise ValueError(f"--node-lease: {node_lease_s:g} is not in 3..120 seconds")
    if layout.is_ready and local.processes.running():
        raise ValueError(f"the platform in {layout.state} runs already; `fairlead down` stops it")
    if not layout.is_ready:
        say("making certificates, tokens and configurations")
        layout.state.parent.mkdir(parents=True, exist_ok=True)  # a way that is not there yet is one that nobody gets through
        own_users = are_possible(sys.executable, layout.state)
        if os.getuid() == 0 and not own_users:
            say(AS_ROOT)
        layout.write(datetime.fromtimestamp(clock.wall(), tz=UTC), ids, stores, node_lease_s, own_users=own_users)
    elif stores:
        raise ValueError(f"--store: {layout.state} has its stores since its first start; remove it, or name another --state")
    else:
        layout.guard()
        for line in (*Renewing(layout, clock).at_start(ids), *give_users(layout, local.processes, sys.executable)):
            say(line)


def _what_next(layout: Layout, local: Local) -> str:
    kubeconfig, client = layout.path("kubeconfig"), layout.path("client.json")
    return "\n".join(
        (
            "try:",
            f"  export KUBECONFIG={kubeconfig} FAIRLEAD_CONFIG={client}",
            "  fairlead get workloads -A          kubectl get workloads -A",
            "  fairlead get nodes                 kubectl get nodes",
            "  fairlead describe wl/risk-api -n risk",
            "  fairlead probe risk-api -n risk    what a client sees",
            "  fairlead chaos kill-node us-east-general-a",
            f"endpoints: DNS at {local.dns} (svc.fairlead.local), documents in {local.documents}",
            f"what each process says: {layout.path('logs')}",
        )
    )


async def down(state: Path, clock: Clock, say: Say) -> bool:
    """Stops a platform, whoever started it. False: nothing ran."""
    layout = Layout(state.resolve(), sys.executable)
    if not layout.is_ready:
        return False
    stopped = await Local(layout, clock).processes.stop_all()
    for name in stopped:
        say(f"stopped {name}")
    return bool(stopped)


def chaos(state: Path, clock: Clock) -> Chaos:
    return Chaos(Layout(state.resolve(), sys.executable), clock)
