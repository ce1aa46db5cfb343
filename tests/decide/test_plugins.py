"""Plug-ins: found by entry point, taken when they are whole, reported when they are not, and used like the built-in ones."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fairlead.decide.extensions import ALLOW, NO_EXTENSIONS, Extensions
from fairlead.decide.fit import GATES, Need, feasible
from fairlead.decide.plugins import BUILT_IN_GATES, BUILT_INS, SORTS, Sort
from fairlead.decide.policy import CompiledPolicy, built_in_policy, compile_policy
from fairlead.decide.scores import SCORE_MAX, Tier
from fairlead.model.kinds.policy import SchedulerPolicySpec, ScoreWeight
from fairlead.plugins import Loaded, load_plugins

MODULE = """
from fairlead.decide.extensions import ALLOW, Extensions
from fairlead.decide.scores import SCORE_MAX, Tier


class Even:
    name, tier, text = "example.even", Tier.INVARIANT, "nodes with an even number only"

    def check(self, need, row, view):
        return row.number % 2 == 0

    def why(self, need, row, view):
        return f"its number, {row.number}, is odd"


class Late:
    name, tier, text, scope = "example.late", Tier.PREFERENCE, "prefers nodes with a high number", "node"

    def rate(self, need, row, view):
        return SCORE_MAX * row.number // 10


class Anybody:
    def permit(self, placements, view):
        return [ALLOW for _ in placements]


class Gentle:
    name, tier, text, points = "example.gentle", Tier.HINT, "lets everything pass", Extensions(permits=(Anybody(),))


class Sly:
    @property
    def name(self):
        raise KeyError("ask somebody else")


EVEN, LATE, GENTLE, SLY = Even(), Late(), Gentle(), Sly()
"""
ENTRY_POINTS = """
[fairlead.gates]
example.even = fairlead_example:EVEN
example.lost = fairlead_example:NOT_THERE
example.torn = fairlead_torn:GATE
example.left = fairlead_left:GATE
example.sly = fairlead_example:SLY

[fairlead.scores]
example.late = fairlead_example:LATE
example.even = fairlead_example:EVEN

[fairlead.extensions]
example.gentle = fairlead_example:GENTLE
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """What is found when a distribution with these modules and entry points is installed."""
    (tmp_path / "fairlead_example.py").write_text(MODULE)
    (tmp_path / "fairlead_torn.py").write_text("raise RuntimeError('its licence\\n  has run out ' + 'and ' * 1000)\n")
    (tmp_path / "fairlead_left.py").write_text("raise SystemExit('this machine is not for me')\n")
    info = tmp_path / "fairlead_example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fairlead-example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield_modules = ("fairlead_example", "fairlead_torn", "fairlead_left")
    for name in yield_modules:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = load_plugins()
    for name in yield_modules:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return found


def test_an_installed_distribution_adds_its_gates_scores_and_extensions(loaded: Loaded) -> None:
    registry = loaded.registry
    assert set(registry.gates) == {"example.even"}
    assert set(registry.scores) == {*BUILT_INS.scores, "example.late"}
    assert set(registry.extensions) == {"example.gentle"}
    assert registry.gates["example.even"].text == "nodes with an even number only"
    assert set(BUILT_INS.gates) == set(), "the built-in registry is not changed by what is loaded"


def test_a_broken_plug_in_is_reported_and_does_not_keep_the_others_out(loaded: Loaded) -> None:
    assert len(loaded.faults) == 5
    left, lost, sly, torn, wrong = loaded.faults
    todo = "repair or uninstall that package, then start again"
    assert left == (
        "gate plug-in 'example.left': it cannot be loaded: SystemExit: this machine is not for me "
        f"(entry point fairlead_left:GATE of fairlead-example 1.0): {todo}"
    )
    assert lost.startswith("gate plug-in 'example.lost': it cannot be loaded: AttributeError: ")
    assert "ask somebody else" in sly
    assert torn.startswith("gate plug-in 'example.torn': it cannot be loaded: RuntimeError: its licence has run out and")
    assert all(len(line) < 600 and "\n" not in line and line.endswith(todo) for line in loaded.faults)
    assert wrong == (
        "score plug-in 'example.even': a score may rank, never authorise; a hard invariant is a gate "
        f"(entry point fairlead_example:EVEN of fairlead-example 1.0): {todo}"
    )


