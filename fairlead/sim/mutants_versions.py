"""Owns the planted bugs of what two versions say to each other: something that the version before leaves out is taken for wrong.
Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.authority.judge import running
from fairlead.client import remote, remote_feed
from fairlead.model.commands import Refused, Report
from fairlead.sim.planting import Mutant, Swap


def _session_must_be_said() -> list[Swap]:
    """A report that does not name a session is refused as one of a session that is over."""
    bound = running._bound

    def strict(ctx: Any, body: Any) -> Any:
        if isinstance(body, Report) and not body.session:
            return Refused("FencedOut", "it does not say of which session it is")
        return bound(ctx, body)

    return [(running, "_bound", strict)]


def _lease_must_be_said() -> list[Swap]:
    """An acknowledgement that does not say how long it counts is none."""

    def strict(answer: Any) -> Any:
        heard = remote_feed.heard_or_none(answer)
        return heard if heard is None or heard.lease_s else None

    return [(remote, "heard_or_none", strict)]


MUTANTS: Final = {
    "unsaid-session": Mutant(
        "an agent of the version before is believed without a session", "versions", ("L4", "L6"), _session_must_be_said
    ),
    "unsaid-lease": Mutant(
        "a server of the version before is heard without a lease", "versions", ("L4", "L6"), _lease_must_be_said
    ),
}
