"""What a judge may look at, and what it answers with. Judging is pure: it reads the speculative state, makes no I/O, asks no
clock, and returns either the effects to make or a refusal with the facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from fairlead.authority.hot import hot_from
from fairlead.authority.judge.policies import Policies
from fairlead.authority.judge.unlisted import Unlisted
from fairlead.authority.ledger import Ledger
from fairlead.authority.owners import Owners
from fairlead.authority.state import Rec, State
from fairlead.authority.staying import Staying
from fairlead.decide.compiling import compile_need, recompile_topology
from fairlead.decide.fit import Need
from fairlead.decide.granting import Granted
from fairlead.decide.need import ExtraGate
from fairlead.decide.overrides import Overrides
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.policy import CompiledPolicy
from fairlead.model import codec
from fairlead.model.commands import Refused
from fairlead.model.ids import Uid, revision
from fairlead.model.kinds.ledger import Plane
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Ask

_NEEDS_MAX = 50_000


class Settings(msgspec.Struct, frozen=True):
    """What a plane is configured with."""

    plane: str = "region"
    region: str = "local"
    address: str = ""  # where this server is reached, for those who look for the leader
    clock_rate_error: float = 0.01
    node_lease_s: float = 15.0
    fence_margin_s: float = 2.0
    max_observation_age_s: float = 30.0
    reservation_ttl_max_s: float = 300.0
    plugins: Registry = BUILT_INS

    @property
    def fence_s(self) -> float:
        """After this long without a renewal an agent has certainly stopped what it must (P9)."""
        return self.fence_of(self.node_lease_s)

    def fence_of(self, lease_s: float) -> float:
        return lease_s * (1 + self.clock_rate_error) + self.fence_margin_s


Effect = Rec  # One object as it will be: a record that is not in the state yet.


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An acceptance. With no effects it repeats or changes nothing, and `position` says where the object stands. `key` is left
    out where it is the last effect's."""

    effects: list[Effect]
    key: str = ""
    uid: str = ""
    epoch: int = 0
    token: Token | None = None
    position: int = 0
    soft: tuple[tuple[str, int], ...] = ()  # soft facts judged on: (node, when it was last heard)
    dry_run: bool = False
    # Parts of one command see each other's effects, so those are placed as they are judged; whoever rejects the draft after all
    # takes them back with `undo_to`.
    placed: bool = False
    refused: tuple[tuple[int, Refused], ...] = ()


Judgement = Draft | Refused


class _Kept(NamedTuple):
    """A compiled need, for as long as nothing it was compiled from changed. Holding the ask keeps its id from being reused."""

    ask: Ask
    need: Need
    stamp: int
    classes_version: int


