"""What one process knows of its plane: the state and everything derived from it, made anew whenever memory must be dropped."""

from __future__ import annotations

import gc

from fairlead.authority.early import Early
from fairlead.authority.follower import Behind, Follower
from fairlead.authority.hot import hot_of
from fairlead.authority.hub import Hub
from fairlead.authority.judge import Context, Settings
from fairlead.authority.receipts import Receipts
from fairlead.authority.remembering import Pledged
from fairlead.authority.state import Rec, State
from fairlead.model.kinds.ledger import Plane, PlaneSpec
from fairlead.ports import Clock
from fairlead.store.contract import Head, Store


class PlaneMemory:
    def __init__(self, store: Store, clock: Clock, settings: Settings, ring_size: int) -> None:
        self.state = State(hot_of, ring_size)
        self.hub = Hub(self.state)
        self.early = Early(self.state)
        self.follower = Follower(store, clock, self.state, self._seen)
        self.ctx = Context(self.state, settings)
        self.receipts = Receipts(self.state)
        self.pledged = Pledged(self.state)
        self.loaded = False
        self.ready = False  # everything the store had when this was last looked at is here

    @property
    def plane(self) -> PlaneSpec | None:
        """What the leader that began last wrote down when it did."""
        found: Plane | None = self.state.hot("planes", "", "self")
        return found.spec if found is not None else None

    def _seen(self, recs: list[Rec]) -> None:
        """What another server has made durable."""
        self.hub.publish(recs)
        self.hub.wake()

    async def load(self) -> None:
        """From the store's objects. The collector is off meanwhile: nothing that loading makes is garbage, and looking for some
        among millions of new objects takes longer than making them (P17)."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            await self.follower.load()
            self.loaded = True
        finally:
            if collecting:
                gc.enable()

    async def catch_up(self, head: Head) -> None:
        """Raises Forked when the store's history is not the one in memory."""
        if self.ready and head.incarnation != self.ctx.incarnation:
            # What follows is of that one, and would be read, for as long as it takes to get it all, as if it were of this one.
            raise Behind(f"the plane has begun incarnation {head.incarnation}; memory is of {self.ctx.incarnation}")
        await self.follower.catch_up(head)
        self.ready = True
        self.ctx.begin(head.incarnation)

    def begin(self, incarnation: int) -> None:
        """Leads, in that incarnation. Whoever follows from one before was told revisions of that one, and lists again (P6)."""
        if incarnation != self.ctx.incarnation:
            self.hub.end()
            self.early.end("the plane has begun a new incarnation; list again")
        self.ctx.begin(incarnation)
