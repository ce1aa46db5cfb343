"""What is done about a finding: written down first, mended a few at a time, held back by an override, escalated when late."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.repairs import FIXES_MAX, KEPT_MS, NEW_MAX, OPEN_MAX, Finding, Steps, steps
from fairlead.decide.slots import instant
from fairlead.model.commands import Delete, Put, PutStatus
from fairlead.model.kinds.ledger import Event
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.repair import Repair
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata

NOW = 1_000_000
FIX = Delete("Instance", "risk", "api-0")


def finding(name: str = "api-0", **fields: object) -> Finding:
    found = Finding("OrphanedInstance", f"instances/risk/{name}", "", Role.REPAIR, 90.0, "it has no binding", FIX, workload="api")
    return found._replace(**fields)  # type: ignore[arg-type]


class Book:
    """The Repairs as the authority would keep them."""

    def __init__(self) -> None:
        self.repairs: dict[str, Repair] = {}
        self.events: list[Event] = []

    def look(self, *findings: Finding, at_ms: int, overrides: tuple[Override, ...] = ()) -> Steps:
        found = steps(findings, self.repairs, overrides, "us-east", at_ms)
        for body in found.bodies:
            if isinstance(body, Put) and isinstance(body.object, Repair):
                new, old = body.object, self.repairs.get(body.object.metadata.name)
                generation = old.metadata.generation + 1 if old is not None else 1
                status = old.status if old is not None else new.status
                self.repairs[new.metadata.name] = replace(
                    new, metadata=replace(new.metadata, generation=generation), status=status
                )
            elif isinstance(body, Put) and isinstance(body.object, Event):
                self.events.append(body.object)
            elif isinstance(body, PutStatus):
                assert body.status.observed_generation == self.repairs[body.name].metadata.generation
                self.repairs[body.name] = replace(self.repairs[body.name], status=body.status)
            elif isinstance(body, Delete) and body.kind == "Repair":
                del self.repairs[body.name]
        return found

    def said(self) -> dict[str, tuple[str, str]]:
        (repair,) = self.repairs.values()
        return {c.type: (c.status, c.reason) for c in repair.status.conditions}


def fixes(found: Steps) -> int:
    return sum(body == FIX for body in found.bodies)


def asked_for_approval(**fields: object) -> Override:
    spec = OverrideSpec(kind="repair-approval", reason="incident 7", ttl_seconds=600, requester="ada",
                        scope=OverrideScope(workloads=("api",)), **fields)  # type: ignore[arg-type]  # fmt: skip
    return Override(metadata=Metadata(name="wait", namespace="risk", creation_time=instant(NOW)), spec=spec)


def test_a_finding_is_written_down_with_owner_deadline_and_evidence_before_anything_is_done() -> None:
    book = Book()
    first = book.look(finding(), at_ms=NOW)
    assert fixes(first) == 0
    (repair,) = book.repairs.values()
    assert (repair.spec.owner, repair.spec.evidence) == ("repair-controller", "it has no binding")
    assert repair.spec.deadline_time == instant(NOW + 90_000)
    second = book.look(finding(), at_ms=NOW + 10_000)
    assert fixes(second) == 1
    assert book.said() == {"Mended": ("False", "Trying"), "Overdue": ("False", "InTime")}


def test_an_attempt_that_did_not_help_is_made_again_later_each_time() -> None:
    book = Book()
    book.look(finding(), at_ms=NOW)
    tried = [at for at in range(200) if fixes(book.look(finding(), at_ms=NOW + 1_000 * at))]
    assert tried == [0, 20, 60, 140]


def test_what_is_not_found_any_more_is_mended_kept_for_an_hour_and_then_removed() -> None:
    book = Book()
    book.look(finding(), at_ms=NOW)
    book.look(finding(), at_ms=NOW + 10_000)
    book.look(at_ms=NOW + 20_000)
    assert book.said() == {"Mended": ("True", "Mended"), "Overdue": ("False", "Mended")}
    assert book.look(at_ms=NOW + 20_000 + KEPT_MS - 1).bodies == [], "nothing is said twice"
    book.look(at_ms=NOW + 20_000 + KEPT_MS)
    assert not book.repairs


def test_what_comes_back_begins_anew() -> None:
    book = Book()
    book.look(finding(), at_ms=NOW)
    book.look(at_ms=NOW + 10_000)
    assert book.said()["Mended"] == ("True", "Gone")
    late = NOW + 500_000
    assert fixes(book.look(finding(), at_ms=late)) == 0
    (repair,) = book.repairs.values()
    assert repair.spec.deadline_time == instant(late + 90_000)
    assert fixes(book.look(finding(), at_ms=late + 10_000)) == 1
    assert book.said()["Overdue"] == ("False", "InTime")


def test_what_is_overdue_is_escalated_once_also_where_repair_can_do_nothing() -> None:
    book = Book()
    helpless = finding(fix=None, owner=Role.QUOTA, problem="OverQuota")
    book.look(helpless, at_ms=NOW)
    book.look(helpless, at_ms=NOW + 89_999)
    assert book.said() == {"Mended": ("False", "OwnerMustAct"), "Overdue": ("False", "InTime")}
    assert not book.events
    for at_ms in (90_000, 100_000, 110_000):
        book.look(helpless, at_ms=NOW + at_ms)
    assert book.said()["Overdue"] == ("True", "Escalated")
    (event,) = book.events
    assert (event.spec.reason, event.spec.type) == ("RepairOverdue", "Warning")
    assert book.look(helpless, at_ms=NOW + 120_000).bodies == [], "no news, no write"


def test_an_override_that_asks_for_approval_holds_repair_back_until_it_is_approved_or_ends_and_deadlines_run_on() -> None:
    book = Book()
    book.look(finding(), at_ms=NOW)
    asked = asked_for_approval()
    assert fixes(book.look(finding(), at_ms=NOW + 10_000, overrides=(asked,))) == 0
    assert book.said()["Mended"] == ("False", "AwaitingApproval")
    book.look(finding(), at_ms=NOW + 95_000, overrides=(asked,))
    assert book.said()["Overdue"] == ("True", "Escalated")
    other = finding("db-0", workload="db")
    book.look(finding(), other, at_ms=NOW + 96_000, overrides=(asked,))
    held = book.look(finding(), other, at_ms=NOW + 97_000, overrides=(asked,))
    assert fixes(held) == 1, "it names one workload"
    approved = asked_for_approval(approver="bob")
    assert fixes(book.look(finding(), at_ms=NOW + 98_000, overrides=(approved,))) == 1
    again = Book()
    again.look(finding(), at_ms=NOW)
    assert fixes(again.look(finding(), at_ms=NOW + 600_000, overrides=(asked,))) == 1, "it has ended"


def test_a_flood_is_written_down_and_mended_a_few_at_a_time() -> None:
    book = Book()
    many = [finding(f"api-{n}") for n in range(300)]
    counts = []
    for round_ in range(15):
        found = book.look(*many, at_ms=NOW + 10_000 * round_)
        counts.append(fixes(found))
        assert len(book.repairs) <= min(OPEN_MAX, NEW_MAX * (round_ + 1))
    assert len(book.repairs) == OPEN_MAX
    assert max(counts) == FIXES_MAX
    assert book.look(*many, at_ms=NOW + 200_000).untold == 100


def test_what_people_are_to_see_to_takes_no_room_from_what_can_be_mended() -> None:
    book = Book()
    theirs = [finding(f"other-{n}", fix=None, problem="OverQuota") for n in range(OPEN_MAX + 50)]
    for round_ in range(15):
        book.look(*theirs, at_ms=NOW + 10_000 * round_)
    assert len(book.repairs) == OPEN_MAX, "and they stay for days"
    ours = finding("zz-last")
    book.look(*theirs, ours, at_ms=NOW + 200_000)
    assert fixes(book.look(*theirs, ours, at_ms=NOW + 210_000)) == 1


def test_a_drifted_ledger_is_built_anew_only_after_its_evidence_is_written_down() -> None:
    book = Book()
    drift = finding(fix=None, rebuild=True, problem="DriftedLedger", regarding="nodes//n1", evidence="cpu_free is 1", workload="")
    assert not book.look(drift, at_ms=NOW).rebuild
    assert book.look(drift, at_ms=NOW + 10_000).rebuild == "cpu_free is 1"
    assert not book.look(drift, at_ms=NOW + 11_000).rebuild


def test_a_finding_has_one_name_and_two_have_two() -> None:
    assert finding().name == finding(evidence="other words").name
    assert finding().name != finding(uid="another life").name
    assert finding().name != finding("api-1").name
