"""Owns the checkers of one plane of a simulated platform, fed with every batch at the moment it becomes durable.

Knows what a store forgot, so that nobody is held to it. What is asked of several planes is world.py's, which calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.model.journal import decode_blob
from fairlead.observe.answers import AnswerChecker
from fairlead.observe.checkers import JournalChecker, Violation
from fairlead.observe.copies import Copies
from fairlead.observe.feeds import FeedChecker
from fairlead.observe.fights import FightChecker
from fairlead.observe.materialised import MaterialisedChecker
from fairlead.observe.promised import PromiseChecker
from fairlead.sim.follower import FOLLOWED
from fairlead.sim.loop import SimLoop
from fairlead.sim.platform import Plane
from fairlead.store.contract import Batch

Found = Callable[[str, str, str], None]  # told the invariant, the plane and what


class PlaneWatch:
    """The checkers of one plane, fed with every batch at the moment it becomes durable."""

    def __init__(self, loop: SimLoop, found: Found, plane: Plane, answers: AnswerChecker) -> None:
        """`answers` is one for all planes: what people are told comes through one door."""
        self._loop = loop
        self._report = found
        self.name = plane.name
        self.batches: list[Batch] = []
        self.times: dict[bytes, float] = {}  # when each batch became durable, by its hash
        self.checker = JournalChecker(bounds=True)
        self._answers = answers
        self.feeds = FeedChecker(FOLLOWED, self._told_wrong)
        self.promises = PromiseChecker(self._told_wrong)
        self.materialised = MaterialisedChecker()
        self.copies = Copies()  # wanted of each workload, also in what the store has lost since
        self.fights = FightChecker(lambda detail: found("X3", plane.name, detail))
        self.behind = False  # its store lost its tail, and nobody has begun to lead on what is left
        self.landed_s = 0.0  # when the last one did
        self._told = 0
        self._before: Counter[str] = Counter()
        self._disk = plane.store.disk
        plane.store.disk.committed = self.committed
        plane.store.disk.tail_lost = self._tail_lost

    def committed(self, batch: Batch) -> None:
        self.behind = False
        self._loop.note(batch.hash.hex())
        self.batches.append(batch)
        self.times[batch.hash] = self.landed_s = self._loop.now
        blob = decode_blob(batch.blob)
        self.checker.feed(batch, blob)
        self.fights.committed(blob)
        for tenant_name in (key for entry in blob.entries for key, _ in entry.effects if key.startswith("workloads/")):
            self._wanted(tenant_name)
        self.materialised.committed(blob, batch.first)
        self.feeds.committed(blob, batch.first)
        self.promises.committed(blob, batch.first)
        self._answers.committed(blob, batch.first, self.name)
        for violation in self.checker.violations[self._told :]:
            self._found(violation)
        self._told = len(self.checker.violations)

    def _wanted(self, key: str) -> None:
        tenant, name = key.split("/")[1:]
        workload = self.checker.objects["workloads"].get((tenant, name))
        if workload is not None:
            self.copies.wanted(workload, self._loop.now)

    def _told_wrong(self, invariant: str, detail: str) -> None:
        self._report(invariant, self.name, detail)

    def _found(self, violation: Violation) -> None:
        self._report(violation.invariant, self.name, f"at {violation.position}: {violation.detail}")

    def _tail_lost(self, position: int, incarnation: int) -> None:
        """What the store forgot is no longer history: the checkers go back to where it ends, and nobody is held to what was told
        of the rest in that incarnation."""
        self.behind = True
        self.feeds.lost(incarnation, position)
        self.promises.lost(incarnation, position)
        self._answers.lost(self.name, incarnation, position)
        self._before += Counter(self.checker.checked)
        self.batches = [batch for batch in self.batches if batch.last <= position]
        self.checker, self.materialised = JournalChecker(bounds=True), MaterialisedChecker()
        for batch in self.batches:
            blob = decode_blob(batch.blob)
            self.checker.feed(batch, blob)
            self.materialised.committed(blob, batch.first)
        self._before -= Counter(self.checker.checked)
        self._told = len(self.checker.violations)

    @property
    def checked(self) -> Counter[str]:
        return self._before + Counter(self.checker.checked)

    def objects_have_history(self) -> None:
        """S18: no object of the store is of a change that its journal has not got. S13: nor is one missing among them."""
        head = self._disk.head
        if head.materialised > head.position:
            self._report("S18", self.name, f"the store's objects are beyond its head: {head}")
        for detail in self.materialised.differences(self._disk.objects, head.materialised)[:1]:
            self._report("S13", self.name, f"among the store's objects {detail}")

    @property
    def objects(self) -> Mapping[str, Mapping[tuple[str, str], Any]]:
        return self.checker.objects
