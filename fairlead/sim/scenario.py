"""Owns what one seed's world is like: its topology, its work, its faults and how long it lasts. Pure draws, no world.

A scenario is data: with its seed it is the whole of a run, and it is what a failing run leaves behind. profiles.py draws them.
"""

from __future__ import annotations

from typing import Final

import msgspec

STEPS_LEAST: Final = 20_000_000  # of any run: what comes after the faults takes as long for a short one
STEPS_A_SECOND: Final = 5_000  # several times what the largest world takes while faults strike


class Faults(msgspec.Struct, frozen=True, rename="camel"):
    """Events a minute over the whole platform, or chances per event, each from 0 (never)."""

    crash: float = 0.0  # of a server's or agent's process
    power: float = 0.0  # of a node's machine
    pause: float = 0.0  # of a process, for up to three leases
    cut: float = 0.0  # a link between machines, one or both ways
    slow: float = 0.0  # a link becomes slow
    reset: float = 0.0  # connections
    clock: float = 0.0  # a wall clock is stepped, or a machine's clock runs at another rate
    loss: float = 0.0  # chance that a packet must be sent again
    store: float = 0.0  # spells of a faulty store
    store_down: float = 0.0  # a store's process is paused or restarted
    lost_tail: float = 0.0  # failover of a store to a replica that was behind
    twin: float = 0.0  # a second agent of one identity
    instance: float = 0.0  # instances that end by themselves
    disk: float = 0.0  # an agent's or a store's disk is full for a while
    stray: float = 0.0  # commands that no component in its right mind sends
    unheard: float = 0.0  # chance that a write takes effect and its answer is lost, while a store is faulty
    freeze: float = 0.0  # an agent stands still, for some leases of its node
    spoil: float = 0.0  # chance that a scheduler's proposal arrives as if decided on something older, or after a rival's
    usurp: float = 0.0  # a leader is cut from its store, with one node that hears nobody else
    stale_event: float = 0.0  # an agent is told again what is long over
    stale: float = 0.0  # chance that a store's tail lacks its newest batches, while a store is faulty
    region: float = 0.0  # a whole region goes dark, or is cut off, for a minute or more
    relapse: float = 0.0  # all servers of a plane are down while its store fails over to a replica that was behind
    backup: float = 0.0  # a plane is restored from a backup that was made up to a minute and a half before
    hush: float = 0.0  # while a region is gone, another is not heard for long enough to be doubted and too short to be lost
    barren: float = 0.0  # while a region is gone, nothing that is started in another one comes up
    behead: float = 0.0  # a region that uses more than stays with it is cut off and has no server until long after its lease
    strand: float = 0.0  # a region that uses more than stays with it is cut off until long after its lease
    linger: float = 0.0  # what is said to a node comes late, and then nothing does any more
    forget: float = 0.0  # a store loses that something was bound, and the node that runs it is not heard for a while
    misplace: float = 0.0  # slots that are asked for and bound where they may not be
    stillborn: float = 0.0  # chance that a machine that a pool orders never comes up
    meddle: float = 0.0  # commands that come in pairs nobody would send, each of which asks a single guard
    zone: float = 0.0  # the nodes of one zone, all of them or all but one, go dark or are not heard by their region


class Work(msgspec.Struct, frozen=True, rename="camel"):
    workloads: int = 4
    actions: float = 20.0  # of people, a minute
    exclusive: float = 0.3  # share of workloads that are Exclusive
    jobs: float = 0.2
    operators: float = 2.0  # drains, cordons, deletions of nodes, policy changes, a minute (F20)
    replays: float = 0.1  # chance that a request is sent twice (F2)
    isolated: float = 0.0  # share of workloads that want their nodes to themselves
    names_again: bool = True  # what was deleted is made again under the same name
    readers: float = 0.0  # reads of people who may see one tenant, a minute
    overrides: float = 0.0  # holds, freezes, zones to avoid and repairs to be approved, a minute; each lasts seconds
    promotions: float = 0.0  # of policy revisions, a minute
    autonomous: float = 0.0  # share of workloads of a class that goes on being placed in a region that is cut off
    critical: float = 0.0  # share of services that name a minimum to be recovered, and a budget for it
    closes: float = 0.0  # all nodes of a region are closed, a minute, each time for longer than slots wait there
    everywhere: float = 0.0  # share of Exclusive services whose slots run once in the world, not once in a region
    gangs: float = 0.0  # share of services whose slots start together or not at all
    canaries: float = 0.0  # policy revisions that are tried on a part, a minute; each is promoted, taken back or left to its end
    large: float = 0.0  # share of services whose slots are as large as most of a small node
    resizes: float = 0.0  # changes of how many nodes a pool may have, a minute
    poison: float = 0.0  # requests that nothing sane sends, a minute (F19)
    picky: float = 0.0  # share of workloads with rules of their own about nodes and neighbours; nodes have labels and taints then
    relabels: float = 0.0  # other labels or taints for a node, a minute
    emergencies: float = 0.0  # emergency quotas that one person asks for and another agrees to, a minute (emergencies.py)
    budgets: float = 0.25  # share of services that say how many must serve, whatever is drained, where operators drain


class Sieve(msgspec.Struct, frozen=True, rename="camel"):
    """What befalls one controller at one of its calls (probe.py)."""

    controller: str
    pattern: str  # crash, missed or stale
    at: int  # counted from nought; below it nothing strikes


class Scenario(msgspec.Struct, frozen=True, rename="camel"):
    seed: int
    profile: str = "swarm"
    regions: int = 1
    servers: int = 2  # of each plane
    nodes: int = 3  # of each region
    schedulers: int = 1  # of each region
    rough_s: float = 120.0
    calm_s: float = 150.0
    agreed_s: float = 60.0  # within which, after healing, actual must be desired (L4)
    settle_s: float = 60.0  # after healing, before nobody may write any more
    quiet_s: float = 30.0  # for which nobody may write anything but leases (L4)
    lease_s: float = 10.0
    node_lease_s: float = 15.0
    grant_lease_s: int = 600
    slot_lease_s: float = 60.0
    region_s: tuple[float, float] = (45.0, 360.0)  # for so long a region is gone
    ring: int = 400  # changes that memory reaches back: small, so that followers fall behind
    journal_s: float = 60.0
    dedicated: bool = False  # the last node of each region is one tenant's
    elastic: bool = False  # regions order machines for what waits, and a service is scaled by its load
    fragmented: bool = False  # small nodes without devices, work spread over them, and a policy that moves some of it for room
    tight: bool = False  # there is less room than is asked for: what waits with a reason is excused at the end
    faults: Faults = Faults()
    work: Work = Work()
    mutant: str = ""
    skips: tuple[str, ...] = ()  # single strikes of the chaos that are left out: what shrinking found to be needless
    seeded: tuple[int, int] | None = None  # the steps in which the seed picks who runs; first come, first served in all others
    sieve: Sieve | None = None
    remains: str = ""  # server, node, zone or region: one of them stays broken when all else is healed (remainder.py)
    earlier: float = 0.0  # share of the lives of servers and agents that are of the version before (versions.py)
    hints: str = ""  # random, inverted or ancient: what is soft lies in this way while faults strike (hints.py)


def steps_max_of(scenario: Scenario) -> int:
    """A run of more is a livelock."""
    return STEPS_LEAST + int(STEPS_A_SECOND * scenario.rough_s)
