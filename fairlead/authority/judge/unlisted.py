"""Nodes that have not said what they run since this incarnation began, and may run what nobody remembers (P6, P10).

A store that lost its tail may have lost that a slot was bound. Its node runs it until its agent has listed it and was told to end
it, or has not been heard for so long that it has ended by itself. Until then no Exclusive slot is bound: it might be that one
(S12). Until those that are well have listed, nothing is asked of the global plane either: the ledger may know less than is used,
and an offer below that would be taken (S5). Owned by the judge's context; asked when such a slot is bound, and by granting.py.
"""

from __future__ import annotations

from fairlead.authority.ledger import Ledger, NodeAccount


class Unlisted:
    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._incarnation = 0
        self._left: dict[str, NodeAccount] = {}

    def one(self, incarnation: int, fenced_ms: int) -> str:
        """The name of one, empty where there is none left. Who was last heard before `fenced_ms` has ended what it must."""
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            # One that never listed before has run nothing, or what it ran and said was lost, and has ended: `refuse_unlisted`
            # waits for that before it asks here. Unless it has registered again since then: heartbeats count from there on, and
            # until it is schedulable it may be running that still. Those that come later begin with nothing.
            unlisted = {name: each for name, each in self._nodes.items() if each.listed_in < incarnation}
            older = {name: each for name, each in unlisted.items() if each.listed_in or not each.schedulable}
            self._left = older if incarnation > 1 else {}
        while self._left:
            name, account = next(iter(self._left.items()))
            if account.listed_in < incarnation and account.observed_ms >= fenced_ms:
                return name
            del self._left[name]
        return ""

    def any_well(self, incarnation: int) -> str:
        """The name of one that is well, as far as is known, and has not listed yet; empty where all have."""
        for name, each in self._nodes.items():
            if each.healthy and 0 < each.listed_in < incarnation:
                return name
        return ""
