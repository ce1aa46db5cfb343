"""Which changes of a plane are pledges: words that another plane acts upon as soon as it hears them, and that whoever gave them
must not forget.

A region that has taken a smaller offer, installed a policy or given slots up has made the global plane spend, enforce or place
elsewhere; a global plane that has made an offer has made a region use it. A plane whose store lost such a word must notice it and
begin a new incarnation (P6), even if its server lost power at the same time. So a server makes sure, before anybody hears of
a pledge, that it will remember having seen it (fairlead/authority/remembering.py). Everything else may be forgotten with a
power cut, because nobody was promised anything by it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.kinds.work import Assignment


def _of_grant(grant: Grant) -> tuple[object, ...]:
    """The offer that the global plane has made, and the one that the region says it stands on."""
    status = grant.status
    return grant.spec.version, status.accepted_version, status.during, status.after, status.firm


def _of_term(term: GrantTerm) -> tuple[object, ...]:
    """What the region says it has installed, and the last lease that it was given."""
    return term.status.policy, term.status.residency, term.spec.answered


def _of_assignment(assignment: Assignment) -> tuple[object, ...]:
    """Slots that a region has given up, so that they may run elsewhere. Most have given up none: every new workload has
    Assignments, and must not wait for a sync of its own."""
    return assignment.status.given_up


_PLEDGED: Final[dict[str, Callable[[Any], tuple[object, ...]]]] = {
    "grants": _of_grant,
    "grantterms": _of_term,
    "assignments": _of_assignment,
}

PLEDGING: Final = tuple(_PLEDGED)  # the kinds that hold any


def is_pledge(plural: str, before: Any, after: Any) -> bool:
    """Whether this change gives another plane something new to act upon. Either may be None: nothing there before, or deleted."""
    pledged = _PLEDGED.get(plural)
    if pledged is None or after is None:
        return False
    return pledged(after) != (pledged(before) if before is not None else ())
