"""The record of each decision, made as cheaply as it can be: slots of one run share one, and nodes are looked at again only where
none was found. Called by the scheduler around each cycle."""

from __future__ import annotations

from typing import Final

from fairlead.client.decisions import DecisionSink
from fairlead.model.commands import Accepted, Outcome, Refused
from fairlead.model.decision import Attempt, Candidate, Decided, DecisionRecord, Result, decision_id
from fairlead.scheduler.cycle import Failure, Placement, Run
from fairlead.scheduler.shapes import Shape
from fairlead.scheduler.snapshot import Snapshot
from fairlead.scheduler.units import NEXT_OWNER

_TOP: Final = 3  # candidates whose scores are kept
_NODES_TOLD: Final = 5  # nodes whose reasons are kept where a slot fits nowhere


class Recorder:
    def __init__(self, scheduler: str, snapshot: Snapshot, sink: DecisionSink | None) -> None:
        self._scheduler = scheduler
        self._snapshot = snapshot
        self._sink = sink
        self._open: dict[int, tuple[str, Decided]] = {}

    def decided(self, runs: list[Run], now_ms: int) -> dict[int, str]:
        """The id of each run's record, for the bindings to carry. Nothing where nobody keeps them."""
        if self._sink is None:
            return {}
        out: dict[int, str] = {}
        for run in runs:
            decided = self._decided(run, now_ms)
            identity = decision_id(decided)
            self._open[id(run)] = (identity, decided)
            out[id(run)] = identity
        return out

    def settle(self, runs: list[Run], outcomes: dict[int, Outcome]) -> None:
        """The authority has answered: the records are whole."""
        if self._sink is None:
            return
        records = []
        told: dict[int, Result] = {}  # what is bound by one command has one answer
        for run in runs:
            identity, decided = self._open.pop(id(run))
            results = [_result(outcomes.get(id(placement)), told) for placement in run.placements]
            results += [Result(failure.reason) for failure in run.failures]
            records.append(DecisionRecord(identity, decided, tuple(results)))
        self._sink.append(records)

    def _decided(self, run: Run, now_ms: int) -> Decided:
        snapshot = self._snapshot
        attempts = _bound(run.placements, now_ms) + [_waiting(failure, now_ms) for failure in run.failures]
        shape = run.shape or next((f.shape for f in run.failures if f.shape is not None), None)
        if shape is None and run.placements:
            shape = run.placements[0].shape
        failed = next((f for f in run.failures if _nodes_by_gate(f)), None)
        looked, fitting, best = self._looked(run, shape)
        return Decided(
            self._scheduler,
            now_ms,
            shape.policy.revision if shape is not None else 0,
            snapshot.revision,
            max(0, now_ms - snapshot.reached_ms),
            "gang" if run.gang else shape.rules.strategy if shape is not None else "",
            shape.in_words() if shape is not None else {},
            looked,
            fitting,
            _nodes_by_gate(failed) if failed is not None else {},
            self._reasons(failed.shape) if failed is not None and failed.shape is not None else {},
            best,
            {f.item.tenant: f.detail for f in run.failures if f.reason in ("WaitingForQuota", "ExceedsMaxQuota")},
            tuple(attempts),
        )

    def _looked(self, run: Run, shape: Shape | None) -> tuple[int, int, tuple[Candidate, ...]]:
        """Nodes looked at, those where it fits, and the best: what was chosen, and what would have been next. As they stand after
        the cycle where all were ranked, with what was placed; as they stood for its last slot where a few were looked at."""
        if shape is None:
            return self._snapshot.fleet.rows, 0, ()
        names, snapshot, ranking, found = self._snapshot.names, self._snapshot, shape.ranking, run.found
        if found is not None and not ranking.is_made:
            return found.looked, len(found.best), tuple([Candidate(names[row], total, rates) for row, total, rates in found.best])
        top = ranking.top(_TOP) if run.placements else ()
        best = [_rated(names[row], shape.breakdown(snapshot.row(row))) for row, _ in top]
        return snapshot.fleet.rows, ranking.feasible(), tuple(best)

    def _reasons(self, shape: Shape) -> dict[str, str]:
        """Of the nodes that came nearest, why each was ruled out."""
        names = self._snapshot.names
        return {names[row]: "; ".join(shape.why(row).values()) for row in shape.nearest(_NODES_TOLD)}


def _rated(node: str, rates: tuple[tuple[str, int, int], ...]) -> Candidate:
    """What a ranking says is as old as its last look at that node; a total that is read beside its parts is their sum."""
    return Candidate(node, sum(weight * rate for _, weight, rate in rates), rates)


def _nodes_by_gate(failure: Failure) -> dict[str, int]:
    """Without what ruled out no node but the slot itself: a quota, a policy."""
    gates = {gate.name for gate in failure.shape.gates} if failure.shape is not None else ()
    return {name: count for name, count in failure.gates.items() if name in gates}


def _bound(placements: list[Placement], now_ms: int) -> list[Attempt]:
    """In one loop: a run may bind thousands."""
    out = []
    for placement in placements:
        item, spec = placement.item, placement.item.request.spec
        queued_ms = now_ms - item.created_ms
        out.append(Attempt(item.tenant, item.name, spec.generation, spec.epoch, queued_ms, placement.node, placement.victims))
    return out


def _waiting(failure: Failure, now_ms: int) -> Attempt:
    item, spec = failure.item, failure.item.request.spec
    return Attempt(
        item.tenant, item.name, spec.generation, spec.epoch, now_ms - item.created_ms, "", (), failure.reason, failure.detail,
        NEXT_OWNER.get(failure.reason, "scheduler"), item.next_attempt_ms,
    )  # fmt: skip


def _result(outcome: Outcome | None, told: dict[int, Result]) -> Result:
    """`told`: by the identity of an answer that the caller holds."""
    found = told.get(id(outcome))
    if found is None:
        found = told[id(outcome)] = _told(outcome)
    return found


def _told(outcome: Outcome | None) -> Result:
    match outcome:
        case Accepted():
            return Result("Bound", "", outcome.revision)
        case Refused():
            return Result(outcome.reason, outcome.detail)
        case _:
            return Result("Unknown")
