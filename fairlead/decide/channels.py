"""What becomes of a policy channel: a revision is tried, promoted, taken back; a trial ends by its deadline. Pure.

No step here touches a slot: what was placed under a revision keeps the revision it was placed under, and nothing is restarted
because another decides from now on. Called by the policy controller and the command line.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from fairlead.decide.admission.policy import CANARY_TTL_S_MAX
from fairlead.model.kinds.policy import Canary, PolicyChannelSpec, PolicyChannelStatus

HISTORY_MAX: Final = 50  # promoted revisions that can be gone back to


def tried(channel: PolicyChannelSpec, canary: Canary) -> PolicyChannelSpec:
    return replace(channel, canary=canary)


def promoted(channel: PolicyChannelSpec) -> PolicyChannelSpec | None:
    """The canary decides for everybody; None: there is none."""
    if channel.canary is None:
        return None
    return _moved(channel, channel.canary.revision)


def rolled_back(channel: PolicyChannelSpec, to: int = 0) -> PolicyChannelSpec | None:
    """Without its canary, where one is tried; else as before the last promotion; or at the one named. None: nowhere to go. What
    is gone back from is not gone back to: the next step back goes to the one before that."""
    if to:
        back = _back(channel, to) if to in channel.history else _moved(channel, to)
        return back if to != channel.current or channel.canary is not None else None
    if channel.canary is not None:
        return replace(channel, canary=None)
    before = next((revision for revision in channel.history if revision != channel.current), None)
    return _back(channel, before) if before is not None else None


def _back(channel: PolicyChannelSpec, current: int) -> PolicyChannelSpec:
    earlier = channel.history[channel.history.index(current) + 1 :]
    return PolicyChannelSpec(current=current, canary=None, history=earlier)


def _moved(channel: PolicyChannelSpec, current: int) -> PolicyChannelSpec:
    past = (channel.current, *channel.history) if channel.current != current else channel.history
    history = tuple(dict.fromkeys(revision for revision in past if revision != current))
    return PolicyChannelSpec(current=current, canary=None, history=history[:HISTORY_MAX])


def trial_end(canary: Canary, status: PolicyChannelStatus, now: datetime) -> datetime:
    """When it is taken back if nobody promotes it. Ordered otherwise it begins anew, so that it ends as its order says; but
    nobody keeps a revision on trial for longer than a trial may last by changing its order again and again."""
    first = status.canary_start_time
    if status.canary_revision != canary.revision or first is None:
        return now + timedelta(seconds=canary.ttl_seconds)
    if status.canary is None or status.canary_end_time is None:  # said before orders were remembered
        return first + timedelta(seconds=canary.ttl_seconds)
    if status.canary == canary:
        return status.canary_end_time
    return min(now + timedelta(seconds=canary.ttl_seconds), first + timedelta(seconds=CANARY_TTL_S_MAX))
