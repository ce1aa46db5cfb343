"""The one decision about access, against a model of it and case by case."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.access import (
    Identity,
    Question,
    decide,
    ends_at,
    holds_all,
    statements_for,
    statements_of_role,
    why_not_valid,
)
from fairlead.decide.access_roles import BUILT_IN, COMPONENT_ROLES
from fairlead.model.kinds.access import AccessBinding, AccessBindingSpec, AccessRole, AccessRoleSpec, AccessRule, Subject
from fairlead.model.meta import Metadata
from tests.security.rules import NOW, agent, bound, component, model, person, role, rule, service, token_of

# Few words, so that rules and questions meet; prefixes of each other, so that a match that is not whole would show.
TENANTS = ["risk", "risk-eu", "ris", ""]
PLURALS = ["workloads", "workloads", "nodes", "tenants", "regions"]
VERBS = ["list", "list", "update"]
NAMES = ["api", "api-2", "risk"]
SUBRESOURCES = ["", "", "", "scale"]

rules = st.builds(
    AccessRule,
    effect=st.sampled_from(["Allow", "Allow", "Deny"]),
    verbs=st.lists(st.sampled_from(VERBS), min_size=1, max_size=2).map(tuple),
    kinds=st.lists(st.sampled_from([*PLURALS, "workloads/scale"]), min_size=1, max_size=4).map(tuple),
    names=st.one_of(st.just(()), st.lists(st.sampled_from(NAMES), max_size=2).map(tuple)),
    tenants=st.one_of(st.just(()), st.lists(st.sampled_from(TENANTS[:3]), max_size=2).map(tuple)),
)
own_roles = st.builds(AccessRoleSpec, scope=st.sampled_from(["Tenant", "Cluster"]), rules=st.lists(rules, max_size=4).map(tuple))
subjects = st.builds(
    Subject,
    kind=st.sampled_from(["User", "User", "ServiceAccount"]),
    name=st.sampled_from(["ada", "ada", "ci"]),
    tenant=st.just("risk"),
)
binding_specs = st.builds(
    AccessBindingSpec,
    role=st.sampled_from(["one", "two", "one", "two", "one", "two", "absent", "admin", "tenant-viewer"]),
    subjects=st.lists(subjects, min_size=1, max_size=2).map(tuple),
    tenants=st.lists(st.sampled_from(["risk", "risk-eu", "ris", "*", ""]), max_size=3).map(tuple),
)
identities = st.builds(
    lambda name, kind, tenants: Identity(name=f"risk/{name}" if kind == "service" else name, kind=kind, tenants=tenants),
    st.sampled_from(["ada", "ada", "ci"]),
    st.sampled_from(["user", "user", "service"]),
    st.sampled_from([(), (), (), ("risk",), ("risk-eu",)]),
)
questions = st.builds(
    Question,
    st.sampled_from(VERBS),
    st.sampled_from(PLURALS),
    st.sampled_from(TENANTS),
    st.sampled_from(NAMES),
    st.sampled_from(SUBRESOURCES),
)


@settings(max_examples=300, deadline=None)
@given(
    identities, st.tuples(own_roles, own_roles), st.lists(binding_specs, max_size=4), st.lists(questions, min_size=1, max_size=12)
)
def test_every_answer_about_an_object_is_the_model_s(
    identity: Identity,
    specs: tuple[AccessRoleSpec, AccessRoleSpec],
    bindings_of: list[AccessBindingSpec],
    asked: list[Question],
) -> None:
    roles = {name: AccessRole(metadata=Metadata(name=name), spec=spec) for name, spec in zip(("one", "two"), specs, strict=True)}
    bindings = [AccessBinding(metadata=Metadata(name=f"b{n}"), spec=spec) for n, spec in enumerate(bindings_of)]
    statements = statements_for(identity, bindings, roles)
    for question in asked:
        wanted = model(identity, bindings, roles, question)
        got = decide(identity, statements, question)
        assert got.allowed is wanted, (question, got)
        assert got.reason


@settings(max_examples=250, deadline=None)
@given(
    identities,
    st.tuples(own_roles, own_roles),
    st.lists(binding_specs, max_size=4),
    st.sampled_from(PLURALS),
    st.sampled_from(TENANTS),
)
def test_a_collection_is_allowed_only_if_each_of_its_rows_is_and_some_are_shown_only_if_that_is_said(
    identity: Identity,
    specs: tuple[AccessRoleSpec, AccessRoleSpec],
    bindings_of: list[AccessBindingSpec],
    plural: str,
    tenant: str,
) -> None:
    roles = {name: AccessRole(metadata=Metadata(name=name), spec=spec) for name, spec in zip(("one", "two"), specs, strict=True)}
    bindings = [AccessBinding(metadata=Metadata(name=f"b{n}"), spec=spec) for n, spec in enumerate(bindings_of)]
    statements = statements_for(identity, bindings, roles)
    collection = decide(identity, statements, Question("list", plural, tenant))
    in_tenants = plural == "workloads"
    rows = [
        Question("list", plural, row_tenant, name)
        for row_tenant in ([tenant] if tenant or not in_tenants else ["risk", "risk-eu", "ris", "other"])
        for name in ("api", "api-2", "risk", "never-named")
    ]
    shown = [model(identity, bindings, roles, row) for row in rows]
    if collection.allowed:
        assert all(shown), (rows, shown)
    if any(shown):
        assert collection.some or collection.allowed


def test_nothing_is_allowed_to_somebody_without_a_binding() -> None:
    for verb in ("get", "list", "create", "escalate"):
        assert not decide(person(), statements_for(person(), [], {}), Question(verb, "workloads", "risk", "api")).allowed


def test_a_rule_that_denies_wins_wherever_it_stands() -> None:
    deny = role("no-secrets", rule("get", "secrets", effect="Deny"))
    for bindings in (
        [bound("no-secrets", "risk"), bound("tenant-admin", "risk")],
        [bound("tenant-admin", "risk"), bound("no-secrets", "risk")],
    ):
        statements = statements_for(person(), bindings, {"no-secrets": deny})
        assert not decide(person(), statements, Question("get", "secrets", "risk", "db")).allowed
        assert decide(person(), statements, Question("get", "workloads", "risk", "api")).allowed


@pytest.mark.parametrize("tenant", ["ris", "risk-eu", "riskx", "RISK", "risk ", "*", ""])
def test_a_tenant_is_matched_whole(tenant: str) -> None:
    statements = statements_for(person(), [bound("tenant-admin", "risk")], {})
    assert decide(person(), statements, Question("get", "workloads", "risk", "api")).allowed
    assert not decide(person(), statements, Question("get", "workloads", tenant, "api")).allowed


def test_the_word_for_all_tenants_means_nothing_outside_a_role_of_the_cluster() -> None:
    own = role("mine", rule("get", "workloads"))
    for name in ("tenant-admin", "mine"):
        statements = statements_for(person(), [bound(name, "*")], {"mine": own})
        assert not decide(person(), statements, Question("get", "workloads", "risk", "api")).allowed
        assert not decide(person(), statements, Question("get", "workloads", "*", "api")).allowed
    wide = role("wide", rule("get", "workloads"), scope="Cluster")
    assert decide(
        person(), statements_for(person(), [bound("wide", "*")], {"wide": wide}), Question("get", "workloads", "risk", "x")
    ).allowed


def test_a_rule_with_names_is_for_those_names_and_never_for_a_whole_collection() -> None:
    own = role("one", rule("get list", "workloads", names="api"), rule("get list", "configs"))
    statements = statements_for(person(), [bound("one", "risk")], {"one": own})
    assert decide(person(), statements, Question("get", "workloads", "risk", "api")).allowed
    assert not decide(person(), statements, Question("get", "workloads", "risk", "api-2")).allowed
    some = decide(person(), statements, Question("list", "workloads", "risk"))
    assert (some.allowed, some.some) == (False, True)
    assert decide(person(), statements, Question("list", "configs", "risk")).allowed


def test_a_subresource_needs_a_rule_of_its_own() -> None:
    own = role("reader", rule("get update", "workloads"))
    statements = statements_for(person(), [bound("reader", "risk")], {"reader": own})
    assert decide(person(), statements, Question("update", "workloads", "risk", "api")).allowed
    assert not decide(person(), statements, Question("update", "workloads", "risk", "api", "scale")).allowed


def test_nobody_takes_the_place_of_a_built_in_role_or_of_somebody_else_s_name() -> None:
    false_viewer = role("tenant-viewer", rule("get delete", "secrets workloads"))
    statements = statements_for(person(), [bound("tenant-viewer", "risk")], {"tenant-viewer": false_viewer})
    assert not decide(person(), statements, Question("delete", "workloads", "risk", "api")).allowed
    # A service account called `ada` is not the person, nor is one of another tenant, nor a component.
    admin = [bound("admin", "*", Subject(name="ada"))]
    for other in (service("risk", "ada"), service("", "ada"), component("scheduler", "ada"), agent("ada")):
        assert not any(s.role == "admin" for s in statements_for(other, admin, {}))
    ci = [bound("tenant-admin", "risk", Subject(kind="ServiceAccount", name="ci", tenant="risk"))]
    assert statements_for(service("risk", "ci"), ci, {})
    assert not statements_for(service("search", "ci"), ci, {})
    assert not statements_for(person("risk/ci"), ci, {})
    others = [bound("tenant-admin", "risk", Subject(kind="ServiceAccount", name="ci", tenant="search"))]
    assert not statements_for(service("risk", "ci"), others, {})


def test_a_token_narrowed_to_a_tenant_reaches_no_other_whatever_its_owner_may() -> None:
    admin = person(tenants=("risk",))
    statements = statements_for(admin, [bound("admin", "*")], {})
    assert decide(admin, statements, Question("get", "workloads", "risk", "api")).allowed
    assert not decide(admin, statements, Question("get", "workloads", "search", "api")).allowed
    assert not decide(admin, statements, Question("get", "nodes", "", "node-1")).allowed
    everywhere = decide(admin, statements, Question("list", "workloads"))
    assert (everywhere.allowed, everywhere.some) == (False, True)


def test_a_collection_of_which_nothing_may_be_seen_is_refused_not_shown_empty() -> None:
    one = statements_of_role("one", role("one", rule("list", "workloads")), ("risk",))
    elsewhere = decide(person(), one, Question("list", "workloads", "fraud"))
    assert (elsewhere.allowed, elsewhere.some) == (False, False), "a rule for one tenant says nothing of another's list"
    both = statements_of_role("both", role("both", rule("list", "workloads")), ("risk", "fraud"))
    narrowed = decide(replace(person(), tenants=("risk",)), both, Question("list", "workloads", "fraud"))
    assert (narrowed.allowed, narrowed.some) == (False, False), "nor does a token that is for one of them only"
    assert decide(replace(person(), tenants=("risk",)), both, Question("list", "workloads")).some, "over all, there are some"


def test_a_tenant_sees_itself_and_the_regions_and_no_other_tenant() -> None:
    statements = statements_for(person(), [bound("tenant-viewer", "risk")], {})
    assert decide(person(), statements, Question("get", "tenants", "", "risk")).allowed
    assert not decide(person(), statements, Question("get", "tenants", "", "search")).allowed
    assert not decide(person(), statements, Question("get", "tenants", "risk", "search")).allowed
    assert decide(person(), statements, Question("list", "regions")).allowed
    assert not decide(person(), statements, Question("list", "nodes")).some


def test_deleting_a_collection_takes_the_right_to_delete_all_of_it() -> None:
    own = role("sweeper", rule("delete", "workloads"), rule("delete", "workloads", effect="Deny", names="api"))
    statements = statements_for(person(), [bound("sweeper", "risk")], {"sweeper": own})
    assert not decide(person(), statements, Question("deletecollection", "workloads", "risk")).allowed
    statements = statements_for(person(), [bound("tenant-admin", "risk")], {})
    assert decide(person(), statements, Question("deletecollection", "workloads", "risk")).allowed
    assert not decide(person(), statements, Question("deletecollection", "workloads")).allowed


# --- built-in roles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role_name", "tenants", "question", "allowed"),
    [
        ("admin", "*", Question("escalate", "accessbindings", "", "b"), True),
        ("admin", "*", Question("get", "secrets", "risk", "db"), True),
        ("operator", "*", Question("update", "nodes", "", "node-1"), True),
        ("operator", "*", Question("create", "overrides", "risk", "o"), True),
        ("operator", "*", Question("get", "secrets", "risk", "db"), False),
        ("operator", "*", Question("create", "tokens", "risk", "t"), False),
        ("operator", "*", Question("create", "accessbindings", "", "b"), False),
        ("operator", "*", Question("approve", "overrides", "risk", "o"), False),
        ("approver", "*", Question("approve", "overrides", "risk", "o"), True),
        ("approver", "*", Question("create", "overrides", "risk", "o"), False),
        ("approver", "*", Question("update", "workloads", "risk", "api"), False),
        ("auditor", "*", Question("list", "workloads"), True),
        ("auditor", "*", Question("get", "audit"), True),
        ("auditor", "*", Question("list", "secrets"), False),
        ("auditor", "*", Question("update", "workloads", "risk", "api"), False),
        ("break-glass", "*", Question("create", "overrides", "risk", "o"), True),
        ("break-glass", "*", Question("create", "accessbindings", "", "b"), False),
        ("metrics-reader", "*", Question("get", "metrics"), True),
        ("metrics-reader", "*", Question("get", "workloads", "risk", "api"), False),
        ("tenant-admin", "risk", Question("create", "workloads", "risk", "api"), True),
        ("tenant-admin", "risk", Question("get", "secrets", "risk", "db"), True),
        ("tenant-admin", "risk", Question("create", "tokens", "risk", "t"), True),
        ("tenant-admin", "risk", Question("create", "tokens", "fairlead-system", "t"), False),
        ("tenant-admin", "risk", Question("update", "quotas", "risk", "default"), False),
        ("tenant-admin", "risk", Question("create", "bindings", "risk", "api-0"), False),
        ("tenant-admin", "risk", Question("list", "workloads"), False),
        ("tenant-admin", "risk", Question("get", "metrics"), False),
        ("tenant-viewer", "risk", Question("get", "workloads", "risk", "api", "why"), True),
        ("tenant-viewer", "risk", Question("get", "secrets", "risk", "db"), False),
        ("tenant-viewer", "risk", Question("list", "tokens", "risk"), False),
        ("tenant-viewer", "risk", Question("update", "workloads", "risk", "api", "scale"), False),
    ],
)
def test_built_in_roles_give_what_they_say(role_name: str, tenants: str, question: Question, allowed: bool) -> None:
    statements = statements_for(person(), [bound(role_name, tenants)], {})
    assert decide(person(), statements, question).allowed is allowed


def test_a_component_s_roles_come_from_its_certificate_alone_and_show_nothing_private() -> None:
    assert not statements_for(component("admin"), [bound("admin", "*", Subject(name="server-0"))], {})
    for role_name in sorted(COMPONENT_ROLES):
        statements = statements_for(component(role_name), [], {})
        for plural in ("secrets", "tokens"):
            allowed = decide(component(role_name), statements, Question("list", plural)).allowed
            assert allowed is (role_name == "mirror"), (role_name, plural)
        assert decide(component(role_name), statements, Question("watch", "nodes")).allowed
        assert not decide(component(role_name), statements, Question("update", "nodes", "", "n")).allowed


# --- giving rights on -----------------------------------------------------------------------------------------------------------


def test_nobody_gives_more_than_they_have() -> None:
    mine = statements_of_role("tenant-admin", BUILT_IN["tenant-admin"], ("risk",))
    assert holds_all(person(), mine, statements_of_role("tenant-viewer", BUILT_IN["tenant-viewer"], ("risk",)))
    for name, tenants in (
        ("tenant-viewer", ("search",)),
        ("tenant-viewer", ("risk", "search")),
        ("auditor", ("*",)),
        ("admin", ("*",)),
    ):
        assert not holds_all(person(), mine, statements_of_role(name, BUILT_IN[name], tenants)), name
    assert not holds_all(person(tenants=("search",)), mine, statements_of_role("v", BUILT_IN["tenant-viewer"], ("risk",)))
    everywhere = statements_of_role("all", role("all", rule("get", "workloads"), scope="Cluster"), ("*",))
    assert not holds_all(person(), mine, everywhere), "the same right, for all tenants"
    named = role("one", rule("get", "workloads", names="api"))
    some = statements_of_role("one", named, ("risk",))
    assert holds_all(person(), mine, some)
    assert not holds_all(person(), some, statements_of_role("all", role("all", rule("get", "workloads")), ("risk",)))
    denied = (*mine, *statements_of_role("no", role("no", rule("get", "secrets", effect="Deny")), ("risk",)))
    assert not holds_all(person(), denied, some)


# --- tokens over time -----------------------------------------------------------------------------------------------------------


def test_a_token_is_good_until_its_expiry_and_not_at_it() -> None:
    token = token_of(expiry_time=NOW + timedelta(hours=1))
    assert why_not_valid(token, NOW) == ""
    assert why_not_valid(token, NOW + timedelta(minutes=59, seconds=59)) == ""
    assert "expired" in why_not_valid(token, NOW + timedelta(hours=1))


def test_a_revoked_or_deleted_token_is_refused_before_its_expiry() -> None:
    token = token_of()
    assert "revoked" in why_not_valid(replace(token, spec=replace(token.spec, revoked=True)), NOW)
    assert "deleted" in why_not_valid(replace(token, metadata=replace(token.metadata, deletion_time=NOW)), NOW)


def test_however_far_off_its_expiry_a_token_ends_by_itself() -> None:
    token = token_of(expiry_time=NOW.replace(year=2099))
    assert ends_at(token) == NOW + timedelta(days=366)
    assert ends_at(replace(token, spec=replace(token.spec, purpose="Join"))) == NOW + timedelta(days=7)
    assert ends_at(token_of(expiry_time=None)) is None
    assert "expired" in why_not_valid(token_of(expiry_time=None), NOW)
