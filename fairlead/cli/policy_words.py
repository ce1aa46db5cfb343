"""What another policy revision would change, on whom one is tried and for how long: read before anybody is asked.

Owns the words; what a revision leaves out and which one decides for a tenant, decide/ says. Called by the command `policy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from fairlead.cli.kinds import of_model
from fairlead.cli.session import Session
from fairlead.client.rest_errors import ApiError
from fairlead.client.rest_shapes import Query
from fairlead.decide.built_in_policy import filled
from fairlead.decide.channels import trial_end
from fairlead.decide.policy import revision_for
from fairlead.model.kinds.intent import LabelExpression
from fairlead.model.kinds.policy import Canary, PolicyChannelSpec, PolicyChannelStatus, ResidencyRule, SchedulerPolicySpec

# Fields whose items have names, what one is called, and what it means to those who used it that it is gone.
_NAMED: Final = (
    ("workload_classes", "workload class", "work of it waits as Misconfigured, and is not recovered"),
    ("priority_classes", "priority class", "a workload that names it waits as Misconfigured, and is not recovered"),
    ("scores", "score", ""),
)
_WORDS: Final = (("gates", "gate"), ("extensions", "extension"))
_TOLD_APART: Final = {"revision", "residency", *(name for name, *_ in _NAMED), *(name for name, _ in _WORDS)}
_NAMES_MAX: Final = 5


def changes(before: SchedulerPolicySpec, after: SchedulerPolicySpec) -> list[str]:
    """One line for each difference in what the two mean, what is lost first."""
    old, new = filled(before), filled(after)
    lines = [f"drops the residency rule: {_rule(rule)}" for rule in old.residency if rule not in new.residency]
    lines += [f"adds the residency rule: {_rule(rule)}" for rule in new.residency if rule not in old.residency]
    for field, noun in _WORDS:
        lines += _words(noun, getattr(old, field), getattr(new, field))
    for field, noun, means in _NAMED:
        lines += _named(noun, means, getattr(old, field), getattr(new, field))
    lines += _fields("", old, new)
    return sorted(lines, key=lambda line: not line.startswith("drops"))


def _rule(rule: ResidencyRule) -> str:
    whom = [f"tenants {', '.join(rule.tenants)}"] if rule.tenants else []
    whom += [f"labels {', '.join(map(_expression, rule.labels))}"] if rule.labels else []
    return f"{'; '.join(whom)} only in {', '.join(rule.areas)}"


def _expression(one: LabelExpression) -> str:
    return f"{one.key} {one.operator} {'/'.join(one.values)}".rstrip()


def _words(noun: str, old: Sequence[str], new: Sequence[str]) -> list[str]:
    return [f"drops the {noun} {name}" for name in old if name not in new] + [
        f"adds the {noun} {name}" for name in new if name not in old
    ]


def _named(noun: str, means: str, old: Sequence[Any], new: Sequence[Any]) -> list[str]:
    before, after = {one.name: one for one in old}, {one.name: one for one in new}
    lines = [f"drops the {noun} {name}{': ' if means else ''}{means}" for name in before if name not in after]
    lines += [f"adds the {noun} {name}" for name in after if name not in before]
    for name in before.keys() & after.keys():
        lines += _fields(f"{noun} {name}: ", before[name], after[name])
    return sorted(lines)


def _fields(where: str, old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    skipped = _TOLD_APART if not where else ()
    pairs = [
        (field.encode_name, getattr(old, field.name), getattr(new, field.name))
        for field in msgspec.structs.fields(old)
        if field.name not in skipped
    ]
    return [f"{where}{name} {_value(was)} -> {_value(now)}" for name, was, now in pairs if was != now]


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- on whom ---------------------------------------------------------------------------------------------------------------


async def reach(session: Session, channel: PolicyChannelSpec) -> str:
    """On how many tenants the canary is tried, of those there are; what is wrong with it, where that is nobody."""
    canary = channel.canary
    assert canary is not None, "asked of a canary"
    try:
        tenants = await _names(session, "tenants")
        regions = await _names(session, "regions")
    except ApiError as error:
        return f"on how many tenants it is tried is not known: {error}"
    unknown = [f"tenant {name}" for name in canary.tenants if name not in tenants]
    unknown += [f"region {name}" for name in canary.regions if name not in regions]
    there = [name for name in regions if name in canary.regions] if canary.regions else [""]
    tried = [one for one in tenants if any(revision_for(channel, one, region) == canary.revision for region in there)]
    missing = f"; there is no {', no '.join(unknown)}" if unknown else ""
    if not tried:
        return f"warning: it is tried on nobody: none of {len(tenants)} tenants is among those it names{missing}"
    return f"tried on {len(tried)} of {len(tenants)} tenants: {_some(tried)}{missing}"


async def _names(session: Session, plural: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in (await session.client.list(Query(of_model()[plural]))).items)


def _some(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:_NAMES_MAX]) + (f" and {len(found) - _NAMES_MAX} more" if len(found) > _NAMES_MAX else "")


def left_s(found: dict[str, Any], trial: Canary, wall: float) -> int:
    """How long the trial lasts from now on, by what is known of it so far."""
    now = datetime.fromtimestamp(wall, UTC)
    end = trial_end(trial, msgspec.convert(found.get("status") or {}, PolicyChannelStatus), now)
    return max(0, round((end - now).total_seconds()))
