"""What the readiness review asks for, as data: eight claims with every kind of evidence that each needs, the
promises S1 to S20 and L1 to L12, and the risks that are left when all of it is green.

Owns the tables, and which tests are evidence for what. Judges nothing: review.py does. A claim's kinds are fixed here; those
of a promise are where it is checked: simulated, in the journal of a real run, by property tests, and by planted bugs where the
authority judges it. Called by review.py, `fairlead review` and the documents.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Bound = tuple[str, float]

MET_LEAST: Final = 5  # of a fault or a refusal, over all campaigns of a build; fewer may be one lucky seed
SEEDS_LEAST: Final = 100  # below that, most directed profiles of a mixed campaign have had fewer than three seeds
REVISIONS_LEAST: Final = 1_000  # the local platform writes about two thousand while it starts and is drilled once
RECOVERED_S: Final = 300.0
LEADER_S: Final = 15.0
RECONNECTED_S: Final = 60.0
GOODPUT_LEAST: Final = 0.8  # of its peak, at twice the load that gives the peak
BACK_S: Final = 60.0
BINDS_LEAST: Final = 2_000.0  # slots a second, of workloads of a hundred
QUOTA_COST_MOST: Final = 0.05  # of the CPU of a bind
IDLE_MOST: Final = 0.15  # of one core, servers and 5,000 nodes together

EXCUSED: Final = "excused"  # in `void` of a campaign of which too many seeds were let off
ADDED_UP: Final = frozenset({"sim run", "audit verify"})  # records of these are summed, whatever seeds or planes they are of
# These come out the same whenever they are run on a build: one that failed fails again, whatever passed since.
SETTLED: Final = frozenset({"sim mutants", "sim sieve", "sim determinism", "replay verify"})


class Ask(NamedTuple):
    """One record that must be there, and what it must show. Without a name: nothing can show it yet, and `command` says why."""

    record: str
    command: str
    invariants: tuple[str, ...] = ()  # only a finding about these speaks against it; without any: every finding
    met: tuple[str, ...] = ()  # faults and refusals that a campaign must have met
    least: tuple[Bound, ...] = ()
    most: tuple[Bound, ...] = ()


class Kind(NamedTuple):
    name: str
    asks: tuple[Ask, ...]


class Claim(NamedTuple):
    id: str
    text: str
    kinds: tuple[Kind, ...]


class Risk(NamedTuple):
    id: str
    risk: str
    because: str  # why it is left, and what bounds it


# Which tests are evidence: `fairlead review test NAME` runs them in the source checkout and keeps what came of it.
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "autoscaling": ("tests/decide/test_autoscaling.py", "tests/controllers/test_autoscaler.py"),
    "boundaries": ("tests/docs/test_design.py",),
    "clean-up": ("tests/cli/test_incident.py",),
    "disk-full": ("tests/store/test_etcd.py", "tests/authority/test_commit_faults.py"),
    "explanations": ("tests/api/test_asking.py", "tests/api/test_waiting.py"),
    "fairness": ("tests/scheduler/test_queue_order.py",),
    "gangs": ("tests/scheduler/test_queue_gangs.py", "tests/scheduler/test_scheduler_races.py"),
    "history": ("tests/cli/test_history.py", "tests/api/test_past_and_regions.py"),
    "kills": ("tests/rigs/test_kill.py", "tests/rigs/test_paused_leader.py"),
    "metrics": ("tests/observe/test_alerts.py", "tests/observe/test_metrics.py"),
    "overrides": ("tests/decide/test_overrides.py", "tests/authority/test_overrides.py", "tests/controllers/test_overrides.py"),
    "owners": ("tests/authority/test_objects.py", "tests/authority/test_chores.py", "tests/controllers/test_repair.py"),
    "preemption": ("tests/authority/test_preemption_claims.py", "tests/authority/test_preemption_random.py"),
    "properties": (
        "tests/authority/test_promises.py", "tests/authority/test_gates_random.py", "tests/decide/test_escrow.py",
        "tests/decide/test_grants.py", "tests/decide/test_fit.py", "tests/decide/test_preempt_victims.py",
    ),
    "restores": ("tests/store/test_backup.py", "tests/authority/test_receipts.py"),
    "runbooks": (
        "tests/docs/test_runbooks.py", "tests/platform/test_scenarios.py::test_the_commands_of_a_runbook_work_as_they_stand",
    ),
    "walls": ("tests/security/test_walls.py",),
    "watches": ("tests/api/test_watching.py",),
}  # fmt: skip


# --- how evidence is asked for -----------------------------------------------------------------------------------------------


def _drill(name: str, **most: float) -> Ask:
    bounds = tuple((f"timings_s.{timing}", seconds) for timing, seconds in most.items())
    return Ask(f"drill {name}", f"fairlead drill {name}", most=bounds)


def _sim(*invariants: str, met: tuple[str, ...] = (), least: tuple[Bound, ...] = (), profile: str = "") -> Ask:
    """`profile`: the one that looks for it, where the mixed campaign does not."""
    asked = (("seeds", SEEDS_LEAST), *((f"checked.{name}", 1) for name in invariants if name in _COUNTED), *least)
    command = (
        f"fairlead sim run --profile {profile} --seeds 40 --thin" if profile else "fairlead sim run --seeds 200 --jobs 2 --thin"
    )
    return Ask("sim run", command, invariants, (*met, EXCUSED), asked)


def _audit(*invariants: str) -> Ask:
    asked = tuple((f"checked.{name}", 1.0) for name in invariants)
    return Ask("audit verify", "fairlead audit verify", invariants, least=asked)


def _history(*invariants: str) -> Ask:
    """For promises about what is seldom there: every batch of a real history was looked at, whether or not it had any of it."""
    return Ask("audit verify", "fairlead audit verify", invariants, least=(("revisions", REVISIONS_LEAST),))


def _test(name: str) -> Ask:
    return Ask(f"test {name}", f"fairlead review test {name}", least=(("passed", 1),), most=(("failed", 0), ("skipped", 0)))


def _bench(name: str, *options: str, least: tuple[Bound, ...] = (), most: tuple[Bound, ...] = ()) -> Ask:
    return Ask(f"bench {name}", " ".join(("fairlead bench", name, *options)), least=least, most=most)


# What a campaign counts looks of; the other promises are asked at the end of every seed.
_COUNTED: Final = frozenset((*(f"S{n}" for n in range(1, 21) if n not in (14, 16)), "L1"))
_REPLAYED: Final = Ask(
    "replay verify", "fairlead export --plane us-east us-east.history && fairlead replay us-east.history --verify",
    least=(("judged", 100),), most=(("different", 0),),
)  # fmt: skip
_MUTANTS: Final = Ask("sim mutants", "fairlead sim mutants --quick", least=(("planted", 10),), most=(("lost", 0),))
_REGION_LOSS: Final = _drill("region-loss", serving=RECOVERED_S)
_RECOVERY: Final = _bench(
    "recovery", least=(("params.nodes", 1_000),), most=(("recovered_max_s", RECOVERED_S), ("quota_violations", 0))
)
_CONTENTION: Final = _bench(
    "contention", least=(("schedulers.4.fairness", 0.9), ("modes.free.schedulers.4.conflict_fraction", 0))
)
_OBSERVE: Final = _bench("observe", most=(("share_of_cpu_per_bind", 0.15), ("why_p99_ms", 200.0)))
_OVERLOAD: Final = _bench(
    "overload",
    least=(("ratio", GOODPUT_LEAST), ("params.factor", 2), ("lease_renewals", 1)),
    most=(("back_max_s", BACK_S), ("lease_renewals_missed", 0)),
)
_FLEET: Final = (("params.nodes", 5_000.0),)
_QUOTA_COST: Final = _bench("api", "--part quota", least=_FLEET, most=(("quota_cost", QUOTA_COST_MOST),))
_BULK: Final = _bench("api", "--part bulk", least=(*_FLEET, ("binds_per_s", BINDS_LEAST)))
_IDLE: Final = _bench("api", "--part idle", least=_FLEET, most=(("idle_share_of_core", IDLE_MOST),))

# --- the eight ---------------------------------------------------------------------------------------------------------------

EIGHT: Final[tuple[Claim, ...]] = (
    Claim("C1", "critical services are back within five minutes of the loss of a region", (
        Kind("capacity model", (_RECOVERY,)),
        Kind("failover drill", (_REGION_LOSS, _drill("region-loss-during-recovery", serving=RECOVERED_S))),
        Kind("queue and readiness metrics", (_test("metrics"),)),
    )),
    Claim("C2", "no slot is bound twice", (
        Kind("authoritative commit path", (_MUTANTS, _audit("S1", "S2"))),
        Kind("invariant test", (_sim("S1", met=("AlreadyBound", "StaleEpoch")), _test("properties"))),
        Kind("replay after timeout", (_drill("commit-timeout"), _sim("S1", "S13", met=("F10", "Repeated")), _REPLAYED)),
    )),
    Claim("C3", "no tenant takes more than it was given, whoever is in a hurry", (
        Kind("quota model", (_sim("S4", "S5", met=("GrantExceeded",)), _test("properties"))),
        Kind("preemption policy", (_sim("S19", met=("VictimNotAllowed",)), _test("preemption"))),
        Kind("audit of emergency capacity", (_audit("S4", "S11"), _test("runbooks"))),
    )),
    Claim("C4", "autoscaling does not answer slow placement with more work", (
        Kind("pending reasons", (_drill("autoscaler-amplification"),)),
        Kind("scale-up limits", (_drill("autoscaler-amplification"), _test("autoscaling"))),
        Kind("simulation", (_test("autoscaling"),)),
    )),
    Claim("C5", "rollback and repair know what state they touch", (
        Kind("revision metadata", (_drill("policy-rollback"), _audit("S7"))),
        Kind("owner references", (_test("owners"), _sim("L6"))),
        Kind("finalizers", (_sim("S10"), _history("S10"), _test("owners"))),
        Kind("repair conditions", (_drill("repair-during-incident"),)),
    )),
    Claim("C6", "operators can act under pressure without making it worse", (
        Kind("scoped overrides", (_test("overrides"), _sim("S11", profile="overrides"))),
        Kind("TTL", (_drill("override-expiry"),)),
        Kind("audit", (_audit("S18"),)),
        Kind("runbooks", (_test("runbooks"),)),
        Kind("cleanup checks", (_test("clean-up"),)),
    )),
    Claim("C7", "every decision can be taken apart afterwards", (
        Kind("generation", (_audit("S7"), _sim("S7", met=("StaleGeneration",)))),
        Kind("policy revision", (_drill("policy-rollback"),)),
        Kind("resource version", (_test("history"),)),
        Kind("reasons", (_test("explanations"), _OBSERVE)),
        Kind("status", (_test("explanations"), _drill("watch-loss"))),
    )),
    Claim("C8", "coordination is paid for where an invariant needs it, and nowhere else", (
        Kind("invariant map", (_test("boundaries"),)),
        Kind("budget model", (_sim("S5"), _RECOVERY, _QUOTA_COST)),
        Kind("conflict and skew analysis", (_CONTENTION, _bench("fairness"))),
    )),
)  # fmt: skip

# --- the promises ------------------------------------------------------------------------------------------------------------

_SIMULATED: Final = "simulation"
_PROPERTY: Final = "property test"
_GUARDS: Final = "planted bugs"
_REAL: Final = "real run"


def _promise(name: str, text: str, sim: Ask, real: tuple[Ask, ...] = (), property_test: str = "", judged: bool = False) -> Claim:
    kinds = [Kind(_SIMULATED, (sim,))]
    if judged:
        kinds.append(Kind(_GUARDS, (_MUTANTS,)))
    if property_test:
        kinds.append(Kind(_PROPERTY, (_test(property_test),)))
    if real:
        kinds.append(Kind(_REAL, real))
    return Claim(name, text, tuple(kinds))


def _journalled(
    name: str, text: str, *met: str, property_test: str = "properties", seldom: bool = False, profile: str = ""
) -> Claim:
    """Judged at commit, and asked of journals wherever they come from."""
    return _promise(
        name, text, _sim(name, met=met, profile=profile), ((_history if seldom else _audit)(name),), property_test, judged=True
    )


SAFETY: Final[tuple[Claim, ...]] = (
    _journalled("S1", "a slot has at most one live binding", "AlreadyBound", "F10"),
    _journalled("S2", "no node is given more than it has", "NoFit"),
    _journalled("S3", "a device has one holder", property_test=""),
    _journalled("S4", "no tenant uses more than its grant and quota", "GrantExceeded"),
    _journalled("S5", "what regions may still use never exceeds the quota", "F5", "F7"),
    _journalled("S6", "work is only where it may be", "StalePolicy"),
    _journalled(
        "S7", "a slot goes only where the lifecycle lets it, by the step's owner", "NoSuchStep", "NotOwner", "NotPending"
    ),
    _journalled("S8", "a reservation ends once", profile="regions"),
    _journalled("S9", "nothing is accepted under an old epoch or token", "FencedOut", "StaleToken", "F8"),
    _promise("S10", "nothing is held for nobody for longer than 90 s", _sim("S10", met=("F9",)), (_history("S10"),)),
    _journalled("S11", "an override has no effect after its end", property_test="overrides", profile="overrides"),
    _promise(
        "S12", "an exclusive slot never runs twice at once", _sim("S12", met=("AgentFence", "F16")), (_drill("region-cut"),)
    ),
    _promise(
        "S13", "what was acknowledged is there once, what was refused is not", _sim("S13", met=("F13", "F14")), (_test("kills"),)
    ),
    _promise("S14", "one order: what was acknowledged before comes before", _sim("S14"), (_test("kills"),)),
    _promise("S15", "a watch is ordered, complete and resumable", _sim("S15", met=("F11",)), (_drill("watch-loss"),), "watches"),
    _promise(
        "S16", "after a restore, leases and receipts of before are refused", _sim("S16", met=("F14",)), (_test("restores"),)
    ),
    _promise("S17", "an answer holds only what its caller may read", _sim("S17"), (_test("walls"),)),
    _journalled("S18", "every change is in the audit chain, once", property_test=""),
    _journalled(
        "S19",
        "victims stand below their evictor, within disruption budgets",
        "VictimNotAllowed",
        property_test="preemption",
        seldom=True,
    ),
    _journalled(
        "S20",
        "a gang is bound whole or not at all",
        "GangIncomplete",
        "GangRefused",
        property_test="gangs",
        seldom=True,
        profile="gangs",
    ),
)

LIVENESS: Final[tuple[Claim, ...]] = (
    _promise("L1", "work that fits is bound within 30 s", _sim("L1"), (_BULK,)),
    _promise("L2", "a new leader within 15 s", _sim("L2", met=("F9",)), (_drill("leader-restart", detect=LEADER_S),)),
    Claim("L3", "a missed event is made good within 35 s", (
        Kind(_SIMULATED, (Ask("sim sieve", "fairlead sim sieve --points 3", least=(("tried", 30),), most=(("failed", 0),)),)),
        Kind(_REAL, (_drill("watch-loss"),)),
    )),
    _promise("L4", "actual is desired within 60 s, then nobody writes", _sim("L4"), (_IDLE,)),
    _promise("L5", "four of every critical service serve within 300 s of a region's loss",
             _sim("L5", least=(("recovered", 1),), profile="regions"), (_REGION_LOSS, _RECOVERY)),
    _promise("L6", "orphans are gone within 90 s", _sim("L6")),
    _promise("L7", "a commit in doubt is resolved within 10 s", _sim("L7", met=("F10",)), (_drill("commit-timeout"),)),
    Claim("L8", "5,000 agents reconnect within 60 s", (
        Kind("benchmark", (_bench(
            "api", "--part reconnect", least=(("params.nodes", 5_000),), most=(("restart_all_heard_s", RECONNECTED_S),)
        ),)),
    )),
    Claim("L9", "no tenant with room and work waits more than twice its share", (
        Kind(_PROPERTY, (_test("fairness"),)), Kind("benchmark", (_CONTENTION,)),
    )),
    Claim("L10", "at twice the load a plane can take it does 80 % of its best, and is back within 60 s", (
        Kind("benchmark", (_OVERLOAD,)),
    )),
    Claim("L11", "a full disk: read-only, and back when there is room", (Kind("real servers", (_test("disk-full"),)),)),
    Claim("L12", "whatever waits has a reason, an owner and a wake-up", (Kind("real servers", (_test("explanations"),)),)),
)  # fmt: skip

CLAIMS: Final = (*EIGHT, *SAFETY, *LIVENESS)

# --- what is left when all is green ------------------------------------------------------------------------------------------

RISKS: Final[tuple[Risk, ...]] = (
    Risk("R1", "drills and benchmarks run on one machine: its network is a loopback and its clocks agree",
         "links are cut and delayed in the simulator with clocks that differ; no run over real distance has been made"),
    Risk("R2", "autoscalers of workloads are simulated in one profile, `elastic`, of one region",
         "there a service follows a load while servers, machines and stores fail and links are cut (B1); with a region that goes "
         "dark in `sim sieve` alone; their loop is simulated against a naive one, and drilled on the real platform"),
    Risk("R3", "S5 is compared over several planes in simulation only",
         "offline the global plane's history is asked whether too much was offered (S5), each region's whether it used more than "
         "it had (S4); `audit verify --state` puts the histories of all planes side by side for S12 alone"),
    Risk("R4", "a campaign proves nothing about what it did not meet",
         "each promise names the faults and refusals its campaign must have met; the others are in `void` of the record"),
    Risk("R5", "two regions lost at once are only survived where the recovery budget was sized for two",
         "`fairlead plan --lose-region` says so beforehand; the alert RecoveryNotReady pages while it is not so"),
    Risk("R6", "a store that acknowledges and then loses its tail loses what was acknowledged",
         "etcd with three members and PostgreSQL with synchronous replication do not; SQLite on one disk may"),
    Risk("R7", "an operator with the global plane's store and its keys can write any history",
         "the audit chain shows a change afterwards to whoever kept an older hash; it cannot prevent it"),
    Risk("R8", "the drilled platform runs no gangs and preempts little, so its history shows little about S19 and S20",
         "simulation must have met both, and tests race real schedulers for both; the audit shows that nothing broke"),
    Risk("R9", "overload is measured with creates of workloads without replicas, by clients that mostly wait as told",
         "a refusal costs about a tenth of an answer, so refusing ten times what it can do takes all of a plane's core"),
)  # fmt: skip
