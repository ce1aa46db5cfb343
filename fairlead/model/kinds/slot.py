"""What identifies a slot and one life of it: the reference, the fencing token, the last transition."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Evidence, Record

STANDING: Final = "standing."  # and the budget: in place of the workload, where room is held instead of run


class SlotRef(Record, frozen=True):
    """One replica of a workload. Its objects (request, reservation, binding, instance) are named `WORKLOAD-INDEX`."""

    workload: str
    uid: str  # of the workload, so that a deleted and recreated one is another
    index: int

    @property
    def object_name(self) -> str:
        return f"{self.workload}-{self.index}"


class Token(Record, frozen=True, order=True, array_like=True):
    """The fencing token of one life of a slot (P6). Compared field by field; an agent refuses a lower one."""

    incarnation: int
    epoch: int
    attempt: int


class Transition(Record, frozen=True):
    """Who made the last step of a slot, and on what evidence."""

    to: SlotState
    by: str
    time: datetime
    before: SlotState | None = None
    epoch: int = 0  # the fencing epoch of whoever made it
    evidence: Evidence | None = None
