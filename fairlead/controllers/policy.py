"""Ends a canary that nobody promoted in time: the channel goes back to what decided before, and says why. Says from when on what
the channel orders is effective: no region may judge by anything older any more (P14, fairlead/decide/leasing.py).

Judges no policy and moves no slot: what was placed under the canary stays where it is, with the revision it was placed under.
Promoting is for people. Runs in the global plane; regions get the channel by their mirrors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.policies import versions_for
from fairlead.decide.answering import longest_s
from fairlead.decide.channels import rolled_back, trial_end
from fairlead.decide.granting import LEASE_S, honoured_ms
from fairlead.decide.leasing import stand_of
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelStatus, RegionPolicy
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.meta import Condition, set_condition

TRIED: Final = "CanaryTried"
EFFECTIVE: Final = "Effective"


class PolicyController:
    name = "policy"
    follows = ("policychannels", "grantterms", "regions")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, lease_s: int = LEASE_S) -> None:
        self._lease_s = lease_s

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (item.key,) if item.plural == "policychannels" else self.resync(view)

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("policychannels")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        item = view.cache.item("policychannels", *key)
        if item is None:
            return Result()
        channel: PolicyChannel = item.object
        stands = self._stands(view, now_ms)
        status = _effective(_status(channel, now_ms), stands, channel.metadata.generation, now_ms)
        pending_ms = min((millis(each.until_time) for each in stands if each.until_time is not None), default=None)
        bodies: list[Body] = []
        if status != channel.status:
            bodies.append(PutStatus("PolicyChannel", *key, status, uid=channel.metadata.uid))
        end_ms = millis(status.canary_end_time)
        if channel.spec.canary is None:
            return Result(bodies, pending_ms)
        if now_ms < end_ms:
            return Result(bodies, min(end_ms, pending_ms or end_ms))
        back = rolled_back(channel.spec)
        assert back is not None, "a channel with a canary can be without it"
        if status == channel.status:  # what is said of it is written first, on a version of its own
            bodies.append(Put("PolicyChannel", replace(channel, spec=back), expected_revision=view.revision(item)))
        return Result(bodies, now_ms + 1000)

    def _stands(self, view: View, now_ms: int) -> tuple[RegionPolicy, ...]:
        """In the order of the regions' names. A lease that nobody gave has not to end; in restored books one may be missing."""
        out = []
        for name in sorted(item.name for item in view.cache.all("regions")):
            term: GrantTerm | None = view.cache.get("grantterms", "", name)
            watched_ms = view.since_ms + honoured_ms(longest_s(term, self._lease_s))
            never = view.incarnation == 1 and (term is None or not term.spec.until_time)
            out.append(stand_of(name, term, versions_for(view, name), 0 if never else watched_ms, now_ms))
        return tuple(out)


def _effective(
    status: PolicyChannelStatus, stands: tuple[RegionPolicy, ...], generation: int, now_ms: int
) -> PolicyChannelStatus:
    waits = [each for each in stands if each.state == "Pending"]
    names = ", ".join(f"{each.region} (until {each.until_time:%H:%M:%S} UTC at the latest)" for each in waits)
    reason = "RegionsPending" if waits else "EveryRegion"
    made = Condition(
        type=EFFECTIVE, status="False" if waits else "True", reason=reason, observed_generation=generation,
        message=f"may still judge by something older: {names}" if waits else "no region judges by anything older",
        last_transition_time=instant(now_ms),
    )  # fmt: skip
    return replace(status, regions=stands, conditions=set_condition(status.conditions, made))


def _status(channel: PolicyChannel, now_ms: int) -> PolicyChannelStatus:
    old, canary, generation = channel.status, channel.spec.canary, channel.metadata.generation
    status = replace(old, observed_generation=generation)
    if canary is None:
        if not old.canary_revision:
            return status
        over = old.canary_end_time is not None and now_ms >= millis(old.canary_end_time)
        word = "Promoted" if channel.spec.current == old.canary_revision else "DeadlinePassed" if over else "RolledBack"
        said = ("False", word, f"revision {old.canary_revision} was tried; {channel.spec.current} decides")
        status = replace(status, canary_revision=0, canary_start_time=None, canary_end_time=None, canary=None)
    else:
        again = old.canary_revision == canary.revision and old.canary_start_time is not None
        since = old.canary_start_time if again else instant(now_ms)
        end = trial_end(canary, old, instant(now_ms))
        said = ("True", "OnTrial", f"revision {canary.revision} is tried until {end:%Y-%m-%dT%H:%M:%SZ}")
        status = replace(
            status, canary_revision=canary.revision, canary_start_time=since, canary_end_time=end, canary=canary
        )  # fmt: skip
    made = Condition(
        type=TRIED, status=said[0], reason=said[1], message=said[2], observed_generation=generation,  # type: ignore[arg-type]
        last_transition_time=instant(now_ms),
    )  # fmt: skip
    return replace(status, conditions=set_condition(old.conditions, made))
