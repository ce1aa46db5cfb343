"""Which users the instances of a local platform run as: of their own, where root starts it and such a user could run the samples.

Owns the try, and who gets which users. Gives nothing away itself: the agent's driver does. Called by up.py, layout.py and
local_nodes.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fairlead.agent.drivers.capabilities import lacking

FIRST: Final = 200_000
PER_NODE: Final = 1_000  # the agents of one machine share none, or one tenant's process could look into another's
_PROVIDED: Final = 20  # blocks before this one are for the platform's own nodes
_PER_REGION: Final = 10  # as many nodes of pools have users that no other node has
_LAST: Final = 259_999
_TRY_S: Final = 20.0
_TRY: Final = "import os, sys, fairlead.samples.program; os.stat(sys.argv[1])"


def are_possible(python: str, state: Path) -> bool:
    """Tried and not worked out: a checkout or an interpreter is often readable by its owner only, a container may have no such
    users, and root itself may lack the rights."""
    if os.getuid() != 0 or lacking():
        return False
    try:
        tried = subprocess.run(
            [python, "-c", _TRY, f"{state.parent}/."], user=_LAST, group=_LAST, extra_groups=(), cwd="/", env={},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_TRY_S, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def of_node(number: int) -> tuple[int, int]:
    assert number < _PROVIDED, "more nodes than the samples have"
    return FIRST + number * PER_NODE, PER_NODE


def of_earlier(region: int, taken: Iterable[int]) -> tuple[int, int]:
    """For a node that was made without; `taken`: the first users of those that have some."""
    used = set(taken)
    blocks = (of_node(number) for number in range(_PROVIDED))
    return next((block for block in blocks if block[0] not in used), None) or of_provided(region, used)


def of_provided(region: int, taken: Iterable[int]) -> tuple[int, int]:
    """For one more node of a pool; `taken`: the first users of nodes there are. Regions have blocks apart: each has a server of
    its own that gives them out."""
    used = set(taken)
    blocks = [FIRST + (_PROVIDED + region * _PER_REGION + number) * PER_NODE for number in range(_PER_REGION)]
    return next((first for first in blocks if first not in used), blocks[-1]), PER_NODE
