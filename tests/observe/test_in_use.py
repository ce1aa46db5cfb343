"""What counts as used of a tenant's quota at one true moment (S5): what is bound, less what has certainly ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.escrow import in_use

SOON = datetime(2026, 1, 1, tzinfo=UTC)


def used(state: SlotState, *, runs: bool, provisional: bool = False, now_in: int = 1, listed_in: int = 1) -> int:
    slot, until = SlotRef(workload="api", uid="u", index=0), SOON if provisional else None
    spec = BindingSpec(slot=slot, node="n", token=Token(1, 1, 1), requests=Resources(400), provisional_until_time=until)
    binding: Any = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(state=state))
    node = Node(Metadata(name="n"), NodeSpec(region="r", zone="z"), NodeStatus(incarnation=listed_in))
    objects = {"bindings": {("risk", "api-0"): binding}, "nodes": {("", "n"): node}}
    return in_use(objects, "risk", lambda node, tenant, name: runs, now_in).cpu


@pytest.mark.parametrize("state", [SlotState.BOUND, SlotState.SERVING, SlotState.UNKNOWN])
def test_what_may_be_started_again_counts_whether_it_runs_or_not(state: SlotState) -> None:
    assert (used(state, runs=True), used(state, runs=False)) == (400, 400)


def test_what_drains_counts_while_it_runs() -> None:
    """Its region may have lost that it left (seed 32 of `relapses`); nobody starts it again."""
    assert (used(SlotState.DRAINING, runs=True), used(SlotState.DRAINING, runs=False)) == (400, 0)


def test_what_ends_with_a_lease_counts_while_it_runs() -> None:
    assert (used(SlotState.SERVING, runs=True, provisional=True), used(SlotState.SERVING, runs=False, provisional=True)) == (
        400,
        0,
    )


@pytest.mark.parametrize("runs", [True, False])
def test_what_was_bound_in_an_earlier_incarnation_counts_while_it_runs_until_its_node_has_said_what_it_runs(runs: bool) -> None:
    """Until then an agent begins none of it (seeds 103 and 105 of `backups`); what it says then is known."""
    assert used(SlotState.SERVING, runs=runs, now_in=2) == (400 if runs else 0)
    assert used(SlotState.SERVING, runs=runs, now_in=2, listed_in=2) == 400
