"""Draws the scenario of a seed for a profile: either the swarm (everything, at random strengths) or directed at one safeguard.

Owns the profiles and what each leaves out. Pure draws, no world. Called by campaign.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from fairlead.sim.loop import Draws
from fairlead.sim.profiles_regions import REGIONAL
from fairlead.sim.scenario import Faults, Scenario, Work

REST_S: Final = 300.0  # L4's, of one seed in eleven: by its number, so that no draw of any other moves
REST_EVERY: Final = 11  # has no factor in common with the size of the mix, or some profiles would never rest for long
QUIET_S: Final = 30.0
AGAIN_S: Final = 300.0  # a region that was asked for slots in vain is asked again after this: where there is no room, rest waits

# These have profiles of their own.
DIRECTED: Final = (
    "region", "relapse", "backup", "hush", "barren", "behead", "strand", "linger", "misplace", "forget", "meddle",
    "stillborn", "zone",
)  # fmt: skip
SWARM: Final = tuple(name for name in Faults.__struct_fields__ if name not in DIRECTED)


def _swarm(draws: Draws, heat: float) -> Faults:
    """A random subset at random strengths: a fault that is always on hides what only its absence shows."""
    strengths = {
        "crash": 3.0, "power": 1.0, "pause": 2.0, "cut": 3.0, "slow": 2.0, "reset": 4.0, "clock": 2.0, "loss": 0.02,
        "store": 2.0, "store_down": 0.5, "lost_tail": 0.1, "twin": 0.3, "instance": 3.0, "disk": 0.5, "stale": 0.3,
        "stray": 6.0, "spoil": 0.02, "usurp": 0.2, "unheard": 0.0, "freeze": 0.5, "stale_event": 0.5,
    }  # fmt: skip
    drawn = {name: (draws.random(), draws.uniform(0.3, 1.5)) for name in SWARM}
    return Faults(**{name: strengths[name] * share * heat if on < 0.6 else 0.0 for name, (on, share) in drawn.items()})


def draw(seed: int, profile: str, draws: Draws, minutes: float, mutant: str = "") -> Scenario:
    regions, servers, nodes = draws.choice((1, 1, 2, 3)), draws.choice((1, 2, 2, 3)), draws.randrange(3, 6)
    workloads, actions = draws.randrange(2, 7), draws.uniform(5.0, 40.0)
    exclusive, jobs = draws.choice((0.0, 0.3, 0.6)), draws.choice((0.0, 0.2, 0.4))
    faults = _swarm(draws, 1.0)
    made = Scenario(
        seed, profile, regions, servers, nodes, rough_s=minutes * 60, faults=faults, mutant=mutant,
        work=Work(workloads, actions, exclusive, jobs), quiet_s=QUIET_S if seed % REST_EVERY else REST_S,
    )  # fmt: skip
    made = PROFILES[profile](made) if profile in PROFILES else made
    late_s = AGAIN_S if made.tight and made.regions > 1 and made.quiet_s == REST_S else 0.0
    return replace(made, remains=_remains(made), settle_s=made.settle_s + late_s)


def _remains(scenario: Scenario) -> str:
    """In one seed of four, by its number: no draw of any other moves."""
    kinds = ["node"] * (scenario.nodes > 1) + ["server"] * (scenario.servers > 2)
    kinds += ["zone"] * (scenario.faults.zone > 0)
    kinds += ["region"] * (scenario.regions > 2 and scenario.faults.region > 0)
    return kinds[scenario.seed // 4 % len(kinds)] if kinds and not scenario.seed % 4 and scenario.profile != "calm" else ""


def _calm(scenario: Scenario) -> Scenario:
    return replace(scenario, faults=Faults())


def _first(scenario: Scenario) -> Scenario:
    """One region, three nodes, a lossy network, a server that crashes."""
    return replace(scenario, regions=1, servers=2, nodes=3, faults=Faults(crash=2.0, loss=0.02, reset=2.0))


def _full(scenario: Scenario) -> Scenario:
    """The size that speed is stated for: three regions, ten nodes each, two commands a second."""
    work = replace(scenario.work, workloads=10, actions=120.0)
    return replace(scenario, regions=3, servers=1, nodes=10, work=work)


def _exclusive(scenario: Scenario) -> Scenario:
    """Exclusive work on nodes that are cut off, paused and lose power: who may still run it?"""
    faults = Faults(cut=6.0, pause=3.0, power=1.5, crash=2.0, instance=2.0)
    work = replace(scenario.work, exclusive=1.0, jobs=0.0, actions=10.0, operators=0.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=faults, work=work, node_lease_s=6.0, lease_s=5.0)


def _leaders(scenario: Scenario) -> Scenario:
    """Leaders that are paused beyond their lease and go on with what they had begun."""
    faults = Faults(pause=8.0, cut=3.0, store=4.0, crash=1.0)
    work = replace(scenario.work, exclusive=0.6, jobs=0.0, actions=60.0)
    return replace(scenario, regions=1, servers=3, nodes=3, faults=faults, work=work, lease_s=3.0, node_lease_s=6.0)


def _unknown(scenario: Scenario) -> Scenario:
    """A store whose answers are lost, and clients who ask again."""
    faults = Faults(store=12.0, reset=6.0, crash=1.0, loss=0.02)
    work = replace(scenario.work, actions=90.0, replays=0.5, operators=0.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=faults, work=work, lease_s=5.0)


def _alone(scenario: Scenario) -> Scenario:
    """One plane: a global one that no region has joined yet. People ask for work that waits for that, promote policies and order
    exceptions, under a leader that is paused, killed and cut off, and a store whose answers and tails are lost."""
    work = replace(scenario.work, workloads=6, actions=90.0, operators=0.0, promotions=6.0, overrides=6.0, replays=0.3)
    faults = Faults(
        crash=4.0, pause=4.0, cut=4.0, slow=1.0, reset=4.0, clock=2.0, loss=0.02, store=4.0, store_down=0.5, unheard=0.2,
        lost_tail=0.3, stale=0.3,
    )  # fmt: skip
    return replace(scenario, regions=0, servers=3, nodes=0, faults=faults, work=work, lease_s=5.0)


def _tight(scenario: Scenario) -> Scenario:
    """More work than room, and several schedulers that do not know of each other's moves."""
    work = replace(scenario.work, workloads=8, actions=90.0, exclusive=0.2, jobs=0.2)
    made = replace(scenario, regions=1, servers=1, nodes=3, work=work, tight=True, schedulers=3)
    return replace(made, faults=Faults(instance=6.0, crash=1.0))


