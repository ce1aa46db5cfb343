"""Every promise that a run asks has a planted bug that breaks it, or a test in which its checker speaks."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from fairlead.model import codec
from fairlead.model.commands import Caller, Command, ReleaseReservation
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.observe.agreement import differences
from fairlead.observe.checkers import JournalChecker
from fairlead.observe.intervals import Claimed, Interval, overtook
from fairlead.sim.mutants import MUTANTS
from fairlead.sim.scenario import Scenario, Sieve
from fairlead.sim.sieve import MISSED_S, faults_of
from fairlead.sim.world import Verdict

ASKED: Final = {f"S{number}" for number in range(1, 21)} | {f"L{number}" for number in range(1, 8)} | {"L12"}
BY_TEST: Final = {
    "L3": "test_a_change_that_was_missed_too_long_is_found",
    "L12": "tests.observe.test_explained.test_it_is_found_after_its_bound_and_not_before",
    "S14": "tests.sim.test_checkers.test_what_was_sent_after_an_answer_and_stands_before_it_is_found",
    "S16": "test_a_write_under_a_lease_of_lost_history_is_found",
}


def test_every_promise_is_shown_to_be_asked() -> None:
    planted = {name for mutant in MUTANTS.values() for name in mutant.invariants}
    assert ASKED - planted == set(BY_TEST)
    for named in BY_TEST.values():
        module, _, name = named.rpartition(".")
        assert callable(getattr(import_module(module or __name__), name)), named


def test_a_change_that_was_missed_too_long_is_found() -> None:
    def after(missed_s: float, pattern: str = "missed") -> list[str]:
        counts = {"sieve_struck_ms": 1000, "sieve_made_good_ms": 1000 + round(missed_s * 1000)}
        verdict = Verdict(1, "sieve", [], [], 1, 100.0, "t", 1, counts, {}, {}, None)
        return faults_of(verdict, Scenario(1, "sieve", 1, 1, 3, sieve=Sieve("node", pattern, 0)))

    (said,) = after(MISSED_S + 1)
    assert said.startswith("L3")
    assert after(MISSED_S) == []
    assert after(MISSED_S + 1, "crash") == []


def test_a_write_under_a_lease_of_lost_history_is_found() -> None:
    lease = Lease(Metadata(name="scheduler-0"), LeaseSpec(role="scheduler", holder="s", epoch=3, incarnation=1))
    caller = Caller("s", Role.SCHEDULER, lease="scheduler-0", fencing_epoch=3)
    release = Command(caller, ReleaseReservation("risk", "api-0", Token(1, 1, 1)))

    def found(incarnation: int) -> list[str]:
        checker = JournalChecker()
        checker.begin([("leases//scheduler-0", 1, codec.encode(lease))], 0)
        checker._fencing(release, incarnation)
        return [violation.invariant for violation in checker.violations]

    assert found(2) == ["S16"]
    assert found(1) == []


def test_what_runs_and_nobody_wants_is_found() -> None:
    run = Interval("risk", "api-0", Token(1, 1, 1), "us-east/us-east-n0", 0.0)
    objects: dict[str, dict[tuple[str, str], Any]] = {}
    assert "is not bound there" in differences(objects, {"us-east": objects}, [run])[0].detail
    assert differences(objects, {"us-east": objects}, []) == []


def test_a_claimer_that_begins_before_its_victim_is_gone_is_found() -> None:
    old, new = Token(1, 1, 1), Token(1, 2, 1)
    claim = Claimed("risk/api-0", new, "n0", (("search/mail-1", old),))

    def runs(victim_end: float | None, begin: float, where: str = "us-east/n0") -> list[Interval]:
        victim = Interval("search", "mail-1", old, "us-east/n0", 0.0, victim_end)
        return [victim, Interval("risk", "api-0", new, where, begin)]

    assert overtook(runs(10.0, 9.0), [claim])
    assert overtook(runs(None, 9.0), [claim])
    assert not overtook(runs(10.0, 10.0), [claim])
    assert not overtook(runs(10.0, 9.0, "us-east/n1"), [claim]), "elsewhere it takes nobody's room"
    again = Interval("search", "mail-1", new, "us-east/n0", 8.0)
    assert not overtook([*runs(7.0, 9.0), again], [claim]), "its next life is nobody's victim"