class Context:
    """The plane as one command finds it. `now_ms` is the batch's plane time."""

    def __init__(self, state: State, settings: Settings) -> None:
        self.state = state
        self.ledger = Ledger(state)
        self.owners = Owners(state)
        self.staying = Staying(state)
        self.settings = settings
        self.policies = Policies(state, settings.plugins, settings.region if settings.plane == "region" else "")
        self.policy_in_force = self.policies.in_force
        self.overrides = Overrides()
        self.unlisted = Unlisted(self.ledger)
        self.granted: dict[str, Granted] = {}  # by tenant; kept by granting.py, for as long as nothing of it changes
        self.begin(1)
        self.leader_since_ms = 0
        self.leader_epoch = 0  # of whoever leads, as its first batch says
        self.unmeasured_ms = 0  # of plane time, as the same batch says
        self.taken_back = 0  # grows with each batch that is, before it is durable: its positions are given out again
        self._needs: dict[tuple[int, str, bool, int, str], _Kept] = {}
        self._tells_apart = False
        state.derive("schedulerpolicies", self._policy_changed)
        state.derive("overrides", self._override_changed)
        state.derive("planes", self._leader_changed)
        state.derive("grants", self._grant_changed)
        state.derive("grantterms", self._grant_changed)
        self.plane_ms: Callable[[], int] = lambda: 0  # the running term's clock, for work between batches
        self.now_ms = 0
        self.now: datetime
        self.set_time(0)

    def begin(self, incarnation: int) -> None:
        """The history this plane is in (P6)."""
        self.incarnation = incarnation
        self._revision_base = revision(incarnation, 0)
        self._uid_prefix = f"{self.settings.region}.{incarnation:x}."
        self.granted.clear()

    def fence_s(self, now_ms: int) -> float:
        """The settings' own; and until whoever heard only a leader before this one has certainly stopped, the longest that one of
        those may have told an agent."""
        plane: Plane | None = self.state.hot("planes", "", "self")
        longest_s = self.settings.fence_of(plane.spec.longest_lease_seconds) if plane is not None else 0.0
        over = now_ms >= self.leader_since_ms + longest_s * 1000
        return self.settings.fence_s if over else max(self.settings.fence_s, longest_s)

    def refuse_unlisted(self, name: str) -> Refused | None:
        """Of an Exclusive slot that is to be bound: a node may run it, in a life that was lost with the store's tail."""
        if self.incarnation <= 1:
            return None
        fenced_ms = self.now_ms - int(self.fence_s(self.now_ms) * 1000)
        left_ms = self._incarnation_began_ms() - fenced_ms
        if left_ms > 0:  # nodes whose very first words were lost too are in no list of ours
            detail = f"history was lost, and a node that is forgotten with it may run {name}"
            return Refused("FenceNotPassed", detail, {"leftSeconds": left_ms / 1000}, retry_after_s=left_ms / 1000)
        # Until this leader has seen a whole fence pass, nobody's silence proves anything.
        node = self.unlisted.one(self.incarnation, fenced_ms if fenced_ms > self.leader_since_ms else 0)
        if not node:
            return None
        detail = f"{node} has not said what it runs since history was lost: it might be {name}"
        return Refused("FenceNotPassed", detail, {"node": node}, retry_after_s=1.0)

    def _incarnation_began_ms(self) -> int:
        plane: Plane | None = self.state.hot("planes", "", "self")
        began = plane.spec.incarnation_time if plane is not None and plane.spec.incarnation == self.incarnation else None
        return to_ms(began) if began is not None else self.leader_since_ms

    def set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.now = instant(now_ms)
        self.granted.clear()

    def revision(self, position: int) -> int:
        return self._revision_base + position

    def next_uid(self, ahead: int = 0) -> Uid:
        """The uid of the object that the effect `ahead` places after the next will create: where it is born names it."""
        return f"{self._uid_prefix}{self.state.position + 1 + ahead:x}"  # type: ignore[return-value]  # Uid() is a call

    def need_of(self, ask: Ask, tenant: str, uid: str, borrows: bool, policy_revision: int, workload: str = "") -> Need | Refused:
        """The ask compiled under a policy revision. Equal slots of one workload share the ask object, so the look-up is by
        identity; the workload itself matters where rules count its own slots."""
        place, topology = ask.placement, self.ledger.topology
        apart = place.spread or place.max_per_node or self._tells_apart
        wanted = (id(ask), tenant, borrows, policy_revision, uid if apart else "")
        found = self._needs.get(wanted)
        if found is not None and found.ask is ask and found.stamp == topology.version + topology.classes.version:
            return found.need
        # What is no longer kept up to date (classes) is compiled anew; a rule that appeared (topology) is added to what stands.
        if found is not None and found.ask is ask and found.classes_version == topology.classes.version:
            need = recompile_topology(found.need, ask, tenant, uid, topology)
        else:
            policy = self.policies.compiled(policy_revision)
            if isinstance(policy, Refused):
                return policy
            avoided = self.overrides.avoidance(tenant, workload, topology.classes)
            need = self._compile(ask, tenant, uid, borrows, policy, (avoided,) if avoided is not None else ())
        if len(self._needs) > _NEEDS_MAX:
            self._needs.clear()
        self._needs[wanted] = _Kept(ask, need, topology.stamp(), topology.classes.version)
        return need

    def _compile(
        self, ask: Ask, tenant: str, uid: str, borrows: bool, policy: CompiledPolicy, more: tuple[ExtraGate, ...]
    ) -> Need:
        """S6 is judged by the revision in force: its residency rules, narrowed by the ask's own."""
        bound_s = policy.max_age_ms(ask) / 1000 if policy.revision else self.settings.max_observation_age_s
        return compile_need(
            ask,
            tenant,
            uid,
            self.ledger.topology,
            borrows=borrows,
            max_age_s=bound_s,
            areas=policy.residency_areas(ask.placement.residency, tenant, ask.labels),
            extra=(*policy.gates, *more),
        )

    def _leader_changed(self, old: Rec | None, new: Rec | None) -> None:
        self.leader_epoch = new.hot.spec.epoch if new is not None else 0
        self.unmeasured_ms = round(new.hot.spec.unmeasured_seconds * 1000) if new is not None else 0

    def _override_changed(self, old: Rec | None, new: Rec | None) -> None:
        """Also told when a batch is undone."""
        changed = new or old
        if changed is not None:
            self.overrides.set(changed.tenant, changed.name, new.hot if new is not None else None)
        self._tells_apart = self.overrides.tells_workloads_apart()
        self._needs.clear()

    def _grant_changed(self, old: Rec | None, new: Rec | None) -> None:
        self.granted.clear()

    def _policy_changed(self, old: Rec | None, new: Rec | None) -> None:
        self._needs.clear()  # a revision never changes, but one may be withdrawn and another put in its place


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=_EPOCH.tzinfo)


def to_ms(when: datetime) -> int:
    return round((when - _EPOCH).total_seconds() * 1000)


def put(plural: str, tenant: str, name: str, value: Any, hot: Any = None) -> Effect:
    return Rec(plural, tenant, name, 0, codec.encode(value), hot if hot is not None else hot_from(plural, value))


def drop(plural: str, tenant: str, name: str) -> Effect:
    return Rec(plural, tenant, name, 0, None)


def describe(ctx: Context, rec: Rec) -> dict[str, Any]:
    """The facts about an object that a refusal carries."""
    return {"key": rec.key, "revision": ctx.revision(rec.position)}
