"""Runs scenarios in a process of its own: a list of them on standard input, one verdict a line on standard output.

Started by campaign.py (`python -m fairlead.sim.worker`), so that campaigns use several cores and hash seeds can be compared.
"""

from __future__ import annotations

import os
import sys

import msgspec

from fairlead.sim.scenario import Scenario
from fairlead.sim.world import run_scenario


def main() -> None:
    for scenario in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Scenario]):
        sys.stdout.buffer.write(msgspec.json.encode(run_scenario(scenario)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the campaign was stopped: nobody wants the rest
        os._exit(0)
