"""What an object may not say, whoever writes it: rights its writer lacks, and other people's names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.access import Identity, statements_for
from fairlead.decide.access_objects import Rules, completed, refuse_object
from fairlead.decide.admission import faults
from fairlead.model.kinds.access import AccessBinding, NodeProfile, Subject, Token, TokenSpec
from fairlead.model.kinds.policy import Override, OverrideSpec
from fairlead.model.meta import Metadata, Record
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from tests.security.rules import NOW, bound, person, role, rule, service, token_of

CI = Subject(kind="ServiceAccount", name="ci", tenant="risk")
BINDINGS = [
    bound("admin", "*", Subject(name="root"), name="b0"),
    bound("tenant-admin", "risk", Subject(name="ada"), name="b1"),
    bound("giver", "*", Subject(name="gil"), name="b2"),
    bound("operator", "*", Subject(name="olga"), Subject(name="otto"), name="b3"),
    bound("approver", "*", Subject(name="anna"), name="b4"),
    bound("tenant-viewer", "risk", CI, name="b5"),
]
ROLES = {"giver": role("giver", rule("create update get", "accessbindings accessroles workloads"), scope="Cluster")}


def refused(who: Identity, new: Any, old: Any = None, bindings: list[AccessBinding] = BINDINGS) -> str:
    got = refuse_object(Rules(who, statements_for(who, bindings, ROLES), bindings, ROLES), new, old)
    return got.detail if got is not None else ""


def test_a_binding_gives_no_more_than_its_writer_has() -> None:
    gil = person("gil")
    assert "more than" in refused(gil, bound("admin", "*", Subject(name="gil")))
    assert "more than" in refused(gil, bound("tenant-viewer", "risk", Subject(name="gil")))
    assert refused(gil, bound("giver", "*", Subject(name="kim"))) == ""
    assert "there is no role" in refused(gil, bound("later-mine", "*", Subject(name="gil")))
    assert refused(person("root"), bound("admin", "*", Subject(name="kim"))) == ""


def test_a_role_is_given_no_rule_that_its_writer_lacks() -> None:
    gil = person("gil")
    assert refused(gil, role("giver", rule("get", "workloads"), scope="Cluster")) == ""
    assert "does not have" in refused(gil, role("giver", rule("get", "secrets"), scope="Cluster"))
    assert refused(person("root"), role("giver", rule("get", "secrets"), scope="Cluster")) == ""
    # Where it is bound already, the tenants it is bound to count.
    bindings = [*BINDINGS, bound("local", "risk", Subject(name="kim"), name="b6")]
    assert "does not have" in refused(gil, role("local", rule("get", "secrets")), bindings=bindings)


def test_a_token_hands_on_no_more_than_its_issuer_has() -> None:
    ada = person("ada")
    own = Token(metadata=Metadata(name="t", namespace="risk"), spec=TokenSpec(subject=CI, hash="h"))
    assert refused(ada, own) == ""
    strong = [*BINDINGS, bound("operator", "*", CI, name="b6")]
    assert "more than" in refused(ada, own, bindings=strong), "the account was given a role of the whole cluster"
    assert refused(ada, own, own, bindings=strong) == "", "to revoke it takes no more than to write it"
    assert refused(person("root"), own, bindings=strong) == ""
    assert "more than" in refused(ada, token_of(subject=Subject(name="root")))
    assert "more than" in refused(service("risk", "ada"), token_of(subject=Subject(name="ada")))
    assert refused(ada, token_of(subject=Subject(name="ada"))) == "", "one's own"


# --- overrides -----------------------------------------------------------------------------------------------------------------


def test_who_asks_for_an_override_need_not_say_so_and_stays_who_asked() -> None:
    asked = completed(person("olga"), override(requester=""), None)
    assert asked == override(requester="olga")
    assert completed(person("anna"), override(requester="", approver="anna"), asked) == override(approver="anna")
    assert completed(person("otto"), override(requester="olga"), None) == override(), "a name that is said is judged, not mended"


def override(**spec: Any) -> Override:
    base = OverrideSpec(kind="freeze", reason="flood", ttl_seconds=600, requester="olga")
    return Override(metadata=Metadata(name="o", namespace="risk"), spec=replace(base, **spec))


def test_nobody_asks_in_another_s_name() -> None:
    assert refused(person("olga"), override()) == ""
    assert "requester" in refused(person("otto"), override())
    assert "requester" in refused(person("otto"), override(requester="otto"), override())
    assert "requester" in refused(person("olga"), override(requester=""))


def test_who_asks_by_the_local_socket_is_named_so_and_is_the_same_person_with_a_token() -> None:
    near = Identity(name="anna", kind="break-glass")
    asked = completed(near, override(requester=""), None)
    assert asked.spec.requester == "break-glass:anna"
    assert refused(near, asked) == ""
    assert "requester" in refused(near, override(requester="anna")), "not in the name of one of the people"
    for approver in ("anna", "break-glass:anna"):
        who = person("anna") if approver == "anna" else near
        assert "may not approve it" in refused(who, replace(asked, spec=replace(asked.spec, approver=approver)), asked)
    twice = replace(asked, spec=replace(asked.spec, approver="anna"))
    assert "spec.approver" in {fault.path for fault in faults(BY_KIND["Override"], twice, asked)}, "nor past the door"


def test_an_override_is_approved_by_another_person_who_may_in_their_own_name_as_it_stands() -> None:
    approved = override(approver="anna")
    assert refused(person("anna"), approved, override()) == ""
    assert "in the name of" in refused(person("otto"), approved, override())
    assert "may not approve" in refused(person("otto"), override(approver="otto"), override())
    assert "change of its own" in refused(person("olga"), override(approver="olga")), "not while asking for it"
    assert "may approve overrides, not write them" in refused(
        person("anna"), override(approver="anna", ttl_seconds=9), override()
    )
    assert "in a change of its own" in refused(person("olga"), override(approver="anna", ttl_seconds=9), approved)
    assert refused(person("olga"), override(ttl_seconds=9), approved) == "", "changed, and so no longer approved"


def test_whoever_asks_does_not_approve_even_with_both_roles() -> None:
    both = [*BINDINGS, bound("approver", "*", Subject(name="olga"), name="b6")]
    assert "may not approve it" in refused(person("olga"), override(approver="olga"), override(), bindings=both)


def test_other_objects_are_left_to_the_rules_on_verbs() -> None:
    assert refused(person("nobody"), token_of(purpose="Join", subject=None)) == ""


# --- admission -----------------------------------------------------------------------------------------------------------------


def told(new: Record, old: Record | None = None) -> dict[str, str]:
    return {fault.path: fault.message for fault in faults(BY_KIND[type(new).__name__], new, old)}


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (role("admin", rule("get", "workloads")), "metadata.name"),
        (role("mine", rule("*", "workloads")), "spec.rules[0].verbs[0]"),
        (role("mine", rule("get", "*")), "spec.rules[0].kinds[0]"),
        (role("mine", rule("get", "workload")), "spec.rules[0].kinds[0]"),
        (role("mine", rule("get", "workloads/nothing")), "spec.rules[0].kinds[0]"),
        (role("mine", rule("get", "workloads", tenants="*")), "spec.rules[0].tenants[0]"),
        (role("mine", rule("", "workloads")), "spec.rules[0].verbs"),
        (bound("tenant-admin", "*"), "spec.tenants"),
        (bound("admin", "* risk"), "spec.tenants"),
        (bound("admin", "ris*"), "spec.tenants[0]"),
        (bound("admin", ""), "spec.tenants"),
        (bound("admin", "*", Subject(name="ada", tenant="risk")), "spec.subjects[0].tenant"),
        (bound("admin", "*", Subject(kind="ServiceAccount", name="ci")), "spec.subjects[0].tenant"),
        (bound("admin", "*", Subject(name="user:ada")), "spec.subjects[0].name"),
    ],
)
def test_rules_and_bindings_with_a_slip_are_told_not_stored(bad: Record, path: str) -> None:
    assert path in told(bad)


SYSTEM = "fairlead-system"


def token_in(namespace: str, **spec: Any) -> Token:
    base = token_of(**{"subject": Subject(name="ada"), **spec})
    return replace(base, metadata=replace(base.metadata, namespace=namespace, name="t"))


def test_tokens_are_kept_where_their_subject_belongs() -> None:
    assert told(token_in(SYSTEM)) == {}
    assert told(token_in("risk", subject=CI)) == {}
    assert "metadata.namespace" in told(token_in("risk")), "a tenant's administrator would speak for a person"
    assert "metadata.namespace" in told(token_in("search", subject=CI))
    profile = NodeProfile(node="eu-west-node-1", region="eu-west", capacity=Resources(1000, 1 << 30))
    assert told(token_in(SYSTEM, purpose="Join", subject=None, profile=profile)) == {}
    assert "metadata.namespace" in told(token_in("risk", purpose="Join", subject=None, profile=profile))
    assert "metadata.namespace" in told(token_in("risk", purpose="Certificate", subject=None))


def test_a_join_token_of_before_names_began_with_their_region_can_still_be_revoked() -> None:
    profile = NodeProfile(node="node-1", region="eu-west", capacity=Resources(1000, 1 << 30))
    old = token_in(SYSTEM, purpose="Join", subject=None, profile=profile)
    assert told(replace(old, spec=replace(old.spec, revoked=True)), old) == {}
    for name in ("eu-west-1", "eu-west.1"):
        assert told(replace(old, spec=replace(old.spec, profile=replace(profile, node=name)))) == {}


@pytest.mark.parametrize("devices", [{"gpu": 1001}, {"gpu": -1}, {"a b": 1}, {"licence": 1}])
def test_a_join_token_counts_devices_that_a_node_may_have(devices: dict[str, int]) -> None:
    profile = NodeProfile(node="r-1", region="r", capacity=Resources(1000, 0, [("licence", 1)]), devices=devices)
    (path,) = told(token_in(SYSTEM, purpose="Join", subject=None, profile=profile))
    assert path.startswith("spec.profile.devices[")
    profile = replace(profile, devices={"gpu": 1000, "example.org/fpga": 0})
    assert told(token_in(SYSTEM, purpose="Join", subject=None, profile=profile)) == {}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"hash": "flt_a.b." + "0" * 64}, "spec.hash"),
        ({"hash": ""}, "spec.hash"),
        ({"expiry_time": None}, "spec.expiryTime"),
        ({"expiry_time": NOW.replace(tzinfo=None)}, "spec.expiryTime"),
        ({"subject": None}, "spec.subject"),
        ({"purpose": "Join", "subject": None}, "spec.profile"),
        ({"profile": NodeProfile(node="n", region="r")}, "spec.profile"),
        ({"purpose": "Join", "subject": None, "profile": NodeProfile(node="n", region="r")}, "spec.profile.capacity"),
        ({"purpose": "Join", "subject": None, "profile": NodeProfile(node="n-1", region="n-2")}, "spec.profile.node"),
        ({"purpose": "Join", "subject": None, "profile": NodeProfile(node="eu-west1", region="eu-west")}, "spec.profile.node"),
        ({"tenants": ("*",)}, "spec.tenants[0]"),
    ],
)
def test_a_token_with_a_slip_is_told_not_stored(spec: dict[str, Any], path: str) -> None:
    assert path in told(token_in(SYSTEM, **spec))


def test_a_token_only_ever_shrinks() -> None:
    old = token_in(SYSTEM)
    assert told(replace(old, spec=replace(old.spec, revoked=True, reason="lost")), old) == {}
    earlier = NOW + timedelta(hours=1)
    assert told(replace(old, spec=replace(old.spec, expiry_time=earlier)), old) == {}
    assert "spec.revoked" in told(old, replace(old, spec=replace(old.spec, revoked=True)))
    assert "spec.expiryTime" in told(old, replace(old, spec=replace(old.spec, expiry_time=earlier)))
    for field, value in (("hash", "sha256:" + "1" * 64), ("subject", Subject(name="eve")), ("tenants", ("risk",))):
        assert f"spec.{field}" in told(replace(old, spec=replace(old.spec, **{field: value})), old)
