"""Three regions and a global plane that share slots which run once in the world, in true time, on the functions that run.

The judge of leases, `succeed`, `gone`, `may_give_back` and `with_successors` of the global plane, and the whole keeper of a
region's slot lease with `caught_up` are production's; copies, words and agents are only as late as they can be. Who is lost and
who is well is drawn at will: nobody's safety may rest on that. Clocks are wrong by at most one per cent, messages are lost, late
and repeated, leaders change, and either side is restored from an older copy.Two things are taken as given here:
a restored region's nodes say what they run before the region speaks of it (judge/giving.py sees to that), and what a restored
global plane wants reaches a region when leases of the history before are over there (controllers/mirror.py does). `violation`
asks of the true state: no chain runs twice.

`without` names guards to leave out: each makes the model unsafe, and the test must find it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fairlead.authority.judge import leases
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.controllers import slot_lease as keeping
from fairlead.controllers.mirror import GENERATION, UID
from fairlead.decide import slot_lease, succession
from fairlead.decide.assigning import BLOCK, spare_in
from fairlead.decide.rollout import wanted
from fairlead.decide.slots import Slot, instant
from fairlead.decide.spans import index_set, spans_of
from fairlead.decide.succession import Alone, Areas
from fairlead.model.commands import Accepted, Caller, Command, LeaseAcquire, LeaseRelease, LeaseRenew, Outcome, Refused
from fairlead.model.ids import revision
from fairlead.model.kinds.ledger import LeaseSpec
from fairlead.model.kinds.recovery import RecoveryOrder, RecoveryOrderSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.decide.escrow_model import Clock
from tests.decide.slot_lease_parts import Above, Below, Bound, Node, Seen, bound, copied_of, driven, soon

TTL_S = 60.0
REGIONS = ("centre", "east", "west")
HOMES = {"east": (BLOCK, BLOCK + 1), "west": (2 * BLOCK,), "centre": ()}
RECOVERY = Caller("recovery-0", Role.RECOVERY)
BEFORE_ANY_S = 1000.0  # clocks do not begin at nought
GUARDS = frozenset({
    "recovery waits for the lease", "a restored global waits", "the keeper counts from when it asked",
    "the region catches up first", "home waits for the stand-in", "agents obey the lease",
    "what is bound for another leaves first",
})  # fmt: skip


class World:
    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        assert without <= GUARDS, without - GUARDS
        self.without = without
        self.clocks = {name: Clock() for name in ("global", *REGIONS, *(f"node-{region}" for region in REGIONS))}
        self.above = Above()
        self.leader_since_ms = self.tokens = 0
        self.incarnations = 1
        self.below = {region: Below() for region in REGIONS}
        self.nodes = {region: Node() for region in REGIONS}
        self.slots_until = dict.fromkeys(REGIONS, 0.0)  # of each region's leader, in memory
        self.histories = dict.fromkeys(REGIONS, 1)
        self.given: dict[str, tuple[int, float]] = dict.fromkeys(REGIONS, (1, 0.0))  # in which history, and until when
        self.keepers = {region: self._keeper(region) for region in REGIONS}
        self.sent: list[Command] = []  # any of these may arrive once more
        self.copies: dict[str, list[Any]] = {name: [] for name in ("global", *REGIONS)}
        self.delay_ms, self.lost, self.meanwhile = (0, 0), False, list[Callable[[], None]]()
        for number, region in enumerate(REGIONS):
            spec = AssignmentSpec("api", "u", 1, region, slots=spans_of(HOMES[region]), spare=spare_in(number, 1))
            self._assign(region, succession.with_successors(spec, None, "b"))
            self.brought_up_to_date(region)

    # --- time

    def advance(self, true_ms: int) -> None:
        for clock in self.clocks.values():
            clock.advance(true_ms)
        for region, node in self.nodes.items():
            if "agents obey the lease" not in self.without and self.now_s(f"node-{region}") >= node.until_s:
                node.running = {}

    def now_s(self, who: str) -> float:
        return BEFORE_ANY_S + self.clocks[who].reading / 1_000_000

    def now_ms(self) -> int:
        return int(self.now_s("global") * 1000)

    # --- the global plane

    def _assign(self, region: str, spec: AssignmentSpec) -> None:
        before, self.above.position = self.above.assignments.get(region), self.above.position + 1
        if before is None:
            meta: Any = Metadata(name=f"api.{region}", namespace="risk", uid=f"a-{region}", generation=1)  # type: ignore[arg-type]
            self.above.assignments[region] = Assignment(meta, spec)
        elif before.spec != spec:
            meta = replace(before.metadata, generation=before.metadata.generation + 1)
            self.above.assignments[region] = replace(before, metadata=meta, spec=spec)

    def judge(self, command: Command) -> Outcome:
        """Production's verdict, at this moment."""
        above, now_ms, body = self.above, self.now_ms(), command.body
        found = [SimpleNamespace(name=name, hot=lease) for name, lease in above.leases.items()]
        state = SimpleNamespace(get=lambda plural, tenant, name: self._rec(name), live=lambda plural: iter(found))
        ctx: Any = SimpleNamespace(
            state=state, now=instant(now_ms), now_ms=now_ms, incarnation=above.incarnation, leader_epoch=1,
            leader_since_ms=self.leader_since_ms, settings=SimpleNamespace(region="global", clock_rate_error=0.01),
            next_uid=lambda ahead=0: "l",
        )  # fmt: skip
        if "a restored global waits" in self.without and isinstance(body, LeaseAcquire) and body.name in above.leases:
            lease = above.leases[body.name]
            above.leases[body.name] = replace(lease, spec=replace(lease.spec, incarnation=above.incarnation))
        if "recovery waits for the lease" in self.without and command.caller.role is Role.RECOVERY:
            above.leases.pop(getattr(body, "name", ""), None) if isinstance(body, LeaseAcquire) else None
            ctx.leader_since_ms, ctx.incarnation = 0, 1
        match body:
            case LeaseAcquire():
                got = leases.acquire(ctx, command.caller, body)
            case LeaseRenew():
                got = leases.renew(ctx, command.caller, body)
            case LeaseRelease():
                got = leases.release(ctx, command.caller, body)
            case _:
                raise AssertionError(body)
        if isinstance(got, Refused):
            return got
        above.position += 1
        for effect in got.effects:
            above.leases[effect.name] = effect.hot
        return Accepted(revision(above.incarnation, above.position), epoch=got.epoch)

    def _rec(self, name: str) -> Any:
        found = self.above.leases.get(name)
        return SimpleNamespace(hot=found, position=1) if found is not None else None

    def recovers(self, lost: frozenset[str], settled: frozenset[str], stuck: frozenset[str] = frozenset()) -> None:
        """One look of the recovery controller, for one workload, on whatever it believes of the regions."""
        above, order = self.above, self.above.order
        specs: dict[str, LeaseSpec] = {
            region: lease.spec for region in REGIONS if (lease := above.leases.get(slot_lease.lease_of(region))) is not None
        }
        taken, mine = slot_lease.taken_from(specs, above.incarnation), dict(above.assignments)
        stand_ins = order.spec.stand_ins if order is not None else ()
        left = succession.gone(order, mine) if order is not None else frozenset()
        if "home waits for the stand-in" in self.without:
            left = frozenset(one for one in stand_ins if one.leaving)
        alone = Alone(
            "api", {r: succession.homes_of(a.spec) for r, a in mine.items()}, stand_ins, taken, left,
            succession.blocks_of(mine.values()),
        )  # fmt: skip
        for region in sorted(lost - taken.keys()):
            due_ms = slot_lease.free_ms(specs.get(region), Role.RECOVERY, TTL_S, above.incarnation, self.leader_since_ms)
            if self.now_ms() >= due_ms or "recovery waits for the lease" in self.without:
                self.judge(Command(RECOVERY, LeaseAcquire(slot_lease.lease_of(region), Role.RECOVERY, TTL_S)))
        for region, epoch in taken.items():
            right = succession.may_give_back(region, [stand_ins], [mine.get(region)])
            if region not in lost and right:
                self.judge(Command(RECOVERY, LeaseRelease(slot_lease.lease_of(region), epoch)))
        able = tuple(region for region in REGIONS if region not in lost | stuck)
        found = succession.succeed(alone, 3, Areas(lost, settled, able, stuck), lambda region: 9)
        if found.stand_ins != stand_ins:
            self._ordered(found.stand_ins)

    def _ordered(self, stand_ins: Any) -> None:
        before = self.above.order
        self.above.position += 1
        generation = before.metadata.generation + 1 if before is not None else 1
        uid: Any = before.metadata.uid if before is not None else f"o-{self.above.incarnation}-{self.above.position}"
        spec = RecoveryOrderSpec(workload="api", workload_uid="u", stand_ins=stand_ins)
        order = RecoveryOrder(Metadata(name="api", namespace="risk", uid=uid, generation=generation), spec)
        self.above.order = order if stand_ins else None

    def assigns(self, region: str) -> None:
        """The workload controller: what the order means to a region."""
        before = self.above.assignments[region].spec
        plain = replace(before, slots=spans_of(HOMES[region]), superseded=(), recovery=None, successors=())
        self._assign(region, succession.with_successors(plain, self.above.order, "b"))

    def hears(self, region: str) -> None:
        """The region's word on its assignment comes up, as its mirror sees both now."""
        copy, original = self.below[region].copy, self.above.assignments[region]
        if copy is None or copy.status.observed_generation != copy.metadata.generation:
            return
        seen = int(copy.metadata.annotations[GENERATION])
        if original.status.observed_generation <= seen <= original.metadata.generation:
            status = AssignmentStatus(observed_generation=seen, unwanted=copy.status.unwanted)
            self.above.assignments[region] = replace(original, status=status)

    # --- a region

    def brought_up_to_date(self, region: str) -> None:
        for step in (self.mirror_reads, self.mirror_writes, self.settles, self.node_hears, self.node_tells, self.settles):
            step(region)
        self.hears(region)

    def mirror_reads(self, region: str) -> None:
        history, until_s = self.given[region]
        if history != self.above.incarnation and self.now_s(region) < until_s + slot_lease.MARGIN_S:
            return  # agents may still act on it
        self.below[region].seen = self.above.assignments[region]

    def mirror_writes(self, region: str) -> None:
        here = self.below[region]
        if here.seen is None:
            return
        meta, before = here.seen.metadata, here.copy
        notes = {UID: meta.uid, GENERATION: str(meta.generation)}
        if before is None or before.metadata.annotations != notes or before.spec != here.seen.spec:
            generation = 1 if before is None else before.metadata.generation + 1
            status = before.status if before is not None else AssignmentStatus()
            copied = Metadata(name=meta.name, namespace="risk", generation=generation, annotations=notes)
            here.copy = Assignment(copied, here.seen.spec, status)

    def settles(self, region: str) -> None:
        """The region binds what is wanted and says what is not, and is not over."""
        here = self.below[region]
        if here.copy is None:
            return
        free = self._wanted(here)
        for index in sorted(free - {each.index for each in here.bound.values()}):
            self.tokens += 1
            here.bound[self.tokens] = bound(here.copy.spec, region, index)
        unwanted = sum(each.index not in free for each in here.bound.values())
        status = AssignmentStatus(observed_generation=here.copy.metadata.generation, unwanted=unwanted)
        here.copy = replace(here.copy, status=status)

    def _wanted(self, here: Below) -> frozenset[int]:
        if here.copy is None:
            return frozenset()
        if "what is bound for another leaves first" in self.without:
            return frozenset(index_set(here.copy.spec.slots))
        there = {
            each.index: Slot(each.index, SlotState.SERVING, 1, 1, supersedes=each.supersedes) for each in here.bound.values()
        }
        free = wanted(replace(here.copy.spec, spare=None), there).keys()
        return frozenset(free)

    def keeps(self, region: str) -> None:
        """One look of the region's keeper of its slot lease."""
        with suppress(Unreachable):
            driven(self.keepers[region]._look())

    def _keeper(self, region: str) -> keeping.SlotLease:
        def list_own(plural: str) -> list[Any]:
            copy = self.below[region].copy
            return [Seen(copy)] if copy is not None else []

        def lasts(until: float) -> None:
            late = "the keeper counts from when it asked" in self.without
            self.slots_until[region] = slot_lease.held_until(self.now_s(region), TTL_S) if late else until
            self.given[region] = (self.above.incarnation, until)

        own: Any = SimpleNamespace(vouches=True, list=soon(list_own))
        above: Any = SimpleNamespace(submit=soon(self._submitted), page=soon(self._page))
        clock: Any = SimpleNamespace(monotonic=lambda: self.now_s(region))
        kept = keeping.SlotLease(region, own, above, clock, f"{region}-0", TTL_S, lasts)
        if "the region catches up first" in self.without:
            kept._has_caught_up = soon(lambda: True)  # type: ignore[method-assign]
        return kept

    def _submitted(self, commands: list[Command]) -> list[Outcome]:
        """Under way for a while, in which others go on."""
        (command,) = commands
        self.sent = [*self.sent[-4:], command]
        self._wait(self.delay_ms[0])
        got = self.judge(command)
        self._wait(self.delay_ms[1])
        if self.lost:
            raise Unreachable("the answer is lost")
        return [got]

    def _page(self, plural: str, **_: Any) -> ChangePage:
        items: list[Any] = [Seen(each) for each in self.above.assignments.values()]
        return ChangePage(items, revision(self.above.incarnation, self.above.position))

    def _wait(self, ms: int) -> None:
        if self.meanwhile and ms:
            self.meanwhile.pop(0)()
        for _ in range(4):
            self.advance(ms // 4)

    # --- a region's agents

    def node_hears(self, region: str) -> None:
        here, node = self.below[region], self.nodes[region]
        self._hear_history(region, self.now_s(f"node-{region}"))
        free = self._wanted(here)
        node.has = {token: each for token, each in here.bound.items() if each.index in free}
        node.running = {token: each for token, each in node.running.items() if token in node.has}

    def node_tells(self, region: str) -> None:
        here, node = self.below[region], self.nodes[region]
        free = self._wanted(here)
        over = [token for token, each in here.bound.items() if each.index not in free and token not in node.has]
        for token in over:
            if token not in node.running:
                del here.bound[token]

    def heartbeat(self, region: str, there_ms: int = 0, back_ms: int = 0) -> None:
        sent = self.now_s(f"node-{region}")
        self.advance(there_ms)
        left_s = max(0.0, self.slots_until[region] - self.now_s(region))
        self.advance(back_ms)
        node = self.nodes[region]
        self._hear_history(region, sent)
        node.until_s = max(node.until_s, sent + left_s * (1 - slot_lease.RHO))

    def _hear_history(self, region: str, sent: float) -> None:
        """In another history what was superseded may be bound again: an agent counts on what it is told in that one alone."""
        node = self.nodes[region]
        if node.heard_in != self.histories[region]:
            node.heard_in, node.until_s, node.running = self.histories[region], min(node.until_s, sent), {}

    def node_starts(self, region: str) -> None:
        node = self.nodes[region]
        if self.now_s(f"node-{region}") < node.until_s:
            node.running = dict(node.has)

    # --- crashes and restores

    def leader_changes(self, who: str) -> None:
        if who == "global":
            self.leader_since_ms = self.now_ms()
        else:
            self.slots_until[who] = 0.0
            self.keepers[who] = self._keeper(who)

    def copied(self, who: str) -> None:
        state = self.above if who == "global" else self.below[who]
        self.copies[who] = [*self.copies[who][-2:], copied_of(state)]

    def restored(self, who: str, which: int) -> None:
        if not self.copies[who]:
            return
        older = copied_of(self.copies[who][which % len(self.copies[who])])
        self.incarnations += 1
        if who == "global":
            older.incarnation = self.incarnations
            self.above = older
        else:
            older.bound = self._listed(who, older)
            self.below[who] = older
            self.histories[who] += 1
        self.leader_changes(who)

    def _listed(self, region: str, older: Below) -> dict[int, Bound]:
        """What nodes have or run is adopted; the rest of the copy is bound, and began nowhere."""
        node = self.nodes[region]
        told = {**node.has, **node.running}
        known = {each.index for each in told.values()}
        return {**told, **{token: each for token, each in older.bound.items() if each.index not in known}}

    def arrives_again(self, which: int) -> None:
        if self.sent:
            self.judge(self.sent[which % len(self.sent)])

    # --- what must hold

    def violation(self) -> str:
        where: dict[str, list[str]] = {}
        for region, node in self.nodes.items():
            for each in node.running.values():
                where.setdefault(each.chain, []).append(f"{region}/{each.index}")
        twice = {chain: found for chain, found in where.items() if len(found) > 1}
        return f"run twice: {twice}" if twice else ""
