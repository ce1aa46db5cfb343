"""Two regions and a global plane that share a quota, in true time.

Everything between them can be lost, late or repeated; clocks run wrong by at most one per cent; either side may be restored from
an older copy. The decisions are those of fairlead/decide/escrow.py. `violation` asks of the true state, which no part of the
model can see: what runs and what could be placed without asking never exceed the quota. What runs once in the world has a
model of its own (slot_lease_model.py), as hostile as this one: its leases are asked for apart from grants.

`without` names guards to leave out: each makes the model unsafe, and the test must find it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import msgspec

from fairlead.decide import escrow
from fairlead.decide.escrow import Account, Amounts, Offer, Standing

QUOTA = 100
LEASE_MS = 10_000
RHO = 10  # per mille, the most a clock may be wrong
REGIONS = ("east", "west")
INCARNATION = 1 << 32  # versions of a later incarnation are above all of an earlier one

GUARDS = frozenset({
    "holder counts from when it asked", "holder counts on less", "giver counts on more", "only the last question is answered",
    "shrink counts when taken", "over-use refuses an offer", "lease goes with its offer", "limit after is charged",
    "a restored global asks first", "a restored global grows nothing", "a restored region waits", "provisional work ends",
})  # fmt: skip


class Clock:
    """A reading in thousandths of a millisecond, at a rate of its own."""

    def __init__(self) -> None:
        self.reading = 0
        self.rate = 1000

    def advance(self, true_ms: int) -> None:
        self.reading += true_ms * self.rate

    @property
    def ms(self) -> int:
        return self.reading // 1000


class Ask(NamedTuple):
    region: str
    incarnation: int
    number: int
    knows: int  # the incarnation of global that this region has heard of
    version: int
    may_use: Amounts
    after: Amounts


class Answer(NamedTuple):
    region: str
    incarnation: int
    number: int
    of: int  # incarnation of global
    offer: Offer | None  # None: "say first what you stand on"


class Global(msgspec.Struct):
    """What a restore takes back."""

    incarnation: int = 1
    accounts: dict[str, Account] = {}


class Placed(msgspec.Struct):
    amount: int
    ends_ms: int | None  # on the node's clock; None: it stays


class Region(msgspec.Struct):
    """What a restore takes back, but for `running`, which is the nodes' and stays."""

    incarnation: int = 1
    knows: int = 1
    standing: Standing = Standing()
    number: int = 0
    sent_ms: int = 0