def _twins(scenario: Scenario) -> Scenario:
    """Two agents of one identity, again and again."""
    faults = Faults(twin=6.0, crash=1.0, cut=1.0)
    work = replace(scenario.work, exclusive=1.0, jobs=0.0, actions=10.0, operators=0.0)
    return replace(scenario, regions=1, servers=1, nodes=3, faults=faults, work=work, node_lease_s=6.0)


def _overrides(scenario: Scenario) -> Scenario:
    """People order exceptions that end within seconds, while servers crash and regions are cut off."""
    work = replace(scenario.work, overrides=12.0, actions=60.0, jobs=0.1)
    faults = Faults(crash=2.0, cut=3.0, instance=3.0, power=0.5)
    return replace(scenario, regions=2, servers=2, nodes=3, faults=faults, work=work, lease_s=5.0)


def _lost(scenario: Scenario) -> Scenario:
    """Stores that lose their tails, and nodes that run what nobody remembers and are not heard then. One that is dead is given
    up after 40 s there, and what runs once waits for that: L4's bound, which is made for leases of 15 s, is longer by as much."""
    work = replace(_twins(scenario).work, actions=180.0)
    faults = Faults(lost_tail=4.0, forget=20.0)
    return replace(_tails(scenario), nodes=5, node_lease_s=30.0, agreed_s=90.0, faults=faults, work=work)


