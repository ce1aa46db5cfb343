"""What a change does, from how a trial stood before it and after it. Pure.

Owns the words a plan is made of: moved, evicted, new, gone, waiting. Called by planner.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fairlead.client.planning import (
    BudgetRow,
    CostRow,
    DrainRow,
    InRegion,
    Mark,
    OutlookRow,
    PendingRow,
    Planned,
    ShortRow,
    SlotRow,
    WorkloadRow,
)
from fairlead.planning.looking import Look, SlotKey
from fairlead.planning.trial import Trial

_Workload = tuple[str, str]


class Telling:
    """Put together in pieces: there may be many slots."""

    def __init__(self, before: Look, after: Look, trial: Trial, unreachable: Iterable[str]) -> None:
        self._before, self._after, self._trial = before, after, trial
        self._unreachable = tuple(unreachable)
        self.planned = Planned()

    def tell(self) -> Iterator[None]:
        before, after, trial = self._before, self._after, self._trial
        counts = []
        for look in (before, after):
            counts.append(_counts(look))
            yield
        workloads = tuple(_workloads(before, after, *counts))
        yield
        slots = tuple(_slots(before, after, trial.evicted_by))
        yield
        new_drains = ((node, one) for node, one in sorted(after.drains.items()) if node not in before.drains)
        self.planned = Planned(
            workloads=workloads,
            slots=slots,
            pending=tuple(_pending(before, after)),
            drains=tuple(DrainRow(node, one.region, one.left, one.message) for node, one in new_drains),
            readiness=tuple(_readiness(before, after)),
            budgets=tuple(_budgets(before, after)),
            cost=tuple(_cost(before, after)),
            simulated_seconds=trial.simulated_s,
            settled=trial.settled,
            unreachable=self._unreachable,
        )


_Counts = tuple[dict[_Workload, Counter[str]], dict[_Workload, Counter[str]]]


def _counts(look: Look) -> _Counts:
    """Of each workload, by region: bound, and waiting."""
    bound: dict[_Workload, Counter[str]] = {}
    waits: dict[_Workload, Counter[str]] = {}
    for (region, tenant, _), one in look.bound.items():
        bound.setdefault((tenant, one.workload), Counter())[region] += 1
    for (region, tenant, _), waiting in look.waits.items():
        waits.setdefault((tenant, waiting.workload), Counter())[region] += 1
    for key, (_, _, missing) in look.unassigned.items():
        waits.setdefault(key, Counter())[""] += missing
    return bound, waits


def _workloads(before: Look, after: Look, then: _Counts, now: _Counts) -> Iterable[WorkloadRow]:
    """Those whose numbers change anywhere, and those that are new or gone."""
    (bound_0, waits_0), (bound_1, waits_1) = then, now
    for key in sorted({*bound_0, *waits_0, *bound_1, *waits_1, *before.workloads, *after.workloads}):
        parts = [counts.get(key, Counter()) for counts in (bound_0, bound_1, waits_0, waits_1)]
        new, gone = key in after.workloads - before.workloads, key in before.workloads - after.workloads
        if not (new or gone) and parts[0] == parts[1] and parts[2] == parts[3]:
            continue
        regions = sorted({region for counts in parts for region in counts})
        mark: Mark = "+" if new else "-" if gone else "~"
        rows = tuple(InRegion(region, *(counts[region] for counts in parts)) for region in regions)
        yield WorkloadRow(mark, *key, rows)


def _slots(before: Look, after: Look, evicted_by: Mapping[tuple[str, str], str]) -> Iterable[SlotRow]:
    changed = [key for key, one in after.bound.items() if before.bound.get(key) != one]
    changed += [key for key in before.bound if key not in after.bound]
    for key in sorted(changed):
        was, now, waits = before.bound.get(key), after.bound.get(key), after.waits.get(key)
        region, tenant, name = key
        if was is not None and now is not None:
            if was.token != now.token:
                by = evicted_by.get((tenant, name), "")
                yield SlotRow("~", tenant, now.workload, name, region, was.node, now.node, by=by)
        elif was is not None:
            reason, detail = (waits.reason, waits.detail) if waits is not None else ("NotWanted", "")
            by = evicted_by.get((tenant, name), "") if waits is not None else ""
            yield SlotRow("-", tenant, was.workload, name, region, was.node, "", reason, detail, by)
        elif now is not None:
            yield SlotRow("+", tenant, now.workload, name, region, "", now.node)


def _pending(before: Look, after: Look) -> Iterable[PendingRow]:
    """What waits after the change; with what waits for the same reason today."""
    now, was = _reasons(after), _reasons(before)
    details = {_reason_key(key, one.workload, one.reason): one.detail for key, one in after.waits.items()}
    details |= {(*key, "", reason): detail for key, (reason, detail, _) in after.unassigned.items()}
    for key in sorted(now):
        yield PendingRow(*key, details[key], now[key], was[key])


def _reasons(look: Look) -> Counter[tuple[str, str, str, str]]:
    out = Counter(_reason_key(key, one.workload, one.reason) for key, one in look.waits.items())
    for key, (reason, _, missing) in look.unassigned.items():
        out[*key, "", reason] += missing
    return out


def _reason_key(key: SlotKey, workload: str, reason: str) -> tuple[str, str, str, str]:
    return key[1], workload, key[0], reason


def _readiness(before: Look, after: Look) -> Iterable[OutlookRow]:
    for region in sorted({*before.outlooks, *after.outlooks}):
        was, now = before.outlooks.get(region), after.outlooks.get(region)
        short = tuple(
            ShortRow(s.tenant, s.workload, s.missing, s.why) for s in (now.services if now is not None else ()) if s.missing
        )
        yield OutlookRow(
            region, was.ready if was else 0, now.ready if now else 0, was.short if was else 0, now.short if now else 0, short
        )


def _budgets(before: Look, after: Look) -> Iterable[BudgetRow]:
    for key in sorted({*before.rooms, *after.rooms}):
        was, now = before.rooms.get(key, (0, 0)), after.rooms.get(key, (0, 0))
        if was != now:
            yield BudgetRow(*key, was[0], now[0], was[1], now[1])


def _cost(before: Look, after: Look) -> Iterable[CostRow]:
    for region in sorted({*before.money, *after.money}):
        was, now = before.money.get(region), after.money.get(region)
        row = CostRow(
            region, was.nodes if was else 0.0, now.nodes if now else 0.0, was.used if was else 0.0, now.used if now else 0.0
        )
        if row.nodes_before or row.nodes_after:
            yield row