def test_who_was_taken_and_who_was_left_out_is_said_by_name_and_package(loaded: Loaded) -> None:
    assert [each.name for each in loaded.taken] == ["example.even", "example.late", "example.gentle"]
    assert [each.name for each in loaded.left_out] == [
        "example.left",
        "example.lost",
        "example.sly",
        "example.torn",
        "example.even",
    ]
    assert {each.package for each in (*loaded.taken, *loaded.left_out)} == {"fairlead-example 1.0"}


def test_a_package_that_says_nothing_of_itself_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nameless.dist-info").mkdir()
    (tmp_path / "nameless.dist-info" / "entry_points.txt").write_text("[fairlead.gates]\nexample.x = not_there:X\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    (line,) = load_plugins().faults
    assert "(entry point not_there:X of a package without a name)" in line


def _need(**fields: Any) -> Need:
    values: dict[str, Any] = {"cpu": 1, "memory": 1, "slots": 1, "firm_cpu": 1, "firm_memory": 1, "scalars": (), "devices": ()}
    return Need(**values, max_age_ms=100, **fields)


def _row(number: Any, wide: bool) -> Any:
    ones = np.ones(len(number), np.int64) if wide else 1
    zeros = ones * 0
    named = dict.fromkeys(("cpu_free", "memory_free", "cpu_unlent", "memory_unlent", "slots_free"), ones * 5)
    state = {"schedulable": ones, "healthy": ones, "cordoned": zeros, "observed_ms": ones, "node_class": zeros}
    return SimpleNamespace(number=number, exclusive_to=zeros, used_by=zeros, **named, **state)


def test_a_gate_named_by_the_policy_decides_beside_the_built_in_ones_for_one_node_and_for_all(loaded: Loaded) -> None:
    policy = compile_policy(
        SchedulerPolicySpec(
            revision=1,
            gates=("cpu", "example.even"),
            scores=(ScoreWeight(name="example.late", weight=2),),
            extensions=("example.gentle",),
        ),
        loaded.registry,
    )
    assert isinstance(policy, CompiledPolicy)
    tables: Any = SimpleNamespace(
        allowed=np.array([1]), **dict.fromkeys(("labels", "taints", "zones", "regions", "tenancy"), b"\1")
    )
    need, view = _need(classes=tables, extra=policy.gates), SimpleNamespace(now_ms=0)
    assert feasible(need, _row(np.arange(4), wide=True), view).tolist() == [True, False, True, False]
    assert [bool(feasible(need, _row(n, wide=False), view)) for n in range(4)] == [True, False, True, False]
    rules = policy.rules_of("standard")
    assert rules is not None
    ((score, weight),) = rules.ranked_by(need)
    assert (score.name, weight) == ("example.late", 2)
    assert score.rate(need, _row(np.arange(4), wide=True), view).tolist() == [0, 100, 200, 300]
    ((permit),) = policy.extensions.permits
    nothing: Any = [object(), object()]
    assert permit.permit(nothing, view) == [ALLOW, ALLOW]


def _whole(sort: Sort, **changed: Any) -> Any:
    common = {"name": "example.x", "tier": Tier.INVARIANT if sort == "gates" else Tier.HINT, "text": "words"}
    own: dict[Sort, dict[str, Any]] = {
        "gates": {"check": len, "why": len},
        "scores": {"rate": len, "scope": "node"},
        "extensions": {"points": NO_EXTENSIONS},
    }
    return SimpleNamespace(**{**common, **own[sort], **changed})


@pytest.mark.parametrize("sort", SORTS)
def test_a_plug_in_that_is_whole_is_taken(sort: Sort) -> None:
    plugin = _whole(sort)
    registry, wrong = BUILT_INS.with_plugins([(sort, "example.x", plugin)])
    assert wrong == ()
    assert getattr(registry, sort)["example.x"] is plugin


@pytest.mark.parametrize(
    ("sort", "name", "changed", "says"),
    [
        ("gates", "cpu", {"name": "cpu"}, "its name must be like 'example.rack-power'"),
        ("scores", "packing", {"name": "packing"}, "its name must be like"),
        ("gates", "example.X", {"name": "example.X"}, "its name must be like"),
        ("gates", "example.", {"name": "example."}, "its name must be like"),
        ("gates", "example.y", {}, "it calls itself 'example.x'"),
        ("gates", "example.x", {"tier": "hard"}, "it has no tier"),
        ("gates", "example.x", {"text": " "}, "it has no text"),
        ("gates", "example.x", {"tier": Tier.HINT}, "a gate is a hard invariant, this one is a hint"),
        ("gates", "example.x", {"check": None}, "it has no function check"),
        ("gates", "example.x", {"check": None, "why": None}, "it has no function check and no function why"),
        ("scores", "example.x", {"tier": Tier.INVARIANT}, "may rank, never authorise"),
        ("scores", "example.x", {"rate": 3}, "it has no function rate"),
        ("scores", "example.x", {"scope": "galaxy"}, "its scope must be 'node' or 'domain'"),
        ("extensions", "example.x", {"points": ()}, "its points must be an Extensions record"),
    ],
)
def test_a_plug_in_that_is_not_whole_is_left_out_with_a_reason(sort: Sort, name: str, changed: dict[str, Any], says: str) -> None:
    registry, (line,) = BUILT_INS.with_plugins([(sort, name, _whole(sort, **changed))])
    assert says in line
    assert line.startswith(f"{sort[:-1]} plug-in {name!r}: ")
    assert registry == BUILT_INS


def test_of_two_plug_ins_with_one_name_the_second_is_left_out() -> None:
    first, second = _whole("scores"), _whole("scores")
    registry, wrong = BUILT_INS.with_plugins([("scores", "example.x", first), ("scores", "example.x", second)])
    assert registry.scores["example.x"] is first
    assert wrong == ("score plug-in 'example.x': another plug-in has that name",)


def test_every_built_in_score_has_a_name_a_tier_that_may_rank_and_words() -> None:
    for name, score in BUILT_INS.scores.items():
        assert score.name == name
        assert score.tier in (Tier.PREFERENCE, Tier.HINT), name
        assert score.text.startswith(("prefers", "keeps")), name
        assert score.scope in ("node", "domain"), name
    assert tuple(gate.name for gate in GATES) == BUILT_IN_GATES
    assert all(gate.tier is Tier.INVARIANT for gate in GATES)
    assert SCORE_MAX == 1000


def test_the_built_in_gates_and_scores_fit_the_points_of_extension() -> None:
    rules = built_in_policy().rules_of("standard")
    assert rules is not None
    points = Extensions(filters=GATES, scores=rules.scores)
    assert [point.name for point in points.filters] == list(BUILT_IN_GATES)
    assert [score.name for score, _ in points.scores] == [score.name for score, _ in rules.scores]


def test_extensions_are_asked_in_the_order_they_were_joined_and_nobody_is_asked_by_default() -> None:
    first: Any = SimpleNamespace(name="a")
    second: Any = SimpleNamespace(name="b")
    both = Extensions(filters=(first,)).then(Extensions(filters=(second,), permits=(second,)))
    assert both.filters == (first, second)
    assert both.permits == (second,)
    assert not any(getattr(NO_EXTENSIONS, point) for point in NO_EXTENSIONS.__struct_fields__)
    assert NO_EXTENSIONS.then(both) == both