def _hints(scenario: Scenario) -> Scenario:
    """What is soft lies, each seed in one of three ways: it may cost, and break nothing."""
    work = replace(scenario.work, workloads=6, actions=60.0, exclusive=0.4)
    made = replace(scenario, regions=2, servers=1, nodes=4, faults=Faults(crash=0.5, instance=2.0), work=work, schedulers=2)
    return replace(made, hints=("random", "inverted", "ancient")[scenario.seed % 3])


def _tenants(scenario: Scenario) -> Scenario:
    """People of one tenant who ask for everything, while servers crash and access rules are copied about."""
    work = replace(scenario.work, readers=120.0, actions=40.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=Faults(crash=2.0, cut=1.0, reset=4.0), work=work)


def _strays(scenario: Scenario) -> Scenario:
    """Four stray commands a second at a region that is well: each guard of a placement and of a step is asked many times."""
    work = replace(scenario.work, workloads=6, actions=120.0, exclusive=0.3, jobs=0.1, operators=12.0)
    faults = Faults(stray=240.0, spoil=0.5, instance=6.0)
    return replace(scenario, regions=1, servers=1, nodes=3, faults=faults, work=work, dedicated=True)


def _crowded(scenario: Scenario) -> Scenario:
    """The same where there is less room than is asked for, and some want their nodes to themselves."""
    made = _strays(scenario)
    work = replace(made.work, workloads=8, actions=120.0, isolated=0.15, operators=2.0)
    return replace(made, work=work, tight=True, dedicated=False)


def _standing(scenario: Scenario) -> Scenario:
    """The same, and budgets hold rooms there. A slot of a critical service that has waited for a minute is said to be missing,
    also where no other region is; one of a node that stays dead begins to wait half a minute after healing."""
    made = _crowded(scenario)
    return replace(made, settle_s=150.0, work=replace(made.work, critical=0.5, gangs=0.0))


def _areas(scenario: Scenario) -> Scenario:
    """The same where there is room, and slots are asked for where they may not be while policies change."""
    made = _strays(scenario)
    work = replace(made.work, actions=60.0, operators=4.0, promotions=6.0)
    return replace(made, work=work, faults=replace(made.faults, misplace=60.0))


def _meddlers(scenario: Scenario) -> Scenario:
    """Requests, reservations and reports as they were long ago, at a region whose slots come, go and fail: one guard is asked by
    each. Policies change, so that what was reserved may not be bound any more. Some requests are poison."""
    made = _strays(scenario)
    work = replace(made.work, actions=120.0, operators=0.0, promotions=6.0, poison=12.0)
    return replace(made, work=work, faults=Faults(meddle=300.0, spoil=0.3, instance=20.0))


def _picky(scenario: Scenario) -> Scenario:
    """Work that wants something of its nodes and of its neighbours, two schedulers that choose for it while servers crash and the
    store is slow, proposals that come to another node than was chosen, and operators who relabel, taint and cordon meanwhile."""
    work = replace(scenario.work, workloads=8, actions=90.0, exclusive=0.1, jobs=0.1, operators=8.0, picky=0.9, relabels=12.0)
    faults = Faults(stray=240.0, spoil=0.4, instance=6.0, crash=1.0, store=1.0)
    return replace(scenario, regions=1, servers=2, nodes=5, schedulers=2, faults=faults, work=work, lease_s=5.0)


def _drains(scenario: Scenario) -> Scenario:
    """Operators who drain, close and delete nodes without end, under services that all say how many must serve."""
    work = replace(scenario.work, workloads=8, actions=30.0, exclusive=0.2, jobs=0.0, operators=40.0, budgets=1.0)
    return replace(scenario, regions=1, servers=1, nodes=4, faults=Faults(instance=3.0, crash=0.5), work=work)


