"""A copy of one plane in memory: its objects, and the production judges over them. Nothing of it is ever durable.

Owns how a command is tried: judged by fairlead/authority/judge on the copied state, and applied to it. Never asks the plane it
was copied from again. Called by walking.py, placing.py and trial.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairlead.authority.hot import hot_of
from fairlead.authority.judge import Context, Settings, judge
from fairlead.authority.state import Rec, State
from fairlead.client.plane import Change
from fairlead.controllers.cache import Item, Objects
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.model.commands import Accepted, Body, Caller, Command, LeaseAcquire, Outcome, Refused
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Node
from fairlead.model.lifecycle import Role
from fairlead.model.registry import GLOBAL

LEASE_S: Final = 1e9  # of the copy's own controllers: nobody competes with them
HEARD_MS: Final = 1 << 50  # a node that is well is taken to stay so for as long as a trial lasts
LEFT_OUT: Final = frozenset(
    {
        "events",
        "leases",
        "decisions",
        "planes",
        "tokens",
        "serviceaccounts",
        "accessroles",
        "accessbindings",
        "secrets",
        "configs",
    }
)  # what no placement depends on, and what a copy should not hold

Told = tuple[Item | None, Item | None]  # one object before and after a change


class Copy:
    """One plane as it was at `revision`."""

    def __init__(self, name: str, revision: int, now_ms: int, plugins: Registry = BUILT_INS) -> None:
        self.name = name
        self.plugins = plugins  # what its policies may name: the judges' and the placer's alike
        self.revision_read = revision
        self.state = State(hot_of)
        plane = "global" if name == GLOBAL else "region"
        self.ctx = Context(self.state, Settings(plane=plane, region=name, plugins=plugins))
        self.objects = Objects()
        self.fresh: list[Rec] = []  # changes that nobody has looked at yet
        self._rows: list[tuple[str, int, bytes]] = []
        incarnation, self._position = split_revision(revision)
        self.ctx.begin(max(incarnation, 1))
        self.set_time(now_ms)

    @property
    def is_global(self) -> bool:
        return self.name == GLOBAL

    def revision(self) -> int:
        return self.ctx.revision(self.state.position)

    def plane_ms(self) -> int:
        return self.now_ms

    @property
    def incarnation(self) -> int:
        return self.ctx.incarnation

    def set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.ctx.set_time(now_ms)

    # --- filling it --------------------------------------------------------------------------------------------------------

    def take(self, changes: Iterable[Change]) -> None:
        """Objects as they were read; several pages of them, then `ready`."""
        rows = [(f"{c.plural}/{c.tenant}/{c.name}", c.position, c.raw) for c in changes if c.raw is not None]
        position = max([self._position, *(row[1] for row in rows)])
        self._position = position
        self.state.load(rows, position)
        for plural, tenant, name in (key.split("/", 2) for key, _, _ in rows):
            rec = self.state.get(plural, tenant, name)
            assert rec is not None, "it was loaded"
            self.objects.apply(rec)

    def ready(self) -> None:
        self.state.loaded(self._position)
        for rec in self.state.live("nodes"):
            self.hear(rec.name, rec.hot)

    def hear(self, name: str, node: Node) -> None:
        """It is as well as it says."""
        if node.status.health == "Ready":
            self.ctx.ledger.node(name).observed_ms = HEARD_MS

    # --- trying ------------------------------------------------------------------------------------------------------------

    def lease(self, name: str, role: Role) -> Caller:
        """The caller as which one of the copy's own controllers acts."""
        caller = Caller("plan", role)
        outcome = self.submit(Command(caller, LeaseAcquire(name, role, LEASE_S)))
        assert isinstance(outcome, Accepted), f"{name} of a copy is free: {outcome}"
        return Caller("plan", role, lease=name, fencing_epoch=outcome.epoch)

    def send(self, caller: Caller, body: Body) -> Outcome:
        return self.submit(Command(caller, body))

    def submit(self, command: Command) -> Accepted | Refused:
        judged = judge(self.ctx, command)
        if isinstance(judged, Refused):
            return judged
        state = self.state
        if judged.dry_run or not judged.effects:
            at = judged.position or state.position
            return Accepted(self.ctx.revision(at), judged.key, judged.uid, judged.epoch, judged.token, False, judged.refused)
        if not judged.placed:
            for effect in judged.effects:
                state.place(effect)
        for effect in judged.effects:
            if effect.plural == "nodes" and effect.raw is not None:
                self.hear(effect.name, effect.hot)
        self.fresh += judged.effects
        key = judged.key or str(judged.effects[-1].key)
        return Accepted(self.ctx.revision(state.position), key, judged.uid, judged.epoch, judged.token, False, judged.refused)

    def news(self) -> list[tuple[Rec, Item | None, Item | None]]:
        """What has changed since this was asked last, each with the object before and after."""
        fresh, self.fresh = self.fresh, []
        out = []
        for rec in fresh:
            old, new = self.objects.apply(rec)
            if old is not new:
                out.append((rec, old, new))
        return out
