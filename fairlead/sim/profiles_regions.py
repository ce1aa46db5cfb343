"""Draws the scenarios in which several regions share quotas, leases and a recovery target, and lose each other.

Owns those profiles alone. Pure draws, no world. Called by profiles.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from fairlead.sim.scenario import Faults, Scenario


def _grants(scenario: Scenario) -> Scenario:
    """Two regions that compete for quotas under short leases, cut off and cold-started, on clocks that run wrong."""
    work = replace(scenario.work, workloads=6, actions=60.0, exclusive=0.1, jobs=0.2)
    made = replace(scenario, regions=2, servers=2, nodes=3, work=work, tight=True, grant_lease_s=20, lease_s=5.0)
    made = replace(made, settle_s=180.0)  # what waits goes to the other region after a minute
    return replace(made, faults=Faults(region=0.8, cut=2.0, clock=3.0, crash=2.0, lost_tail=0.3))


def _stranded(scenario: Scenario) -> Scenario:
    """Regions that use more than stays with them, cut off until their leases are over, which lose a node then and go on placing:
    that most work waits where a region is cut off, and that agents end what must end, would hide a lease without an end."""
    work = replace(scenario.work, workloads=4, actions=25.0, exclusive=0.0, jobs=0.0, operators=0.0, autonomous=1.0)
    made = replace(
        scenario, regions=2, servers=1, nodes=4, work=work, tight=True, grant_lease_s=20, lease_s=5.0, node_lease_s=6.0
    )
    return replace(made, settle_s=180.0, faults=Faults(strand=30.0))


def _beheaded(scenario: Scenario) -> Scenario:
    """The same regions, without a server when their leases end: what is above that limit is ended by agents or by nobody."""
    return replace(_stranded(scenario), faults=Faults(behead=30.0))


def _leases(scenario: Scenario) -> Scenario:
    """Policies change every few seconds while regions are cut off for longer than their leases, and lose nodes and instances."""
    work = replace(scenario.work, workloads=6, actions=30.0, exclusive=0.0, jobs=0.0, operators=0.0)
    work = replace(work, promotions=6.0, autonomous=1.0)
    made = replace(scenario, regions=2, servers=1, nodes=3, work=work, grant_lease_s=20, lease_s=5.0, node_lease_s=6.0)
    return replace(made, faults=Faults(region=1.0, cut=2.0, clock=2.0, crash=1.0, instance=12.0, power=2.0, lost_tail=0.2))


def _stopped(scenario: Scenario) -> Scenario:
    """Regions that go dark for longer than their leases last, and come back with wall clocks that are behind, while policies are
    promoted and quotas are fought over."""
    made = _grants(scenario)
    work = replace(made.work, promotions=6.0)
    return replace(made, servers=1, work=work, faults=Faults(region=2.0, clock=12.0, crash=1.0))


def _emergencies(scenario: Scenario) -> Scenario:
    """The same competition with some room above the quotas, and emergency quotas that begin, end and are taken back while regions
    are cut off, go dark and run on wrong clocks. After the last fault one may run for a minute and a half, what it allowed is
    drained for five more, and what had to go finds a place elsewhere after that. Under short leases it ends with the lease before
    it would be drained: every other seed has long ones, and regions of one server, which start cold, under more work."""
    made = _grants(scenario)
    work = replace(made.work, emergencies=1.0, jobs=0.1)
    made = replace(made, nodes=5, work=work, settle_s=600.0)
    if scenario.seed % 2:
        return replace(made, faults=Faults(region=1.0, cut=2.0, clock=6.0, crash=1.0, relapse=0.3))
    faults = Faults(region=1.0, cut=2.0, clock=12.0, crash=1.0)
    return replace(made, servers=1, grant_lease_s=600, faults=faults, work=replace(work, workloads=8, jobs=0.0))


def _regions(scenario: Scenario) -> Scenario:
    """Three regions, critical services with a recovery budget, and one region after the other that goes dark or is cut off."""
    work = replace(scenario.work, critical=0.8, exclusive=0.0, jobs=0.1, actions=4.0, operators=0.0)
    made = replace(scenario, regions=3, servers=min(2, scenario.servers), nodes=3, work=work, settle_s=200.0)
    made = replace(made, agreed_s=140.0)  # what stands in stays for a minute after its region is well
    return replace(made, faults=Faults(region=0.35, crash=0.5, loss=0.01, instance=1.0))


def _overflow(scenario: Scenario) -> Scenario:
    """Three regions, one of which is closed for new work: what finds no place there goes to the others."""
    work = replace(scenario.work, workloads=8, actions=15.0, exclusive=0.1, jobs=0.0, operators=0.0, closes=12.0)
    made = replace(scenario, regions=3, servers=1, nodes=3, work=work, settle_s=180.0)
    return replace(made, faults=Faults(crash=1.0, cut=1.0, reset=2.0, instance=2.0))


def _gangs_lost(scenario: Scenario) -> Scenario:
    """Gangs in three regions, one of which goes dark or is cut off while they are placed. Nodes and servers lose power, stores
    keep their answers to themselves, and some proposals lack a member or are wrong about one."""
    work = replace(scenario.work, workloads=6, actions=40.0, exclusive=0.1, jobs=0.0, operators=0.0, gangs=0.8)
    made = replace(scenario, regions=3, servers=2, nodes=3, schedulers=2, work=work, settle_s=200.0, lease_s=5.0)
    made = replace(made, node_lease_s=6.0)
    return replace(made, faults=Faults(region=1.5, power=3.0, store=6.0, unheard=0.5, spoil=0.2, crash=1.0, instance=2.0))


def _failback(scenario: Scenario) -> Scenario:
    """Regions that go and come back, and nothing else: whatever serves less than it must does so because of what was decided."""
    made = _regions(scenario)
    return replace(made, servers=1, faults=Faults(region=0.5), work=replace(made.work, actions=1.5, workloads=8, jobs=0.0))


def _hushed(scenario: Scenario) -> Scenario:
    """The same, and while one is gone another is not heard for some seconds: what stands in there must stay."""
    made = _failback(scenario)
    return replace(made, faults=Faults(region=0.5, hush=4.0))


def _barren(scenario: Scenario) -> Scenario:
    """Regions that go for longer than a service may lack its minimum, while in another nothing that is started comes up: what
    stands in there must be ordered in the third. Too many services, and it had no room for all."""
    made = _failback(scenario)
    work = replace(made.work, workloads=4)
    return replace(made, region_s=(330.0, 400.0), faults=Faults(region=1.5, barren=8.0), work=work)


def _sole(scenario: Scenario) -> Scenario:
    """Services whose slots run once in the world, in regions that go dark or are cut off, on clocks that run wrong."""
    made = _regions(scenario)
    work = replace(made.work, exclusive=1.0, everywhere=0.8, critical=1.0, jobs=0.0, workloads=8, actions=1.0)
    faults = Faults(region=3.0, clock=2.0, slow=1.0, crash=0.3, loss=0.01)
    return replace(made, servers=1, work=work, faults=faults, slot_lease_s=30.0, node_lease_s=10.0, lease_s=5.0)


def _restored(scenario: Scenario) -> Scenario:
    """The same, and stores that lose their tails: planes go on in another history, under leases of the one before."""
    made = _sole(scenario)
    return replace(made, faults=replace(made.faults, lost_tail=1.5))


def _backups(scenario: Scenario) -> Scenario:
    """Planes that are restored from backups while two regions compete for quotas: what was given up since, and what was given?"""
    made = _grants(scenario)
    return replace(made, servers=1, work=replace(made.work, actions=90.0), faults=Faults(backup=3.0, crash=1.0, cut=1.0))


def _returned(scenario: Scenario) -> Scenario:
    """The same where slots run once in the world, and regions go dark or are cut off."""
    made = _sole(scenario)
    return replace(made, faults=replace(made.faults, backup=1.0))


def _relapses(scenario: Scenario) -> Scenario:
    """Planes whose stores lose their tails while nobody is there to see it. Quotas are tight: what was given up matters."""
    made = _grants(scenario)
    return replace(made, servers=1, faults=Faults(relapse=3.0, crash=1.0, cut=1.0))


REGIONAL: Final[dict[str, Callable[[Scenario], Scenario]]] = {
    "backups": _backups,
    "barren": _barren,
    "beheaded": _beheaded,
    "emergencies": _emergencies,
    "failback": _failback,
    "gangs-lost": _gangs_lost,
    "grants": _grants,
    "hushed": _hushed,
    "leases": _leases,
    "overflow": _overflow,
    "regions": _regions,
    "relapses": _relapses,
    "restored": _restored,
    "returned": _returned,
    "sole": _sole,
    "stopped": _stopped,
    "stranded": _stranded,
}