def _gangs(scenario: Scenario) -> Scenario:
    """Work that starts whole or not at all, by two schedulers whose proposals lack a member or are wrong about one."""
    work = replace(scenario.work, workloads=4, actions=60.0, exclusive=0.1, jobs=0.0, operators=4.0, gangs=0.8)
    faults = Faults(spoil=0.5, crash=1.0, reset=2.0, instance=3.0)
    return replace(scenario, regions=1, servers=2, nodes=4, schedulers=2, faults=faults, work=work)


def _elastic(scenario: Scenario) -> Scenario:
    """Less room than is asked for, pools that order machines for it, a service that follows a load, and people who change what
    pools may have, while servers and machines come and go. An empty machine takes a minute to be gone for good."""
    work = replace(scenario.work, workloads=3, actions=25.0, exclusive=0.1, jobs=0.0, operators=2.0, resizes=4.0)
    made = replace(scenario, regions=1, servers=2, nodes=2, work=work, elastic=True, tight=True, node_lease_s=6.0, lease_s=5.0)
    return replace(made, settle_s=150.0, faults=Faults(crash=1.0, cut=1.0, instance=2.0, power=0.5, store=1.0, stillborn=0.25))


def _canary(scenario: Scenario) -> Scenario:
    """Policy revisions that are tried on some tenants and in some regions, promoted, taken back or left to their end, while work
    starts and servers crash or are cut off."""
    work = replace(scenario.work, workloads=6, actions=60.0, exclusive=0.1, jobs=0.1, operators=0.0, canaries=8.0)
    made = replace(scenario, regions=2, servers=2, nodes=3, work=work, lease_s=5.0)
    return replace(made, faults=Faults(crash=1.0, cut=2.0, instance=6.0, store=1.0, spoil=0.1))


def _fragmented(scenario: Scenario) -> Scenario:
    """Small work spread over small nodes, large slots that wait beside it, and a policy that lets some of it be moved. A move is
    looked for every half minute, and by a new leader after a minute: rest comes late."""
    work = replace(scenario.work, workloads=5, actions=15.0, exclusive=0.1, jobs=0.0, operators=1.0, budgets=0.5, large=0.3)
    made = replace(scenario, regions=1, servers=2, nodes=6, work=work, fragmented=True, lease_s=5.0)
    return replace(made, settle_s=300.0, faults=Faults(crash=0.3, cut=0.5, instance=1.0, store=0.5))


def _usurpers(scenario: Scenario) -> Scenario:
    """Leaders that lose their store and not their nodes: whom may a node believe, and for how long?"""
    work = replace(scenario.work, workloads=5, exclusive=1.0, jobs=0.0, actions=20.0, operators=0.0)
    faults = Faults(usurp=3.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=faults, work=work, node_lease_s=6.0, lease_s=5.0)


def _doubts(scenario: Scenario) -> Scenario:
    """A store whose answers are lost after the fact, and clients who believe what they are told."""
    faults = Faults(store=15.0, unheard=0.5)
    work = replace(scenario.work, actions=120.0, replays=0.0, operators=0.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=faults, work=work, lease_s=5.0)


def _silent(scenario: Scenario) -> Scenario:
    """Agents that stand still for many leases of their nodes, beside Exclusive instances that do not."""
    work = replace(scenario.work, workloads=5, exclusive=0.6, jobs=0.0, actions=20.0, operators=0.0)
    faults = Faults(freeze=8.0)
    return replace(scenario, regions=1, servers=2, nodes=4, faults=faults, work=work, node_lease_s=4.0, lease_s=5.0)


def _zones(scenario: Scenario) -> Scenario:
    """Zones of four nodes that fall silent together: are they lost, or does nobody listen?"""
    work = replace(scenario.work, workloads=5, exclusive=0.3, jobs=0.1, actions=20.0, operators=0.0)
    made = replace(scenario, regions=1, servers=2, nodes=12, work=work, node_lease_s=6.0, lease_s=5.0)
    return replace(made, faults=Faults(zone=1.5, crash=0.5, cut=0.5, instance=1.0))


