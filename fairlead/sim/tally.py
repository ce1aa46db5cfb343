"""Owns the count of refusals in a simulated platform: what each authority, agent and store said no to, over all their lives.

Reads the counters that production keeps anyway; a life's are taken when it dies. Where one reason stands for several guards, what
an authority answers says which it was (`guard_of`). A safeguard that never refused anything was not tested: coverage.py says how
often is enough. Fed by platform.py and world.py, read by world.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from fairlead.model.commands import Accepted, Body, Outcome, Put, Refused
from fairlead.sim.machines import Machines, Running

Source = Callable[[], Mapping[str, int]]


class Tally:
    def __init__(self, machines: Machines) -> None:
        self._alive: dict[Running, Source] = {}
        self._over: Counter[str] = Counter()
        machines.on_death.append(self._died)

    def watch(self, running: Running, source: Source) -> None:
        self._alive[running] = source

    def add(self, name: str) -> None:
        self._over[name] += 1

    def answered(self, body: Body, outcome: Outcome) -> None:
        if isinstance(outcome, Refused):
            self._over.update(guard_of(body, outcome))
        elif isinstance(outcome, Accepted):
            for _, refused in outcome.refused:  # parts of it
                self._over.update(guard_of(body, refused))

    def total(self) -> Counter[str]:
        out = Counter(self._over)
        for source in self._alive.values():
            out.update(source())
        return out

    def _died(self, running: Running, silent: bool) -> None:
        source = self._alive.pop(running, None)
        if source is not None:
            self._over.update(source())


def guard_of(body: Body, refused: Refused) -> tuple[str, ...]:
    """REASON/GUARD, where a reason has several; nothing else. A gate counts that was the only one to say no: of others nobody
    knows whether they were needed."""
    if refused.reason == "Expired":
        return ("Expired/override" if isinstance(body, Put) and body.kind == "Override" else "Expired/reservation",)
    if refused.reason == "FencedOut":
        return ("FencedOut/session",) if "session" in refused.facts else ()
    gates = tuple(refused.facts.get("reasons", ()))
    return (f"NoFit/{gates[0]}",) if len(gates) == 1 else ()
