"""The design document: it has every part, and the boundary map knows everything that exists."""

from __future__ import annotations

from fairlead.cli.reference import FOLDER, page, table
from fairlead.cli.reference_design import DESIGN
from fairlead.decide.boundaries import CHOICES, KEPT, SCARCE, Means, tier_of
from fairlead.decide.fit import GATES
from fairlead.decide.plugins import BUILT_INS
from fairlead.decide.tiers import Tier
from fairlead.model.controllers import CONTROLLERS
from fairlead.observe.readiness import CLAIMS, RISKS

DESIGN_FOLDER = FOLDER.parent / "design"
PAGES = sorted(DESIGN_FOLDER.glob("*.md"))
PATTERNS = ("partitioned", "hierarchical", "two-level", "optimistic shared state", "probing", "local first", "merging state")
PARTS = (
    "architecture diagram", "object model", "scheduling algorithm", "coordination boundary map", "recovery budget model",
    "failure scenario matrix", "observability plan", "test and replay plan", "runbook and override model", "readiness review",
    "refuses to promise", "patterns compared",
)  # fmt: skip


def test_every_part_is_listed_and_every_page_is_reached() -> None:
    index = (DESIGN_FOLDER / "README.md").read_text()
    assert [part for part in PARTS if part not in index] == []
    assert [file.name for file in PAGES if file.name != "README.md" and f"({file.name})" not in index] == []


def test_pages_that_mirror_code_are_up_to_date() -> None:
    stale = [name for name, make in DESIGN.items() if (DESIGN_FOLDER / name).read_text() != make(page, table)]
    assert stale == [], "run `make docs`"


def test_pages_are_short_enough_to_be_read() -> None:
    long = [file.name for file in PAGES if file.name not in DESIGN and len(file.read_text().split()) > 900]
    assert long == []


# --- the boundary map --------------------------------------------------------------------------------------------------------


def test_every_safety_promise_is_kept_somewhere_and_all_means_are_used() -> None:
    assert [kept.invariant for kept in KEPT] == [f"S{number}" for number in range(1, 21)]
    assert {kept.means for kept in KEPT} | {choice.means for choice in CHOICES} == set(Means)


def test_every_gate_score_and_controller_is_on_the_map_with_its_tier() -> None:
    text = (DESIGN_FOLDER / "boundaries.md").read_text()
    missing = [gate.name for gate in GATES if f"| `{gate.name}` | gate | {gate.tier.value} |" not in text]
    missing += [name for name, score in BUILT_INS.scores.items() if f"| `{name}` | score | {score.tier.value} |" not in text]
    missing += [c.name for c in CONTROLLERS.values() if f"| `{c.name}` | {c.plane} | {tier_of(c).value} |" not in text]
    assert missing == []


def test_a_gate_is_an_invariant_and_a_score_is_none() -> None:
    assert {gate.tier for gate in GATES} == {Tier.INVARIANT}
    assert Tier.INVARIANT not in {score.tier for score in BUILT_INS.scores.values()}


def test_a_controller_s_tier_follows_from_what_it_writes() -> None:
    any_one = CONTROLLERS["repair"]
    assert tier_of(any_one) is Tier.INVARIANT
    assert tier_of(any_one._replace(writes=("Quota.status", "Event.spec"))) is Tier.HINT
    assert tier_of(any_one._replace(writes=("Quota.status", "Override.spec"))) is Tier.PREFERENCE
    written = {part for controller in CONTROLLERS.values() for part in controller.writes}
    assert written >= SCARCE, "what nobody writes is not scarce"


# --- what is compared and asked for ------------------------------------------------------------------------------------------


def test_the_record_about_patterns_has_all_seven_with_what_was_measured() -> None:
    text = (FOLDER.parent / "adr" / "0029-architecture-patterns.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    table = {row[0]: row for row in rows}
    for pattern in PATTERNS:
        (row,) = [cells for name, cells in table.items() if name.startswith(pattern)]
        assert len(row) == 4
        assert all(row), f"{pattern}: a cell is empty"


def test_the_readiness_page_has_every_claim_and_risk() -> None:
    text = (DESIGN_FOLDER / "readiness.md").read_text()
    assert [claim.id for claim in CLAIMS if f"| {claim.id} | {claim.text} |" not in text] == []
    assert [risk.id for risk in RISKS if f"| {risk.id} |" not in text] == []