def _lingering(scenario: Scenario) -> Scenario:
    """Nodes whose last answers come as late as they wait for them: from when on does a lease count?"""
    work = replace(scenario.work, workloads=5, exclusive=1.0, jobs=0.0, actions=20.0, operators=0.0)
    faults = Faults(linger=6.0)
    return replace(scenario, regions=1, servers=1, nodes=3, faults=faults, work=work, node_lease_s=6.0, lease_s=5.0)


def _resets(scenario: Scenario) -> Scenario:
    """Followers that come back later than memory reaches."""
    work = replace(scenario.work, actions=120.0, workloads=6)
    faults = Faults(reset=20.0, cut=10.0, instance=6.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=faults, work=work, ring=20)


def _lagging(scenario: Scenario) -> Scenario:
    """Leaders that are killed while a faulty store has left its objects far behind its journal, and memory that reaches back less
    far than that."""
    work = replace(scenario.work, actions=90.0, jobs=0.0)
    made = replace(scenario, regions=1, servers=2, nodes=3, work=work, lease_s=3.0, ring=10)
    return replace(made, faults=Faults(crash=10.0, pause=6.0, store=6.0))


def _tails(scenario: Scenario) -> Scenario:
    """Stores that fail over to a replica that was behind, again and again."""
    work = replace(scenario.work, actions=60.0)
    return replace(scenario, regions=1, servers=2, nodes=3, faults=Faults(lost_tail=10.0), work=work, lease_s=5.0)


def _echoes(scenario: Scenario) -> Scenario:
    """Agents that are told again what is long over, while their slots come and go."""
    work = replace(scenario.work, workloads=3, actions=180.0, exclusive=0.3, jobs=0.0, operators=0.0)
    return replace(scenario, regions=1, servers=1, nodes=1, faults=Faults(stale_event=60.0), work=work)


def _versions(scenario: Scenario) -> Scenario:
    """Servers and agents of two versions: each life is of either, so that restarts are upgrades and ways back. No store loses its
    tail, no node has two agents, and all are configured with one lease: the version before had no answer to those."""
    faults = Faults(crash=8.0, power=0.5, cut=2.0, reset=4.0, pause=1.0, slow=1.0, instance=3.0, store=1.0, disk=0.5)
    work = replace(scenario.work, workloads=6, actions=40.0)
    return replace(scenario, regions=2, servers=2, nodes=3, faults=faults, work=work, earlier=0.5)


PROFILES: Final[dict[str, Callable[[Scenario], Scenario]]] = REGIONAL | {
    "alone": _alone,
    "areas": _areas,
    "calm": _calm,
    "canary": _canary,
    "crowded": _crowded,
    "denied": lambda s: replace(_tight(s), faults=Faults(meddle=240.0, instance=6.0)),  # asked again for what is used up
    "doubts": _doubts,
    "drains": _drains,
    "echoes": _echoes,
    "elastic": _elastic,
    "exclusive": _exclusive,
    "first": _first,
    "fragmented": _fragmented,
    "full": _full,
    "gangs": _gangs,
    "hasty": lambda s: replace(_usurpers(s), lease_s=26.0, node_lease_s=4.0),  # leaders outlive their nodes' leases
    "hints": _hints,
    "lagging": _lagging,
    "leaders": _leaders,
    "lingering": _lingering,
    "lost": _lost,
    "meddlers": _meddlers,
    "overrides": _overrides,
    "picky": _picky,
    "resets": _resets,
    "silent": _silent,
    "standing": _standing,
    "strays": _strays,
    "swarm": lambda scenario: scenario,
    "tails": _tails,
    "tenants": _tenants,
    "tight": _tight,
    "twins": _twins,
    "unknown": _unknown,
    "usurpers": _usurpers,
    "versions": _versions,
    "waning": lambda s: replace(_crowded(s), faults=Faults(freeze=15.0, stray=240.0, spoil=0.5), node_lease_s=4.0),  # so do nodes
    "zones": _zones,
}
