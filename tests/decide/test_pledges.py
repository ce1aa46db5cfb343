"""Which changes another plane acts upon, and must therefore not be forgotten by whoever made them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.pledges import PLEDGING, is_pledge
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import StageCounts
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

ONE = Resources(1000, 0)
META = Metadata(name="east", namespace="risk")
GRANT = Grant(META, GrantSpec(region="east", version=3, during=ONE, after=ONE), GrantStatus(accepted_version=2, during=ONE))
TERM = GrantTerm(Metadata(name="east"), GrantTermSpec("east", answered=4), GrantTermStatus(policy=7, residency=8))
ASSIGNMENT = Assignment(META, AssignmentSpec("api", "u1", 1, "east"), AssignmentStatus())


def _status(record: Any, **changes: Any) -> Any:
    return replace(record, status=replace(record.status, **changes))


def _spec(record: Any, **changes: Any) -> Any:
    return replace(record, spec=replace(record.spec, **changes))


@pytest.mark.parametrize(
    ("plural", "before", "after"),
    [
        ("grants", GRANT, _spec(GRANT, version=4)),
        ("grants", GRANT, _status(GRANT, accepted_version=3)),
        ("grants", GRANT, _status(GRANT, during=Resources(500, 0))),
        ("grants", GRANT, _status(GRANT, after=Resources(500, 0))),
        ("grants", GRANT, _status(GRANT, firm=Resources(500, 0))),
        ("grants", None, GRANT),
        ("grantterms", None, TERM),
        ("grantterms", TERM, _status(TERM, policy=9)),
        ("grantterms", TERM, _status(TERM, residency=9)),
        ("grantterms", TERM, _spec(TERM, answered=5)),
        ("assignments", ASSIGNMENT, _status(ASSIGNMENT, given_up=(SlotRange(0, 1),))),
    ],
)
def test_what_another_plane_acts_upon_is_a_pledge(plural: str, before: Any, after: Any) -> None:
    assert plural in PLEDGING
    assert is_pledge(plural, before, after)


@pytest.mark.parametrize(
    ("plural", "before", "after"),
    [
        ("grants", GRANT, _status(GRANT, used=ONE)),
        ("grants", GRANT, _status(GRANT, waiting=ONE)),
        ("grants", GRANT, None),
        ("grantterms", TERM, _status(TERM, asked=5)),
        ("assignments", ASSIGNMENT, _status(ASSIGNMENT, replicas=StageCounts(bound=3))),
        ("assignments", None, ASSIGNMENT),
        ("tenants", None, GRANT),
    ],
)
def test_usage_counts_and_deletions_promise_nobody_anything(plural: str, before: Any, after: Any) -> None:
    assert not is_pledge(plural, before, after)
