"""Gives the instances of a local platform users of their own where an earlier start as root gave them none: its agents are told
so, and what the instances have made by then becomes theirs. Else they would be root's as long as the state directory is there.

Owns when; nothing of the platform runs then. Which users, own_users.py says; the agent's directories give them away. Called by
up.py at every start but the first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from fairlead.agent.drivers.directories import Directories
from fairlead.compose.agent import AgentConfig
from fairlead.compose.layout import Layout
from fairlead.compose.own_users import are_possible, of_earlier
from fairlead.compose.processes import Processes
from fairlead.compose.wiring import REGIONS
from fairlead.security.files import write_private
from fairlead.wire import json_codec

AS_ROOT: Final = "workloads will run as root: no other user can read this Python, the checkout, or the way to the state directory"


def give_users(layout: Layout, processes: Processes, python: str) -> list[str]:
    """What to say of it. Nothing, where they have users or nobody could give them some."""
    configs = {name: processes.agent_config(name) for name in processes.agents()}
    without = [name for name, config in configs.items() if not config.uids]
    if os.getuid() != 0 or not without:
        return []
    if not are_possible(python, layout.state):
        return [AS_ROOT]
    if any(processes.work_of(without).values()):
        return ["workloads of before run still, as root: `fairlead down`, and the next `up` gives them users of their own"]
    layout.let_through()
    taken = [config.uid_range[0] for config in configs.values() if config.uids]
    given, left = 0, list[str]()
    for name in without:
        config = configs[name]
        users = of_earlier(REGIONS.index(config.region), taken)
        taken.append(users[0])
        for instance, was_given in _hand_over(config, users).items():
            given += was_given
            left += [] if was_given else [instance]
        write_private(layout.config_of(name), json_codec.encode(replace(config, uids=True, uid_range=users)))
    said = [f"workloads run as users of their own from now on; {given} that ran as root were given one, with their files"]
    if left:
        said.append(f"still root's: {', '.join(left)}; delete and create them anew, or remove {layout.state}")
    return said


def _hand_over(config: AgentConfig, users: tuple[int, int]) -> dict[str, bool]:
    """Every instance of that agent that is root's, and whether it is no longer."""
    out: dict[str, bool] = {}
    directories = Directories(Path(config.state))
    first, many = users
    for number, kept in enumerate(directories.all()):
        if kept.uid is not None:
            continue
        try:
            directories.hand_over(kept, first + number % many)
        except (OSError, RecursionError):
            out[f"{kept.id.tenant}/{kept.id.name}"] = False
        else:
            out[f"{kept.id.tenant}/{kept.id.name}"] = True
    return out
