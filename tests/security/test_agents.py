"""An agent reads and writes what is its own node's, and nothing else; a component is what its certificate says."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.access import Answer, Identity, Question, statements_for
from fairlead.decide.access_agent import Holdings, NoHoldings, decide_agent, refuse_own_node
from fairlead.decide.access_commands import Facts, caller_for, question_of, refuse_command
from fairlead.decide.regional import ORDERED_IN
from fairlead.model.commands import (
    Bind,
    Caller,
    Command,
    Delete,
    LeaseAcquire,
    LeaseRelease,
    LeaseRenew,
    Move,
    Put,
    PutStatus,
    Report,
)
from fairlead.model.kinds.access import NodeProfile
from fairlead.model.kinds.capacity import DrainOrder, Node, NodeSpec, NodeStatus, Taint
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import AssignmentStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata, OwnerReference
from fairlead.model.registry import KINDS
from fairlead.model.resources import Device, Resources
from tests.model.examples import valid
from tests.security.rules import agent, bound, component, person

GI = 1 << 30
ME = agent("node-1", "eu-west")
LIFE = Token(1, 1, 1)


class Given:
    """node-1 holds api-0 of risk at generation 3, which mounts secret db; node-2 holds api-1 and secret other."""

    def node_of(self, plural: str, tenant: str, name: str) -> str:
        return {("risk", "api-0"): "node-1", ("risk", "api-1"): "node-2"}.get((tenant, name), "")

    def uses(self, node: str, plural: str, tenant: str, name: str) -> bool:
        mine = {("revisions", "risk", "api.g3"), ("secrets", "risk", "db"), ("configs", "risk", "settings")}
        return node == "node-1" and (plural, tenant, name) in mine


def may(verb: str, plural: str, tenant: str = "", name: str = "", sub: str = "", who: Identity = ME) -> Answer:
    return decide_agent(who, Question(verb, plural, tenant, name, sub), Given())


@pytest.mark.parametrize(
    ("plural", "tenant", "mine", "others"),
    [
        ("nodes", "", "node-1", ["node-2", "node-10", "node", ""]),
        ("bindings", "risk", "api-0", ["api-1", "api-9"]),
        ("instances", "risk", "api-0", ["api-1", "api-9"]),
        ("revisions", "risk", "api.g3", ["api.g4", "api"]),
        ("secrets", "risk", "db", ["other", "d"]),
        ("configs", "risk", "settings", ["db"]),
    ],
)
def test_an_agent_reads_what_its_own_node_holds(plural: str, tenant: str, mine: str, others: list[str]) -> None:
    for verb in ("get", "list", "watch"):
        assert may(verb, plural, tenant, mine).allowed
        assert not any(may(verb, plural, tenant, other).allowed for other in others if other)
        assert not may(verb, plural, "search", mine).allowed or plural == "nodes"
        assert not may(verb, plural, tenant, mine, "status").allowed
        # Of a collection there is nothing that is all its own: row by row.
        collection = may(verb, plural) if verb != "get" else None
        assert collection is None or (collection.allowed, collection.some) == (False, True)


def test_an_agent_reads_no_other_kind() -> None:
    allowed = {"nodes", "bindings", "instances", "revisions", "secrets", "configs"}
    for plural in [*sorted(set(KINDS) - allowed), "metrics", "audit"]:
        for verb in ("get", "list", "watch"):
            for name in ("", "node-1", "api-0"):
                answer = may(verb, plural, "risk", name)
                assert (answer.allowed, answer.some) == (False, False), (plural, verb)


def test_an_agent_writes_its_node_its_node_s_status_and_its_reports_and_nothing_else() -> None:
    tried = [
        (verb, plural, sub, name)
        for verb in ("create", "update", "patch", "delete", "approve", "escalate")
        for plural in KINDS
        for sub in ("", "status", "scale", "binding", "eviction", "token")
        for name in ("node-1", "node-2", "api-0", "api-1")
    ]
    allowed = {row for row in tried if may(row[0], row[1], "" if row[1] == "nodes" else "risk", row[3], row[2]).allowed}
    assert allowed == {
        ("create", "nodes", "", "node-1"),
        ("update", "nodes", "", "node-1"),
        ("patch", "nodes", "", "node-1"),
        ("update", "nodes", "status", "node-1"),
        ("patch", "nodes", "status", "node-1"),
        ("update", "instances", "status", "api-0"),
        ("patch", "instances", "status", "api-0"),
    }


def test_an_agent_without_a_node_may_do_nothing_not_even_where_nobody_is_the_holder() -> None:
    nobody = agent("")
    assert not decide_agent(nobody, Question("get", "bindings", "risk", "gone"), NoHoldings()).allowed
    assert not decide_agent(nobody, Question("get", "nodes", "", ""), NoHoldings()).allowed
    assert not decide_agent(nobody, Question("update", "instances", "risk", "gone", "status"), NoHoldings()).allowed


# --- its own node --------------------------------------------------------------------------------------------------------------

PROFILE = NodeProfile(
    node="node-1",
    region="eu-west",
    zone="a",
    pool="general",
    labels={"disk": "ssd"},
    capacity=Resources(8000, 32 * GI, [("fpga", 1)]),
    devices={"gpu": 2},
    max_slots=50,
)


def own_node(labels: dict[str, str] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Node:
    base = NodeSpec(region="eu-west", zone="a", pool="general", allocatable=Resources(8000, 32 * GI), max_slots=50)
    meta = Metadata(name="node-1", labels={"disk": "ssd"} if labels is None else labels, **(metadata or {}))
    return Node(metadata=meta, spec=replace(base, **spec))


def test_an_agent_may_say_what_it_has_up_to_its_profile() -> None:
    gpus = (Device(id="g0"), Device(id="g1"))
    told = own_node(allocatable=Resources(4000, 16 * GI, [("fpga", 1)]), devices=gpus, address="10.0.0.7", max_slots=10)
    assert refuse_own_node(told, None, PROFILE) == ""
    assert refuse_own_node(told, own_node(), PROFILE) == ""
    assert refuse_own_node(own_node(), told, PROFILE) == ""  # it may come back up to what was approved


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (own_node(allocatable=Resources(8001, GI)), "cpu"),
        (own_node(allocatable=Resources(1000, 33 * GI)), "memory"),
        (own_node(allocatable=Resources(1000, GI, [("fpga", 2)])), "fpga"),
        (own_node(allocatable=Resources(1000, GI, [("tpu", 1)])), "tpu"),
        (own_node(max_slots=51), "slots"),
        (own_node(devices=(Device(id="a"), Device(id="b"), Device(id="c"))), "devices gpu"),
        (own_node(labels={"disk": "ssd", "tier": "trusted"}), "labels"),
        (own_node(labels={}), "labels"),
        (own_node(region="us-east"), "profile is for"),
        (own_node(zone="b"), "zone"),
        (own_node(pool="secure"), "pool"),
        (own_node(taints=(Taint(key="k"),)), "taints"),
        (own_node(unschedulable=True), "unschedulable"),
        (own_node(hourly_cost_millis=-1), "hourly_cost_millis"),
        (own_node(unschedulable=True, drain=DrainOrder(reason="x")), "drain"),
        (own_node(metadata={"finalizers": ("orphan",)}), "finalizers"),
        (own_node(metadata={"owner_references": (OwnerReference(kind="Node", name="n", uid="u"),)}), "owner references"),  # type: ignore[arg-type]
    ],
)
def test_an_agent_may_not_say_more_than_its_profile_nor_what_operators_say(node: Node, says: str) -> None:
    assert says in refuse_own_node(node, None, PROFILE)
    assert says in refuse_own_node(node, own_node(), PROFILE)
    without_profile = refuse_own_node(node, own_node(allocatable=Resources(8000, 32 * GI, [("fpga", 1)])), None)
    assert without_profile, "also where only the stored node says what was approved"


def test_a_node_that_nobody_approved_does_not_register_itself() -> None:
    assert "approved" in refuse_own_node(own_node(), None, None)
    assert refuse_own_node(own_node(allocatable=Resources(4000, GI)), own_node(), None) == ""
    assert "cpu" in refuse_own_node(own_node(), own_node(allocatable=Resources(4000, 32 * GI)), None)


# --- commands over the channel -------------------------------------------------------------------------------------------------


def facts(plane: str = "region", holdings: Holdings | None = None, **fields: Any) -> Facts:
    return Facts(plane, holdings or Given(), **fields)


def refused(who: Identity, body: Any, *, caller: Caller | None = None, about: Facts | None = None) -> str:
    by = caller or Caller(who.actor, Role.AGENT, node=who.node)
    got = refuse_command(who, Command(by, body), statements_for(who, [bound("tenant-admin", "risk")], {}), about or facts())
    return got.reason if got is not None else ""


def test_an_agent_s_commands_are_its_reports_and_its_node() -> None:
    about = facts(node=own_node(), profile=PROFILE)
    assert refused(ME, Report("risk", "api-0", LIFE)) == ""
    assert refused(ME, Report("risk", "gone-0", LIFE)) == "", "the authority knows what became of it"
    assert refused(ME, PutStatus("Node", "", "node-1", NodeStatus())) == ""
    assert refused(ME, Put("Node", own_node()), about=about) == ""
    assert refused(ME, Report("risk", "api-1", LIFE)) == "WrongNode"
    assert refused(ME, PutStatus("Node", "", "node-2", NodeStatus())) == "WrongNode"
    assert refused(ME, Put("Node", own_node(allocatable=Resources(9000, GI))), about=about) == "Forbidden"
    assert refused(ME, Put("Node", own_node())) == "Forbidden", "approved by nobody"
    assert refused(ME, Put("Workload", valid()["Workload"])) == "WrongNode"
    assert refused(ME, Delete("Node", "", "node-1")) == "WrongNode"
    for body in (
        LeaseAcquire("x", Role.SCHEDULER),
        Move("risk", "api-0", LIFE, SlotState.SERVING),
        Bind("risk", "a", 1, 1, "n", 0, 0),
    ):
        assert refused(ME, body) == "Forbidden"


@pytest.mark.parametrize(
    ("caller", "reason"),
    [
        (Caller("node-1", Role.AGENT, node="node-2"), "WrongNode"),
        (Caller("node-1", Role.AGENT), "WrongNode"),
        (Caller("node-1", Role.OPERATOR), "Forbidden"),
        (Caller("node-1", Role.NODE, node="node-1"), "Forbidden"),
        (Caller("node-2", Role.AGENT, node="node-1"), "Forbidden"),
        (Caller("node-10", Role.AGENT, node="node-1"), "Forbidden"),
    ],
)
def test_an_agent_speaks_in_no_other_name_role_or_node(caller: Caller, reason: str) -> None:
    assert refused(ME, Report("risk", "api-0", LIFE), caller=caller) == reason
    assert refused(ME, Report("risk", "api-0", LIFE), caller=Caller("node-1/report", Role.AGENT, node="node-1")) == ""


def test_a_component_acts_in_the_roles_of_its_certificate() -> None:
    scheduler = component("scheduler", "server-0")
    lease = LeaseAcquire("scheduler", Role.SCHEDULER)
    assert refused(scheduler, lease, caller=Caller("server-0", Role.SCHEDULER)) == ""
    assert refused(scheduler, lease, caller=Caller("server-0/s1", Role.SCHEDULER)) == ""
    of_term = LeaseAcquire("scheduler", Role.SCHEDULER, of_term=True)  # it would keep it however long it is gone
    assert refused(scheduler, of_term, caller=Caller("server-0", Role.SCHEDULER)) == "Forbidden"
    for role in (Role.NODE, Role.OPERATOR, Role.AUTHORITY, Role.BREAK_GLASS, Role.USER, Role.AGENT, Role.MIRROR):
        assert refused(scheduler, lease, caller=Caller("server-0", role)) == "Forbidden", role
    assert refused(scheduler, lease, caller=Caller("server-1", Role.SCHEDULER)) == "Forbidden"
    # A certificate cannot make an operator or the authority itself, whatever was written into it.
    for word, role in (("operator", Role.OPERATOR), ("authority", Role.AUTHORITY), ("agent", Role.AGENT)):
        assert refused(component(word), lease, caller=Caller("server-0", role)) == "Forbidden"


def test_one_region_s_mirror_says_nothing_for_another_region_in_the_global_plane() -> None:
    mirror = component("mirror", "eu", region="eu-west")
    by, globally = Caller("eu", Role.MIRROR), facts("global")
    status = PutStatus("Assignment", "risk", "api.eu-west", AssignmentStatus())
    assert refused(mirror, status, caller=by, about=globally) == ""
    assert refused(mirror, replace(status, name="api.us-east"), caller=by, about=globally) == "Forbidden"
    assert refused(mirror, replace(status, name="api.xeu-west"), caller=by, about=globally) == "Forbidden"
    assert refused(mirror, Put("Tenant", valid()["Tenant"]), caller=by, about=globally) == "Forbidden"
    assert refused(mirror, Put("Tenant", valid()["Tenant"]), caller=by) == "", "in its own region it copies"
    assert refused(mirror, Put("Node", valid()["Node"]), caller=by, about=globally) == "Forbidden", "named alike, another kind"
    own, other = (LeaseAcquire(name, Role.MIRROR) for name in ("slots-eu-west", "slots-us-east"))
    assert refused(mirror, own, caller=by, about=globally) == ""
    assert refused(mirror, other, caller=by, about=globally) == "Forbidden"
    assert refused(mirror, LeaseRenew("slots-us-east", 1), caller=by, about=globally) == "Forbidden"
    # By this one a region is known to be there: whoever could hold another's would hide its loss.
    assert refused(mirror, LeaseAcquire("mirror-up-eu-west", Role.MIRROR), caller=by, about=globally) == ""
    for lease in (
        LeaseAcquire("mirror-up-us-east", Role.MIRROR),
        LeaseRenew("mirror-up-us-east", 1),
        LeaseRelease("mirror-up-us-east", 1),
    ):
        assert refused(mirror, lease, caller=by, about=globally) == "Forbidden", lease
    assert refused(component("mirror", "eu"), LeaseAcquire("mirror-up-", Role.MIRROR), caller=by, about=globally) == "Forbidden"
    hold = OverrideSpec(kind="hold", reason="x", ttl_seconds=60, scope=OverrideScope(tenants=("risk",), regions=("eu-west",)))
    record = Override(Metadata(name="eu-west-stop", namespace="risk", annotations={ORDERED_IN: "eu-west"}), hold)
    assert refused(mirror, Put("Override", record, mode="create"), caller=by, about=globally) == "", "ordered in its region"
    assert refused(component("mirror", "us", region="us-east"), Put("Override", record), caller=Caller("us", Role.MIRROR),
                   about=globally) == "Forbidden"  # fmt: skip
    bare = replace(record, metadata=replace(record.metadata, annotations={}))
    assert refused(mirror, Put("Override", bare, mode="create"), caller=by, about=globally) == "Forbidden", "an order, no record"
    nowhere = component("mirror", "eu")
    assert refused(nowhere, Put("Override", record), caller=by, about=globally) == "Forbidden"
    assert refused(nowhere, replace(status, name="api."), caller=by, about=globally) == "Forbidden"
    assert refused(nowhere, replace(status, name="api"), caller=by, about=globally) == "Forbidden"


def test_one_region_s_server_writes_nothing_in_another_region_s_plane() -> None:
    body, lease = Put("AccessBinding", valid()["AccessBinding"]), LeaseAcquire("anything", Role.MIRROR)
    here, by = facts(region="eu-west"), Caller("us", Role.MIRROR)
    stranger = Identity(name="us", kind="component", roles=("mirror", "plane-server"), region="us-east")
    for wanted in (body, lease):
        assert refused(stranger, wanted, caller=by, about=here) == "Forbidden"
        assert refused(replace(stranger, region="eu-west"), wanted, caller=by, about=here) == ""
        assert refused(replace(stranger, region=""), wanted, caller=by, about=here) == "", "of the world, as its certificate says"


def test_people_s_commands_are_held_to_their_roles_and_to_the_role_they_act_in() -> None:
    workload = Put("Workload", valid()["Workload"])
    user = Caller("user:ada", Role.USER, tenant="risk")
    assert refused(person(), workload, caller=user) == ""
    assert refused(person(), workload, caller=Caller("user:ada", Role.USER)) == "Forbidden", "not without the tenant"
    assert refused(person(), workload, caller=Caller("user:ada", Role.OPERATOR)) == "Forbidden"
    assert refused(person(), workload, caller=Caller("ada", Role.USER, tenant="risk")) == "Forbidden", (
        "a component's form of name"
    )
    assert refused(person("eve"), workload, caller=Caller("user:eve", Role.USER, tenant="risk")) == "Forbidden"
    assert refused(person(), LeaseAcquire("x", Role.SCHEDULER), caller=user) == "Forbidden"
    assert refused(person(), PutStatus("Node", "", "node-1", NodeStatus()), caller=user) == "Forbidden"


def test_the_right_to_everything_makes_an_operator_and_a_tenant_s_right_a_user_of_that_tenant() -> None:
    question = Question("update", "workloads", "risk", "api")
    assert caller_for(person(), Answer(True, "", cluster=True, role="admin"), question) == Caller("user:ada", Role.OPERATOR)
    assert caller_for(person(), Answer(True, "", role="tenant-admin"), question) == Caller("user:ada", Role.USER, tenant="risk")
    glass = Answer(True, "", cluster=True, role="break-glass")
    assert caller_for(person(), glass, question) == Caller("user:ada", Role.BREAK_GLASS)
    assert question_of(Put("Nonsense", None)) is None


def test_servers_pass_on_what_others_sent_within_their_own_bounds() -> None:
    door, standby = component("front-door", "global-0"), component("plane-server", "eu-0", region="eu-west")
    here = facts(region="eu-west")
    workload = Put("Workload", valid()["Workload"])
    for role in (Role.USER, Role.OPERATOR, Role.BREAK_GLASS):
        assert refused(door, workload, caller=Caller("user:ada", role), about=here) == ""
        assert refused(door, workload, caller=Caller("service:risk/ci", role), about=here) == ""
        assert refused(door, workload, caller=Caller("ada", role), about=here) == "Forbidden"
    for role in (Role.SCHEDULER, Role.AGENT, Role.AUTHORITY, Role.MIRROR):
        assert refused(door, workload, caller=Caller("user:ada", role), about=here) == "Forbidden"
    assert refused(replace(door, region="us-east"), workload, caller=Caller("user:ada", Role.USER), about=here) == "Forbidden"
    assert refused(standby, Report("risk", "api-1", LIFE), caller=Caller("node-2", Role.AGENT, node="node-2"), about=here) == ""
    elsewhere = facts(region="us-east")
    assert refused(standby, Report("risk", "api-1", LIFE), caller=Caller("node-2", Role.AGENT, node="node-2"), about=elsewhere)
    both = Identity(name="global-0", kind="component", roles=("front-door", "plane-server"))
    assert refused(both, workload, caller=Caller("user:ada", Role.USER), about=here) == "", "a global server at a region's door"
    assert refused(both, workload, caller=Caller("s", Role.SCHEDULER), about=here) == "Forbidden"
    assert refused(both, workload, caller=Caller("s", Role.SCHEDULER), about=facts("global")) == "", "in its own plane"
    # The word alone does nothing for whoever is no component.
    assert refused(replace(person(), roles=("plane-server",)), workload, caller=Caller("user:bob", Role.OPERATOR), about=facts())