class World:
    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        assert without <= GUARDS, without - GUARDS
        self.without = without
        self.clocks = {name: Clock() for name in ("global", *REGIONS, *(f"node-{r}" for r in REGIONS))}
        self.plane = Global(accounts={region: Account() for region in REGIONS})
        self.regions = {region: Region() for region in REGIONS}
        self.running: dict[str, list[Placed]] = {region: [] for region in REGIONS}
        self.wires: list[Ask | Answer] = []
        self.wished = dict.fromkeys(REGIONS, (0, 0))
        self.copies: dict[str, list[Global | Region]] = {"global": [], **{region: [] for region in REGIONS}}
        self.incarnations = 1

    def guarded(self, name: str) -> bool:
        assert name in GUARDS
        return name not in self.without

    # --- time

    def advance(self, true_ms: int) -> None:
        for clock in self.clocks.values():
            clock.advance(true_ms)
        for region in REGIONS:
            now = self.clocks[f"node-{region}"].ms
            if self.guarded("provisional work ends"):
                self.running[region] = [p for p in self.running[region] if p.ends_ms is None or now < p.ends_ms]

    def now(self, who: str) -> int:
        return self.clocks[who].ms

    # --- a region

    def used(self, region: str) -> tuple[Amounts, Amounts]:
        placed = self.running[region]
        return {"cpu": sum(p.amount for p in placed if p.ends_ms is None)}, {"cpu": sum(p.amount for p in placed)}

    def ask(self, region: str) -> None:
        it = self.regions[region]
        it.number += 1
        it.sent_ms = self.now(region)
        firm, used = self.used(region)
        may_use, after = escrow.limit(it.standing, it.sent_ms), it.standing.after
        if not it.standing.confirmed:
            may_use, after = used, firm  # all it has is what its nodes run
        self.wires.append(Ask(region, it.incarnation, it.number, it.knows, it.standing.version, may_use, after))

    def take_answer(self, answer: Answer) -> None:
        it = self.regions[answer.region]
        if answer.of < it.knows:
            return
        if self.guarded("only the last question is answered") and (answer.incarnation, answer.number) != (
            it.incarnation,
            it.number,
        ):
            return
        it.knows = answer.of
        if answer.offer is None:
            return
        asked_ms = it.sent_ms if self.guarded("holder counts from when it asked") else self.now(answer.region)
        firm, used = self.used(answer.region)
        if not self.guarded("over-use refuses an offer"):
            firm = used = {}
        shortened = RHO if self.guarded("holder counts on less") else -RHO
        end_ms = asked_ms + escrow.holder_ms(LEASE_MS, shortened)
        standing = escrow.taken(it.standing, answer.offer, end_ms, firm, used)
        if standing is not None:
            it.standing = standing
        elif not self.guarded("lease goes with its offer"):
            it.standing = msgspec.structs.replace(it.standing, end_ms=end_ms)

    def place(self, region: str, amount: int) -> bool:
        it = self.regions[region]
        firm, used = self.used(region)
        stays = escrow.lasting(it.standing, self.now(region), firm, used, {"cpu": amount})
        if stays is None:
            return False
        left_ms = it.standing.end_ms - self.now(region)
        ends = None if stays else self.now(f"node-{region}") + left_ms
        self.running[region].append(Placed(amount, ends))
        return True

    def extend(self, region: str) -> None:
        """Provisional work hears how long the region's lease now runs."""
        left_ms = self.regions[region].standing.end_ms - self.now(region)
        for placed in self.running[region]:
            if placed.ends_ms is not None and left_ms > 0 and self.regions[region].standing.confirmed:
                placed.ends_ms = max(placed.ends_ms, self.now(f"node-{region}") + left_ms)

    # --- the global plane

    def take_ask(self, ask: Ask) -> None:
        plane, now = self.plane, self.now("global")
        lengthened = RHO if self.guarded("giver counts on more") else -RHO
        until_ms = now + escrow.giver_ms(LEASE_MS, lengthened)
        account = plane.accounts[ask.region]
        if not account.reported:
            if self.guarded("a restored global asks first") and ask.knows != plane.incarnation:
                self.wires.append(Answer(ask.region, ask.incarnation, ask.number, plane.incarnation, None))
                return
            account = escrow.told(account, ask.may_use, ask.after, until_ms)
        else:
            account = escrow.stands_on(account, ask.version)
        if not self.guarded("shrink counts when taken"):
            account = msgspec.structs.replace(account, offers=account.offers[-1:])
        plane.accounts[ask.region] = account
        during, after = self.wished[ask.region]
        room = escrow.room_for({"cpu": QUOTA}, self.books(), ask.region, now)
        answered = escrow.answer(self.books()[ask.region], {"cpu": during}, {"cpu": after}, room, until_ms)
        plane.accounts[ask.region] = answered
        self.wires.append(Answer(ask.region, ask.incarnation, ask.number, plane.incarnation, answered.newest))

    def books(self) -> dict[str, Account]:
        """The accounts as the guards in force leave them."""
        accounts = dict(self.plane.accounts)
        for region, account in accounts.items():
            if not self.guarded("limit after is charged"):
                offers = tuple(msgspec.structs.replace(offer, after={"cpu": 0}) for offer in account.offers)
                accounts[region] = account = msgspec.structs.replace(account, offers=offers)
            if not self.guarded("a restored global grows nothing"):
                accounts[region] = msgspec.structs.replace(account, reported=True)
        return accounts

    # --- restores

    def copy(self, who: str) -> None:
        state: Global | Region = self.plane if who == "global" else self.regions[who]
        self.copies[who] = [*self.copies[who][-2:], deepcopy(state)]

    def restore(self, who: str, which: int) -> None:
        if not self.copies[who]:
            return
        self.incarnations += 1
        older = deepcopy(self.copies[who][which % len(self.copies[who])])
        if isinstance(older, Global):
            older.incarnation = self.incarnations
            version = self.incarnations * INCARNATION
            older.accounts = {region: restored(account, version) for region, account in older.accounts.items()}
            self.plane = older
        else:
            older.incarnation = self.incarnations
            older.standing = msgspec.structs.replace(older.standing, confirmed=not self.guarded("a restored region waits"))
            self.regions[who] = older

    # --- what must hold

    def violation(self) -> str:
        sums = {}
        for region in REGIONS:
            spendable = escrow.limit(self.regions[region].standing, self.now(region)).get("cpu", 0)
            sums[region] = max(self.used(region)[1].get("cpu", 0), spendable)
        if sum(sums.values()) > QUOTA:
            return f"running and spendable are {sums}, together more than {QUOTA}"
        return ""


def restored(account: Account, version: int) -> Account:
    """The account in books that were restored. `version` begins a new incarnation's offers, above all that were ever made."""
    return Account(account.accepted, (*account.offers, Offer(version, {}, {})), reported=False)
