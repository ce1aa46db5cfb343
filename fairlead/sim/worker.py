"""Runs scenarios in a process of its own: a list of them on standard input, one verdict a line on standard output.

Each is run by a child that ends with it: clearing a world away took a tenth of its time, and the system does it at once. Started
by campaign.py (`python -m fairlead.sim.worker`), so that campaigns use several cores and hash seeds can be compared.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

import msgspec

from fairlead.sim.scenario import Scenario
from fairlead.sim.world import run_scenario

UNWANTED = 141  # as a shell says it of who wrote where nobody reads: the campaign was stopped


def main() -> None:
    scenarios = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Scenario])
    gc.collect()
    gc.freeze()  # or a collection in a child would copy every page of what they all share
    for scenario in scenarios:
        child = os.fork()
        if not child:
            _run(scenario)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            os._exit(code if code > 0 else 128 - code)  # whoever started this is told, and starts another for the rest


def _run(scenario: Scenario) -> NoReturn:
    """In the child. Whatever happens, it does not go on with the list."""
    code = 1
    try:
        sys.stdout.buffer.write(msgspec.json.encode(run_scenario(scenario, last=True)) + b"\n")
        sys.stdout.buffer.flush()
        code = 0
    except BrokenPipeError:
        code = UNWANTED
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(code)


if __name__ == "__main__":
    main()
