"""What somebody may see of a stream of rows: kept for a kind and tenant until a rule changes, asked by name where rules name."""

from __future__ import annotations

from typing import Any

from fairlead.api.authz import Rows
from fairlead.decide.access import Identity, Statement


class Directory:
    """The rules in force, as a test sets them."""

    def __init__(self, *statements: Statement) -> None:
        self.version = 1
        self.asked = 0
        self.why = ""
        self.statements = statements

    def standing(self, who: Identity) -> tuple[str, tuple[Statement, ...]]:
        self.asked += 1
        return self.why, self.statements


class Row:
    position = 1
    raw: bytes | None = b"x"
    hot: Any = None

    def __init__(self, plural: str, tenant: str, name: str) -> None:
        self.plural, self.tenant, self.name = plural, tenant, name


def may(kind: str, tenants: set[str] | None, names: set[str] | None = None, *, deny: bool = False) -> Statement:
    reach = frozenset(tenants) if tenants is not None else None
    return Statement("role", deny, frozenset({"get"}), frozenset({kind}), frozenset(names) if names else None, reach)


def rows(directory: Any) -> Rows:
    return Rows(None, directory, Identity(name="ann", kind="user"), "get")  # type: ignore[arg-type]


def test_a_tenant_is_seen_or_not_and_a_changed_rule_holds_for_the_next_row() -> None:
    directory = Directory(may("workloads", {"risk"}))
    sees = rows(directory)
    for _ in range(2):
        assert sees(Row("workloads", "risk", "api"))
        assert not sees(Row("workloads", "fraud", "api"))
        assert not sees(Row("secrets", "risk", "api"))
    directory.statements, directory.version = (may("workloads", {"fraud"}),), 2
    assert (sees(Row("workloads", "risk", "api")), sees(Row("workloads", "fraud", "api"))) == (False, True)


def test_the_credential_is_looked_at_for_every_row() -> None:
    directory = Directory(may("workloads", None))
    sees = rows(directory)
    assert sees(Row("workloads", "risk", "api"))
    directory.why = "the token was revoked"
    assert not sees(Row("workloads", "risk", "api"))
    assert directory.asked == 2


def test_rules_that_name_objects_are_asked_for_each() -> None:
    sees = rows(Directory(may("workloads", {"risk"}, {"api"})))
    assert [sees(Row("workloads", "risk", name)) for name in ("api", "index", "api")] == [True, False, True]
    sees = rows(Directory(may("workloads", None), may("workloads", None, {"index"}, deny=True)))
    assert [sees(Row("workloads", "risk", name)) for name in ("api", "index", "api")] == [True, False, True]


def test_a_tenant_object_is_in_the_tenant_that_it_is() -> None:
    sees = rows(Directory(may("tenants", {"risk"})))
    assert [sees(Row("tenants", "", name)) for name in ("risk", "fraud", "risk")] == [True, False, True]
