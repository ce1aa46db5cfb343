"""Owns what a campaign keeps of itself while it runs: one line a seed, so that one that was interrupted goes on where it was.

A line is a scenario, its verdict and the code that was simulated. A seed is known only under the very scenario that is asked for
now, and for the very code; a line that was cut short is no line. Knows nothing of what was found. Called by campaign.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from fairlead.observe.build import source
from fairlead.sim.scenario import Scenario
from fairlead.sim.world import Verdict

# What no simulated program loads, by how the paths begin: a change there leaves a campaign what it was.
NOT_SIMULATED: Final = (
    "cli/", "compose/chaos.py", "compose/local.py", "compose/up.py", "drills/", "main.py", "observe/dashboards.py",
    "observe/otel", "store/compact.py", "store/etcd", "store/postgres", "store/sqlite",
    "store/verify.py",
)  # fmt: skip


class Line(msgspec.Struct, frozen=True):
    scenario: Scenario
    verdict: Verdict
    code: str  # that came to it


class Kept:
    """The file of one campaign; without a path, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._code = source(NOT_SIMULATED)

    def known(self, wanted: Iterable[Scenario]) -> dict[int, Verdict]:
        """By seed: what came of those that were run already."""
        if self._path is None or not self._path.exists():
            return {}
        asked = {scenario.seed: scenario for scenario in wanted}
        out = {}
        for text in self._path.read_bytes().splitlines():
            try:
                line = msgspec.json.decode(text, type=Line)
            except msgspec.DecodeError:
                continue
            if asked.get(line.scenario.seed) == line.scenario and line.code == self._code:
                out[line.scenario.seed] = line.verdict
        return out

    def add(self, scenario: Scenario, verdict: Verdict) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(
                    b"\n" + msgspec.json.encode(Line(scenario, verdict, self._code))
                )  # what was cut short before it ends here
