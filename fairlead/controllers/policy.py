"""Ends a canary that nobody promoted in time: the channel goes back to what decided before, and says why.

Judges no policy and moves no slot: what was placed under the canary stays where it is, with the revision it was placed under.
Promoting is for people. Runs in the global plane; regions get the channel by their mirrors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.decide.channels import rolled_back, trial_end
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelStatus
from fairlead.model.meta import Condition, set_condition

TRIED: Final = "CanaryTried"


class PolicyController:
    name = "policy"
    follows = ("policychannels",)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (item.key,)

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("policychannels")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        item = view.cache.item("policychannels", *key)
        if item is None:
            return Result()
        channel: PolicyChannel = item.object
        status = _status(channel, now_ms)
        bodies: list[Body] = []
        if status != channel.status:
            bodies.append(PutStatus("PolicyChannel", *key, status, uid=channel.metadata.uid))
        end_ms = millis(status.canary_end_time)
        if channel.spec.canary is None:
            return Result(bodies)
        if now_ms < end_ms:
            return Result(bodies, end_ms)
        back = rolled_back(channel.spec)
        assert back is not None, "a channel with a canary can be without it"
        if status == channel.status:  # what is said of it is written first, on a version of its own
            bodies.append(Put("PolicyChannel", replace(channel, spec=back), expected_revision=view.revision(item)))
        return Result(bodies, now_ms + 1000)


def _status(channel: PolicyChannel, now_ms: int) -> PolicyChannelStatus:
    old, canary, generation = channel.status, channel.spec.canary, channel.metadata.generation
    status = replace(old, observed_generation=generation)
    if canary is None:
        if not old.canary_revision:
            return status
        over = old.canary_end_time is not None and now_ms >= millis(old.canary_end_time)
        word = "Promoted" if channel.spec.current == old.canary_revision else "DeadlinePassed" if over else "RolledBack"
        said = ("False", word, f"revision {old.canary_revision} was tried; {channel.spec.current} decides")
        status = replace(status, canary_revision=0, canary_start_time=None, canary_end_time=None)
    else:
        again = old.canary_revision == canary.revision and old.canary_start_time is not None
        since = old.canary_start_time if again and old.canary_start_time is not None else instant(now_ms)
        end = trial_end(canary, since)
        said = ("True", "OnTrial", f"revision {canary.revision} is tried until {end:%Y-%m-%dT%H:%M:%SZ}")
        status = replace(status, canary_revision=canary.revision, canary_start_time=since, canary_end_time=end)
    made = Condition(
        type=TRIED, status=said[0], reason=said[1], message=said[2], observed_generation=generation,  # type: ignore[arg-type]
        last_transition_time=instant(now_ms),
    )  # fmt: skip
    return replace(status, conditions=set_condition(old.conditions, made))
