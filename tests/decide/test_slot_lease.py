"""Who may run what is exclusive everywhere (P11): whoever gave a lease waits longer than whoever has it counts on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.decide.slot_lease import MARGIN_S, NEVER_MS, Copy, caught_up, free_ms, held_until, honoured_ms, taken_from
from fairlead.model.kinds.ledger import LeaseSpec
from fairlead.model.lifecycle import Role

TTL_S = 60.0


def lease(role: Role = Role.MIRROR, renewed_ms: int = 10_000, **fields: Any) -> LeaseSpec:
    renewed = datetime.fromtimestamp(renewed_ms / 1000, tz=UTC)
    base = LeaseSpec(role=role.value, holder="us-east-0", epoch=3, ttl_seconds=TTL_S, renewed_time=renewed)
    return LeaseSpec(**{**{name: getattr(base, name) for name in base.__struct_fields__}, **fields})


def free(found: LeaseSpec | None, role: Role, incarnation: int = 1, since_ms: int = 0) -> int:
    return free_ms(found, role, TTL_S, incarnation, since_ms)


@given(st.floats(0.99, 1.01), st.floats(0.99, 1.01), st.floats(0.0, 30.0), st.floats(1.0, 600.0))
def test_a_lease_is_over_for_its_holder_before_it_is_free_whatever_the_clocks(
    slow: float, fast: float, late_s: float, ttl_s: float
) -> None:
    """In true time: asked for at 0, answered `late_s` later."""
    over = held_until(0.0, ttl_s) / slow
    free = late_s + honoured_ms(ttl_s) / 1000 / fast
    assert over + MARGIN_S * 0.9 <= free


def test_recovery_takes_a_regions_lease_only_after_its_end_and_the_margin() -> None:
    assert free(lease(), Role.RECOVERY) == 10_000 + 60_600 + 5_000
    assert free(lease(), Role.RECOVERY, since_ms=50_000) == 50_000 + 65_600, "a renewal may not have been seen"


def test_another_server_of_the_same_side_takes_it_at_once() -> None:
    assert free(lease(), Role.MIRROR) == 0
    assert free(lease(Role.RECOVERY), Role.RECOVERY) == 0


def test_a_region_never_takes_back_what_recovery_took_and_gets_what_was_given_back_at_once() -> None:
    assert free(lease(Role.RECOVERY), Role.MIRROR) == NEVER_MS
    assert free(lease(Role.RECOVERY, incarnation=1), Role.MIRROR, incarnation=2) == NEVER_MS
    assert free(lease(Role.RECOVERY, holder=""), Role.MIRROR) == 0


def test_in_a_restored_history_everybody_waits_for_a_whole_lease() -> None:
    for role in (Role.MIRROR, Role.RECOVERY):
        assert free(lease(), role, incarnation=2, since_ms=90_000) == 90_000 + 65_600
        assert free(None, role, incarnation=2, since_ms=90_000) == 90_000 + 65_600
        assert free(None, role) == 0, "nobody ever had one"


def test_a_lease_counts_as_taken_while_recovery_holds_it_in_this_history() -> None:
    held = {
        "a": lease(Role.RECOVERY),
        "b": lease(),
        "c": lease(Role.RECOVERY, holder=""),
        "d": lease(Role.RECOVERY, incarnation=2),
    }
    assert taken_from(held, 1) == {"a": 3}


HERE = Copy(uid="u", generation=4, current=True, unwanted=0, released=False)


def test_a_region_has_caught_up_when_its_copies_are_current_and_nothing_unwanted_is_left() -> None:
    assert caught_up({"risk/api": ("u", 4)}, {"risk/api": HERE})
    assert caught_up({}, {"risk/old": HERE._replace(released=True)})
    assert caught_up({}, {})


@pytest.mark.parametrize(
    "copy",
    [
        None,
        HERE._replace(generation=3),
        HERE._replace(uid="other"),
        HERE._replace(current=False),
        HERE._replace(unwanted=1),
    ],
)
def test_a_region_whose_copy_is_missing_old_unsaid_or_still_runs_more_has_not_caught_up(copy: Copy | None) -> None:
    assert not caught_up({"risk/api": ("u", 4)}, {"risk/api": copy} if copy is not None else {})


def test_a_region_that_still_has_slots_of_what_is_gone_has_not_caught_up() -> None:
    assert not caught_up({}, {"risk/old": HERE})
