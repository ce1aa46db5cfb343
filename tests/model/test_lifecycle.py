"""The table of steps, row by row."""

from __future__ import annotations

import pytest

from fairlead.model.lifecycle import (
    AUTHORITY_STEPS,
    HOLDS_CAPACITY,
    LIVE,
    ON_NODE,
    STEPS,
    Role,
    SlotState,
    may_step,
    owner_of,
)

S = SlotState
R = Role

# "Live" in the table's rows to Draining and Unknown: an agent has the slot and nobody has ended it.
RUNNING = (S.BOUND, S.STARTING, S.READY, S.SERVING)

ROWS: list[tuple[str, list[tuple[SlotState | None, SlotState]], Role]] = [
    ("new -> Pending", [(None, S.PENDING)], R.ASSIGNMENT),
    ("Pending -> Reserved", [(S.PENDING, S.RESERVED)], R.SCHEDULER),
    ("Pending -> Bound", [(S.PENDING, S.BOUND)], R.SCHEDULER),
    ("Reserved -> Pending", [(S.RESERVED, S.PENDING)], R.SCHEDULER),
    ("Reserved -> Bound", [(S.RESERVED, S.BOUND)], R.SCHEDULER),
    ("Bound -> Starting -> Ready", [(S.BOUND, S.STARTING), (S.STARTING, S.READY)], R.AGENT),
    ("Bound, Starting, Ready, Serving -> Failed", [(state, S.FAILED) for state in RUNNING], R.AGENT),
    ("Starting, Ready -> Succeeded", [(S.STARTING, S.SUCCEEDED), (S.READY, S.SUCCEEDED)], R.AGENT),
    ("Ready -> Serving", [(S.READY, S.SERVING)], R.ROLLOUT),
    ("Serving -> Ready", [(S.SERVING, S.READY)], R.ROLLOUT),
    ("any live -> Draining", [(state, S.DRAINING) for state in RUNNING], R.DISRUPTION),
    ("Draining -> Released", [(S.DRAINING, S.RELEASED)], R.AGENT),
    ("any live -> Unknown", [(state, S.UNKNOWN) for state in (*RUNNING, S.DRAINING)], R.NODE),
    (
        "Unknown -> the state the agent reports",
        [(S.UNKNOWN, state) for state in (*RUNNING, S.DRAINING, S.FAILED, S.SUCCEEDED)],
        R.NODE,
    ),
    ("Unknown, Failed -> Released", [(S.UNKNOWN, S.RELEASED), (S.FAILED, S.RELEASED)], R.REPAIR),
    ("Released -> Pending", [(S.RELEASED, S.PENDING)], R.REPAIR),
]

# Steps the code has beyond the rows of the design, each with the reason.
BEYOND = {
    (S.READY, S.STARTING): "readiness lost before traffic came, or restarted in place: the agent's own view of its process",
}


@pytest.mark.parametrize(("row", "edges", "owner"), ROWS, ids=[row[0] for row in ROWS])
def test_every_row_of_the_design_is_in_the_table_with_its_owner(
    row: str, edges: list[tuple[SlotState | None, SlotState]], owner: Role
) -> None:
    for before, after in edges:
        assert owner_of(before, after) is owner, f"{row}: {before} -> {after}"
        assert may_step(before, after, owner)
        assert STEPS[before, after].guards, f"{row} has no guard"


def test_the_table_has_no_step_the_design_does_not_know() -> None:
    designed = {edge for _, edges, _ in ROWS for edge in edges}
    assert set(STEPS) - designed == set(BEYOND)


def test_one_owner_makes_a_step_and_nobody_else_but_the_authority_where_it_is_named() -> None:
    for before, after in STEPS:
        allowed = {role for role in Role if may_step(before, after, role)}
        owner = owner_of(before, after)
        assert owner is not None
        assert allowed - {R.AUTHORITY} == {owner} - {R.AUTHORITY}
        assert (R.AUTHORITY in allowed) == ((before, after) in AUTHORITY_STEPS)


def test_a_step_that_is_not_in_the_table_belongs_to_nobody() -> None:
    for before in (None, *SlotState):
        for after in SlotState:
            if (before, after) not in STEPS:
                assert owner_of(before, after) is None
                assert not any(may_step(before, after, role) for role in Role)


def test_no_state_comes_out_of_nowhere() -> None:
    assert [after for before, after in STEPS if before is None] == [S.PENDING]
    reached: set[SlotState | None] = {None}
    while grown := {after for before, after in STEPS if before in reached} - reached:
        reached |= grown
    assert reached == {None, *SlotState}


def test_only_a_finished_job_ends_where_it_is() -> None:
    ends = {state for state in SlotState if not any(before is state for before, _ in STEPS)}
    assert ends == {S.SUCCEEDED}


def test_no_step_leads_from_a_state_to_itself() -> None:
    assert all(before is not after for before, after in STEPS)


def test_owners_are_roles_and_the_authority_steps_are_steps() -> None:
    assert all(isinstance(step.owner, Role) for step in STEPS.values())
    assert set(STEPS) >= AUTHORITY_STEPS
    assert (S.RESERVED, S.PENDING) in AUTHORITY_STEPS


def test_capacity_is_held_until_somebody_has_shown_that_the_process_is_gone() -> None:
    assert ON_NODE < LIVE
    assert S.UNKNOWN in HOLDS_CAPACITY
    assert S.FAILED in HOLDS_CAPACITY
    assert not HOLDS_CAPACITY & {S.RELEASED, S.PENDING, S.SUCCEEDED}
