"""One scheduling cycle, pure: requests in their order in, placements and refusals with reasons out.

Equal slots of one priority are decided in one run: their ranking is brought up to date once, then each placement takes the best
row and fixes that row. What is placed is assumed in the snapshot at once, so that later slots see it; the scheduler takes it back
if the authority refuses. Same snapshot, policy and seed give the same decisions. Called by scheduler.py; commits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from fairlead.decide.devices import pick_devices
from fairlead.decide.extensions import Stop
from fairlead.decide.fit import Need
from fairlead.decide.granting import version_of
from fairlead.decide.grants import limits_of, shortage
from fairlead.decide.preempt import Plan
from fairlead.model.kinds.capacity import Grant
from fairlead.model.resources import NOTHING, DeviceHold
from fairlead.ports import Random
from fairlead.scheduler.large_first import large_first
from fairlead.scheduler.lineup import Found, Lineup
from fairlead.scheduler.moved import best_but, row_left
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.ranking import Ranking
from fairlead.scheduler.seeking import Seeker
from fairlead.scheduler.shapes import Shape, ShapeBook
from fairlead.scheduler.snapshot import FIRM, HELD, LENT, SlotKey, Snapshot, Use
from fairlead.scheduler.units import Item, known_reason

_STALE_TRIES: Final = 8  # Rows that fell silent since they were rated, looked at before the whole ranking is made again.

_STANDING_MAX: Final = 64  # Slots of a run that look for room in a budget: some milliseconds, then the loop may be given back.


class Placement(msgspec.Struct, gc=False):
    item: Item
    row: int
    node: str
    shape: Shape
    grant_version: int
    use: Use
    devices: tuple[DeviceHold, ...] = ()
    victims: tuple[str, ...] = ()
    claims: str = ""  # the standing reservation whose room it takes
    room: Use | None = None  # what the picture said of it

    @property
    def tenant(self) -> str:
        return self.item.tenant

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def need(self) -> Need:
        return self.shape.need


class Failure(msgspec.Struct, gc=False):
    item: Item
    reason: str
    detail: str
    gates: dict[str, int]
    shape: Shape | None = None


class Run(msgspec.Struct, gc=False):
    """Slots of one shape and priority, decided one after the other."""

    shape: Shape
    items: list[Item]
    placements: list[Placement]
    failures: list[Failure]
    gang: bool = False
    learnt: bool = False  # scores that learn have heard of it
    found: Found | None = None  # what the lineup said of the last one that it placed


class Cycle:
    def __init__(self, snapshot: Snapshot, shapes: ShapeBook, policies: Policies, preempting: Preempting, random: Random) -> None:
        self._snapshot = snapshot
        self._shapes = shapes
        self._policies = policies
        self._preempting = preempting
        self._random = random
        self._lineup = Lineup(snapshot)

    def decide(self, items: Sequence[Item]) -> list[Run]:
        """Runs in the order they were decided: priority first, then first come, but for new work: there the large first."""
        runs = self.group(items)
        for run in runs:
            self.decide_run(run)
        return runs

    def group(self, items: Sequence[Item]) -> list[Run]:
        """The runs to decide, in their order. Between two of them the loop may be given back: each looks at the picture anew."""
        runs: list[Run] = []
        open_runs: dict[tuple[int, int], Run] = {}
        for item in items:
            if item.gang:
                self._into_gang(item, runs)
                continue
            shape = self._shape(item)
            if isinstance(shape, Failure):
                runs.append(Run(None, [item], [], [shape]))  # type: ignore[arg-type]  # a class nobody knows has no shape
                continue
            key = (item.priority, id(shape))
            run = open_runs.get(key)
            if run is None or (item.request.spec.budget_name and len(run.items) >= _STANDING_MAX):
                run = open_runs[key] = Run(shape, [], [], [])
                runs.append(run)
            run.items.append(item)
        return large_first(runs, self._snapshot.capacity) if len(runs) > 1 else runs

    def prepare(self, run: Run) -> bool:
        """False: there is more to compute before this run is decided. Ask again; the loop may be given back in between."""
        if run.gang or run.shape is None or not run.shape.learning:
            return True
        self._learn(run)
        return run.shape.prepare()

    def _learn(self, run: Run) -> None:
        if not run.learnt:
            run.learnt = True
            run.shape.learn(sum(item.attempts == 0 for item in run.items))

    def decide_run(self, run: Run) -> None:
        if run.gang:
            self._decide_gang(run)
        elif run.shape is not None:
            self._decide_run(run)

    def _shape(self, item: Item) -> Shape | Failure:
        policy = self._policies.policy_for(item.tenant)
        if policy is None:
            return Failure(item, "Misconfigured", "the policy revision in force cannot be used here", {"policy": 1})
        shape = self._shapes.shape_of(item.request, policy)
        if shape is None:
            wanted = item.request.spec.ask.workload_class
            return Failure(item, "Misconfigured", f"policy revision {policy.revision} has no class {wanted!r}", {"policy": 1})
        return shape

    # --- a run of single slots -------------------------------------------------------------------------------------------

    def _decide_run(self, run: Run) -> None:
        shape = run.shape
        if shape.policy.extensions.pre_filters and not self._pre_filter(run):
            return
        self._learn(run)
        rare = shape.is_rare(len(run.items))
        if not rare:
            shape.catch_up()
        blocked: Failure | None = None  # nothing but this run changes the picture, so where one did not fit none after it will
        seekers: dict[tuple[str, str], Seeker] = {}
        for item in run.items:
            claimed = self._claim_standing(item, shape, seekers) if item.request.spec.budget_name else None
            if claimed is not None:
                run.placements.append(claimed)
                continue
            grant = self._grant(item, shape)
            if isinstance(grant, Failure):
                run.failures.append(grant)
                continue
            if blocked is not None:
                run.failures.append(Failure(item, blocked.reason, blocked.detail, blocked.gates, shape))
                continue
            placed = self._place_rare(run, item, grant) if rare else None
            if placed is None:
                if rare:
                    rare = False
                    shape.catch_up()
                placed = self._place(item, shape, grant)
            if isinstance(placed, Failure):
                run.failures.append(placed)
                blocked = None if item.request.spec.left_node else placed
            else:
                run.placements.append(placed)

    def _place(self, item: Item, shape: Shape, grant: Grant) -> Placement | Failure:
        left = row_left(item, self._snapshot)
        row = self._choose(shape, left)
        if row >= 0:
            return self._assume(item, shape, grant, row)
        if left >= 0:
            detail = f"it was moved off {self._snapshot.names[left]} to make room there, and no other node holds it now"
            return Failure(item, "WaitingForCapacity", detail, {"capacity": 1, **shape.ruled_out()}, shape)
        proposed = self._post_filter(item, shape) if shape.policy.extensions.post_filters else None
        if isinstance(proposed, Failure):
            return proposed
        claimed = proposed or self._preempting.plan(item, shape)
        if claimed is not None:
            return self._claim(item, shape, grant, claimed)
        return self._explain(item, shape)

    def _place_rare(self, run: Run, item: Item, grant: Grant) -> Placement | Failure | None:
        """From the lineup; None where it declines, or knows no place and so should not have the last word."""
        shape = run.shape
        found = self._lineup.best(shape) if not item.request.spec.left_node else None
        if found is None or not found.best:
            return None
        run.found = found
        shape.placed_unranked += 1
        return self._assume(item, shape, grant, found.best[0].row)

    def _post_filter(self, item: Item, shape: Shape) -> Plan | Failure | None:
        """What an extension proposes for a slot that fits nowhere; the built-in way out, preemption, is asked last."""
        snapshot = self._snapshot
        counts = shape.ruled_out()
        for point in shape.policy.extensions.post_filters:
            answer = point.post_filter(shape.columns, counts, snapshot.fleet.all(), snapshot)
            if isinstance(answer, Stop):
                return Failure(item, *known_reason(answer.reason, answer.detail), counts, shape)
            if answer is not None and answer.node in snapshot.row_of:
                pairs = [victim.partition("/") for victim in answer.victims]
                known = tuple((tenant, name) for tenant, _, name in pairs if (tenant, name) in snapshot.uses)
                return Plan(snapshot.row_of[answer.node], known)
        return None

    def _pre_filter(self, run: Run) -> bool:
        """False where an extension stops the whole shape."""
        shape, snapshot = run.shape, self._snapshot
        for point in shape.policy.extensions.pre_filters:
            stop = point.pre_filter(shape.columns, snapshot.fleet.all(), snapshot)
            if stop is not None:
                reason, detail = known_reason(stop.reason, stop.detail)
                run.failures += [Failure(item, reason, detail, {"extension": 1}, shape) for item in run.items]
                return False
        return True

    def _choose(self, shape: Shape, but: int) -> int:
        ranking, snapshot = shape.ranking, self._snapshot
        oldest = snapshot.now_ms - shape.need.max_age_ms
        observed = snapshot.fleet.cells["observed_ms"]
        for _ in range(_STALE_TRIES):
            probes = but < 0 and shape.rules.strategy == "probe"
            row = self._probe(ranking, shape.rules.probe_size) if probes else best_but(ranking, but)
            if row < 0 or observed[row] >= oldest:
                return row
            ranking.fix(row)
        ranking.refresh()
        return best_but(ranking, but)

    def _probe(self, ranking: Ranking, size: int) -> int:
        """The best of a few nodes drawn at random; of all of them where none of the few will do."""
        rows = self._snapshot.fleet.rows
        if rows > 2 * size:
            drawn = sorted({self._random.randrange(rows) for _ in range(size)})
            row = ranking.best_of(drawn)
            if row >= 0:
                return row
        return ranking.best()

    def _assume(self, item: Item, shape: Shape, grant: Grant, row: int) -> Placement | Failure:
        snapshot, need = self._snapshot, shape.need
        devices: tuple[DeviceHold, ...] = ()
        if need.devices:
            picked = shape.pick_devices(row) or pick_devices(
                need.devices, snapshot.fleet.devices[row], snapshot.fleet.device_used[row]
            )
            if picked is None:
                return Failure(item, "WaitingForCapacity", "the free devices do not combine", {"devices": 1}, shape)
            devices = picked
        use = self._take(item, row, devices)
        if shape.ranking.is_made:
            shape.ranking.placed(row)
        return Placement(item, row, snapshot.names[row], shape, version_of(grant), use, devices)

    def _take(self, item: Item, row: int, devices: tuple[DeviceHold, ...]) -> Use:
        spec = item.request.spec
        how = LENT if spec.may_borrow else HELD if spec.standing else FIRM
        snapshot, marks = self._snapshot, self._shapes.marks_of(spec.ask)
        snapshot.assumptions += 1
        use = Use(
            row, how, spec.ask.requests, devices, spec.priority, spec.slot.uid, marks, not spec.standing, spec.min_serving,
            snapshot.now_ms, snapshot.assumptions, spec.epoch,
        )  # fmt: skip
        snapshot.set_use((item.tenant, item.name), use)
        return use

    def _claim(self, item: Item, shape: Shape, grant: Grant, claimed: Plan) -> Placement:
        use = self._take(item, claimed.row, claimed.devices)
        self._preempting.assume(item, claimed)
        names = self._snapshot.names
        victims = tuple(f"{tenant}/{name}" for tenant, name in claimed.victims)
        return Placement(item, claimed.row, names[claimed.row], shape, version_of(grant), use, claimed.devices, victims)

    def _claim_standing(self, item: Item, shape: Shape, seekers: dict[tuple[str, str], Seeker]) -> Placement | None:
        """Room that its budget holds. It is charged already, so the grant is not asked."""
        spec, snapshot = item.request.spec, self._snapshot
        grant = snapshot.grants.get(item.tenant)
        if grant is None or spec.standing:
            return None
        budget = (item.tenant, spec.budget_name)
        if budget not in seekers:
            seekers[budget] = Seeker(snapshot, self._preempting, shape, snapshot.rooms.free(*budget, snapshot.uses))
        seeker = seekers[budget]
        while (found := seeker.take(item)) is not None:
            room, plan = found
            placed = self._claim(item, shape, grant, plan) if plan else self._assume(item, shape, grant, room.use.row)
            if isinstance(placed, Placement):
                seeker.claimed(room)
                rest = room.use.requests.left_after(spec.ask.requests)
                if rest != NOTHING:  # it stays held
                    snapshot.set_use(room.key, replace(room.use, requests=rest, assumed=placed.use.assumed))
                    shape.catch_up()
                placed.claims, placed.room = room.key[1], room.use
                return placed
            seeker.give_back(room, plan is not None)
        return None

    def _held_still(self, key: SlotKey, room: Use, assumed: int) -> None:
        """A claim was refused: the room is held as before, unless the watch has shown its end meanwhile."""
        present = self._snapshot.uses.get(key)
        if key in self._snapshot.rooms and (present is None or present.assumed == assumed):
            self._snapshot.set_use(key, room)

    def take_back(self, placement: Placement) -> None:
        """The authority refused it: the picture is as before, unless the watch has meanwhile shown the slot elsewhere."""
        if placement.victims:
            self._preempting.take_back(placement.item)
        key = (placement.tenant, placement.name)
        present = self._snapshot.uses.get(key)
        if present is not None and present.assumed == placement.use.assumed:  # perhaps another's victim by now, and still no fact
            self._snapshot.set_use(key, None)
        if placement.room is not None:
            self._held_still((placement.tenant, placement.claims), placement.room, placement.use.assumed)

    # --- gangs -----------------------------------------------------------------------------------------------------------

    def _into_gang(self, item: Item, runs: list[Run]) -> None:
        last = runs[-1] if runs else None
        if last is None or not last.gang or last.items[0].gang != item.gang or last.items[0].tenant != item.tenant:
            last = Run(None, [], [], [], gang=True)  # type: ignore[arg-type]  # members may differ in shape
            runs.append(last)
        last.items.append(item)

    def _decide_gang(self, run: Run) -> None:
        """All or none: a member without a place takes back the others' (S20)."""
        for item in run.items:
            placed = self._place_member(item)
            if isinstance(placed, Failure):
                for placement in reversed(run.placements):
                    self.take_back(placement)
                run.placements.clear()
                detail = f"{item.name}, of a gang of {len(run.items)}: {placed.detail}"
                run.failures = [Failure(member, placed.reason, detail, placed.gates, placed.shape) for member in run.items]
                return
            run.placements.append(placed)

    def _place_member(self, item: Item) -> Placement | Failure:
        shape = self._shape(item)
        if isinstance(shape, Failure):
            return shape
        grant = self._grant(item, shape)
        if isinstance(grant, Failure):
            return grant
        shape.learn(item.attempts == 0)
        shape.catch_up()
        return self._place(item, shape, grant)

    # --- what keeps a slot waiting -----------------------------------------------------------------------------------------

    def _grant(self, item: Item, shape: Shape) -> Grant | Failure:
        grant = self._snapshot.grants.get(item.tenant)
        if grant is None:
            return Failure(item, "WaitingForQuota", f"tenant {item.tenant} has no grant here", {"quota": 1}, shape)
        snapshot = self._snapshot
        if held := snapshot.grants.holds(grant, shape.rules.local_autonomy, snapshot.revision, snapshot.now_ms):
            return Failure(item, "PolicyAuthorityUnreachable", held, {"policy": 1}, shape)
        limits = limits_of(snapshot.grants.limit(grant, snapshot.revision, snapshot.now_ms))
        charge = dict(item.amounts) if shape.need.devices else shape.need.charge
        used = self._snapshot.used.get(item.tenant)
        short = shortage(used or {}, charge, limits)
        if not short:
            return grant
        detail = "; ".join(f"{name}: {text}" for name, text in short.items())
        alone = not grant.spec.lease_seconds and shortage({}, charge, limits)  # a leased one may grow
        return Failure(item, "ExceedsMaxQuota" if alone else "WaitingForQuota", detail, {"quota": 1}, shape)

    def _explain(self, item: Item, shape: Shape) -> Failure:
        """Why it fits nowhere. The gate that the closest nodes failed gives the reason: they passed all before it."""
        counts = shape.ruled_out()
        closest = None
        for gate in shape.gates:
            if gate.name in counts:
                closest = gate
        if closest is None:
            return Failure(item, "NoMatchingCapacity", "there are no nodes", {}, shape)
        reason = getattr(closest, "reason", "NoMatchingCapacity")
        if reason == "WaitingForCapacity" and shape.too_large():
            reason = "NoMatchingCapacity"
        detail = ", ".join(f"{count} {name}" for name, count in counts.items())
        return Failure(item, *known_reason(reason, f"of {self._snapshot.fleet.rows} nodes: {detail}"), counts, shape)
