"""The checkers beside the journal's: each finds what it is for, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.model import codec
from fairlead.model.commands import Accepted, Caller, Command, Delete, IdempotencyKey
from fairlead.model.ids import revision
from fairlead.model.journal import Blob, Entry, Header
from fairlead.model.kinds.intent import Workload, WorkloadSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL, KINDS
from fairlead.observe.answers import AnswerChecker
from fairlead.observe.feeds import FeedChecker
from fairlead.observe.intervals import Interval, overlaps, ran_again, went_back
from fairlead.observe.promised import PromiseChecker
from fairlead.sim.follower import begins_at
from fairlead.wire.json_codec import plain_object


class Told(msgspec.Struct):
    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None


def blob(*effects: tuple[str, bytes | None], id: str = "") -> Blob:
    command = Command(Caller("ada", Role.USER), Delete("Workload", "risk", "api"), IdempotencyKey(id) if id else None)
    entry = Entry(msgspec.Raw(msgspec.msgpack.encode(command)), tuple(effects))
    return Blob(Header(1, 1, 1, "me", 1, 0), (entry,))


def run(where: str, begin: float, end: float | None, epoch: int = 1, exclusive: Any = "region") -> Interval:
    return Interval("risk", "api-0", Token(1, epoch, 1), where, begin, end, exclusive)


# --- S12 and S9 at agents --------------------------------------------------------------------------------------------------


def test_two_runs_at_once_are_found_wherever_they_ran() -> None:
    assert overlaps([run("a", 0, 10), run("b", 9, 20, 2)])
    assert overlaps([run("a", 0, None), run("b", 9, 20, 2)]), "one that never ended overlaps everything after it"
    assert overlaps([run("a", 0, 30), run("b", 1, 2, 2), run("c", 25, 40, 3)]), "a short one in between hides nothing"
    assert not overlaps([run("a", 0, 10), run("b", 10, 20, 2)])
    assert not overlaps([run("a", 0, 10, exclusive=""), run("b", 5, 20, 2, exclusive="")]), "replicated work may overlap"


def test_only_runs_that_came_after_another_of_their_chain_count_as_asked() -> None:
    home = run("a", 0, 10)
    stands_in = msgspec.structs.replace(run("b", 10, 20), name="other-0", supersedes=f"a/{home.name}@1")
    assert ran_again([home]) == 0
    assert ran_again([home, run("b", 10, 20, 2), run("c", 20, None, 3)]) == 2
    assert ran_again([home, stands_in]) == 1
    assert ran_again([home, msgspec.structs.replace(run("b", 10, 20), name="other-0")]) == 0
    assert ran_again([run("a", 0, 10, exclusive=""), run("b", 10, 20, 2, exclusive="")]) == 0


def test_what_stands_in_must_not_run_beside_any_link_of_its_chain() -> None:
    def link(name: str, begin: float, end: float | None, supersedes: str = "", uid: str = "u") -> Interval:
        return Interval("risk", name, Token(1, 1, 1), "n", begin, end, "global", uid, supersedes)

    home, first = link("api-0", 0, 10), "east/api-0@2"
    second = f"west/api-35000@5 {first}"
    assert overlaps([home, link("api-35000", 9, 20, first)])
    assert overlaps([home, link("api-55000", 9, 20, second)]), "also not two links apart"
    assert overlaps([link("api-35000", 0, 10, first), link("api-55000", 9, 20, second)])
    assert overlaps([link("api-35000", 0, 10, first), link("api-0", 9, 20)]), "home comes back when it is gone"
    assert not overlaps([home, link("api-35000", 10, 20, first), link("api-55000", 20, 30, second), link("api-0", 30, None)])
    assert not overlaps([home, link("api-35000", 5, 20, "east/api-1@2")]), "it stands in for another one"
    assert overlaps([link("api-35000", 0, 10, first), link("api-35000", 9, 20, "east/api-1@2")]), "nor itself beside itself"
    assert not overlaps([home, link("api-35000", 5, 20, first, "v")]), "of another workload of the same name"


def test_a_token_that_goes_back_on_one_machine_is_found() -> None:
    assert went_back([run("a", 0, 1, 2), run("a", 2, 3, 1)])
    assert not went_back([run("a", 0, 1, 2), run("b", 2, 3, 1)])


# --- S13 and S14 -----------------------------------------------------------------------------------------------------------


def asked(work: Any) -> list[str]:
    found: list[str] = []
    checker = AnswerChecker(lambda invariant, detail: found.append(invariant))
    work(checker)
    checker.finish()
    return found


def test_what_was_acknowledged_and_is_not_there_is_found() -> None:
    assert asked(lambda c: c.accepted(c.send("x"), "workloads/risk/api", 1, changes=True)) == ["S13", "S13"]


def test_what_was_acknowledged_and_is_there_twice_is_found() -> None:
    def work(checker: AnswerChecker) -> None:
        sent = checker.send("x")
        checker.committed(blob(("workloads/risk/api", b"1"), id="x"), 1)
        checker.committed(blob(("workloads/risk/api", b"2"), id="x"), 2)
        checker.accepted(sent, "workloads/risk/api", 1, changes=True)

    assert asked(work) == ["S13"]


def test_what_a_receipt_calls_done_and_is_there_twice_is_found() -> None:
    def work(checker: AnswerChecker, times: int) -> None:
        checker.done(checker.send("x"))
        for at in range(1, times + 1):
            checker.committed(blob(("workloads/risk/api", b"1"), id="x"), at)

    assert asked(lambda c: work(c, 2)) == ["S13"]
    assert asked(lambda c: work(c, 1)) == asked(lambda c: work(c, 0)) == [], "perhaps nothing had to be changed"


def test_what_was_said_to_be_deleted_is_gone_by_that_very_request() -> None:
    """An answer that says so shows no object, and no place."""
    there = Workload(Metadata(name="api", namespace="risk"), WorkloadSpec())
    marked = replace(there, metadata=replace(there.metadata, deletion_time=datetime(2026, 1, 1, tzinfo=UTC)))

    def work(*raws: bytes | None, key: str = "workloads/risk/api") -> Callable[[AnswerChecker], None]:
        def told(checker: AnswerChecker) -> None:
            sent = checker.send("x")
            for at, raw in enumerate(raws, 1):
                checker.committed(blob((key, raw), id="x"), at)
            checker.gone(sent, "workloads/risk/api")

        return told

    assert asked(work(None)) == []
    assert asked(work(codec.encode(marked))) == [], "it goes when nothing holds it any more"
    assert asked(work()) == ["S13"], "nobody did it"
    assert asked(work(None, None)) == ["S13"], "twice"
    assert asked(work(codec.encode(there))) == ["S13"]
    assert asked(work(None, key="workloads/risk/index")) == ["S13"]


def test_what_somebody_else_had_marked_to_go_before_goes_after_it_was_asked_once_more() -> None:
    there = Workload(Metadata(name="api", namespace="risk", deletion_time=datetime(2026, 1, 1, tzinfo=UTC)), WorkloadSpec())

    def work(checker: AnswerChecker, *, gone_before: bool, goes: bool) -> None:
        checker.committed(blob(("workloads/risk/api", None if gone_before else codec.encode(there)), id="other"), 1)
        checker.accepted(checker.send("late"), "workloads/risk/api", 1, changes=False)  # somebody is told of that
        sent = checker.send("x")
        if goes:
            checker.committed(blob(("workloads/risk/api", None), id="another"), 2)
        checker.gone(sent, "workloads/risk/api")

    assert asked(lambda c: work(c, gone_before=False, goes=True)) == []
    assert asked(lambda c: work(c, gone_before=False, goes=False)) == ["S13"], "it is there still"
    assert asked(lambda c: work(c, gone_before=True, goes=False)) == ["S13"], "it was gone before that was asked"


def test_what_was_made_and_is_gone_again_was_made() -> None:
    def work(checker: AnswerChecker, times: int) -> None:
        checker.done(checker.send("x"), changes=True)
        for at in range(1, times + 1):
            checker.committed(blob(("workloads/risk/api", b"1"), id="x"), at)

    assert asked(lambda c: work(c, 0)) == asked(lambda c: work(c, 2)) == ["S13"]
    assert asked(lambda c: work(c, 1)) == []


def test_of_what_a_store_forgot_while_it_was_under_way_nobody_is_held_to_an_answer_without_a_place() -> None:
    def work(checker: AnswerChecker, *, late: bool) -> None:
        checker.committed(blob(("workloads/risk/a", b"1"), id="a"), 1)
        before = checker.send("x")
        checker.committed(blob(("workloads/risk/api", None), id="x"), 2)
        checker.lost(GLOBAL, 1, 1)
        checker.gone(before if late else checker.send("y"), "workloads/risk/api")

    assert asked(lambda c: work(c, late=True)) == []
    assert asked(lambda c: work(c, late=False)) == ["S13"]


def test_what_was_refused_and_is_there_is_found() -> None:
    def work(checker: AnswerChecker) -> None:
        checker.refused(checker.send("x"))
        checker.committed(blob(("workloads/risk/api", b"1"), id="x"), 1)

    assert asked(work) == ["S13"]


def test_what_was_refused_by_one_leader_and_done_by_the_next_is_no_violation() -> None:
    def work(checker: AnswerChecker) -> None:
        sent = checker.send("x")
        checker.refused(sent)
        checker.forget(sent)
        checker.committed(blob(("workloads/risk/api", b"1"), id="x"), 1)

    assert asked(work) == []


def test_what_was_sent_after_an_answer_and_stands_before_it_is_found() -> None:
    def work(checker: AnswerChecker) -> None:
        checker.committed(blob(("workloads/risk/b", b"1"), id="b"), 1)
        checker.committed(blob(("workloads/risk/a", b"1"), id="a"), 2)
        checker.accepted(checker.send("a"), "workloads/risk/a", 2, changes=True)
        checker.accepted(checker.send("b"), "workloads/risk/b", 1, changes=True)

    assert asked(work) == ["S14"]


def test_a_change_that_found_everything_as_it_wanted_it_is_no_violation() -> None:
    def work(checker: AnswerChecker) -> None:
        checker.committed(blob(("workloads/risk/a", b"1")), 1)
        checker.accepted(checker.send("a"), "workloads/risk/a", 1, changes=False)

    assert asked(work) == []


def test_a_change_that_was_acknowledged_and_is_not_what_stands_there_is_found() -> None:
    """Somebody else's change has the position that it was acknowledged at, and it is nowhere itself."""

    def work(replicas: int) -> Callable[[AnswerChecker], None]:
        def told(checker: AnswerChecker) -> None:
            there = Workload(Metadata(name="api", namespace="risk"), WorkloadSpec(replicas=3))
            answer = plain_object(KINDS["workloads"], replace(there, spec=WorkloadSpec(replicas=replicas)))
            checker.committed(blob(("workloads/risk/api", codec.encode(there)), id="y"), 1)
            checker.accepted(checker.send("x"), "workloads/risk/api", 1, changes=False, told=answer)

        return told

    assert asked(work(replicas=5)) == ["S13"]
    assert asked(work(replicas=3)) == [], "it found everything as it wanted it"


def test_a_key_is_done_once_in_all_planes_and_refused_in_all_of_them() -> None:
    def work(told: str) -> Callable[[AnswerChecker], None]:
        def write(checker: AnswerChecker) -> None:
            sent = checker.send("x")
            checker.committed(blob(("nodes//n0", b"1"), id="x"), 7, "us-east")
            if told == "refused":
                checker.refused(sent)
                return
            checker.committed(blob(("workloads/risk/a", b"1"), id="x" if told == "twice" else "y"), 1)
            checker.accepted(sent, "nodes//n0", 7, changes=False, plane="us-east")

        return write

    assert asked(work("once")) == []
    assert asked(work("twice")) == ["S13"]
    assert asked(work("refused")) == ["S13"]


def test_positions_of_two_planes_are_not_compared() -> None:
    def work(checker: AnswerChecker) -> None:
        checker.committed(blob(("workloads/risk/a", b"1"), id="a"), 9)
        checker.accepted(checker.send("a"), "workloads/risk/a", 9, changes=True)
        checker.committed(blob(("nodes//n0", b"1"), id="b"), 2, "us-east")
        checker.accepted(checker.send("b"), "nodes//n0", 2, changes=False, plane="us-east")

    assert asked(work) == []


def test_what_was_told_before_a_store_lost_its_tail_binds_nobody_and_what_was_told_since_does() -> None:
    def work(at: int, *, again: bool) -> Callable[[AnswerChecker], None]:
        def told(checker: AnswerChecker) -> None:
            late = checker.send("late")
            checker.committed(blob(("workloads/risk/a", b"1"), id="a"), 1)
            checker.committed(blob(("workloads/risk/b", b"1"), id="b"), 2)
            checker.accepted(checker.send("b"), "workloads/risk/b", revision(1, 2), changes=True)
            checker.lost(GLOBAL, 1, 1)
            checker.accepted(late, "workloads/risk/c", revision(1, 3), changes=True)  # by whoever led before
            fresh = checker.send("b")
            if again:
                checker.committed(blob(("workloads/risk/b", b"1"), id="b"), 2)
            checker.accepted(fresh, "workloads/risk/b", revision(2, at), changes=True)

        return told

    assert asked(work(2, again=True)) == []
    assert asked(work(2, again=False)) == ["S13", "S13"], "it is not at its place, and nowhere"
    assert asked(work(1, again=True)) == ["S13"]


def test_what_was_wrong_before_a_loss_is_found_though_it_is_gone() -> None:
    def work(checker: AnswerChecker) -> None:
        checker.committed(blob(("workloads/risk/a", b"1"), id="a"), 1)
        checker.committed(blob(("workloads/risk/a", b"2"), id="a"), 2)
        checker.accepted(checker.send("a"), "workloads/risk/a", 2, changes=True)
        checker.lost(GLOBAL, 1, 1)

    assert asked(work) == ["S13"]


def test_what_a_component_is_told_after_a_loss_is_asked_again() -> None:
    def found(told_at: int) -> list[str]:
        out: list[str] = []
        checker = PromiseChecker(lambda invariant, detail: out.append(detail))
        command = Command(Caller("ada", Role.USER), Delete("Workload", "risk", "api"))
        checker.committed(blob(("workloads/risk/a", b"1")), 1)
        checker.told(command, Accepted(revision(1, 1)))
        checker.lost(1, 0)
        checker.told(command, Accepted(revision(1, 5)))
        checker.told(command, Accepted(revision(2, told_at)))
        checker.committed(blob(("leases//x", b"1"), ("workloads/risk/a", b"1")), 1)
        checker.finish()
        return out

    assert found(2) == []
    assert len(found(1)) == 1, "what stood there before the loss does not stand there any more"


# --- S15 -------------------------------------------------------------------------------------------------------------------


def followed(*told: Told, upto: int = 2) -> list[str]:
    found: list[str] = []
    checker = FeedChecker(("workloads",), lambda invariant, detail: found.append(detail))
    checker.committed(blob(("workloads/risk/a", b"1"), ("leases//x", b"9"), ("workloads/risk/b", None)), 1)
    checker.told(0, told, upto)
    return found


def test_a_feed_that_tells_all_of_it_in_order_is_right() -> None:
    assert not followed(Told("workloads", "risk", "a", 1, b"1"), Told("workloads", "risk", "b", 3, None), upto=3)


def test_a_feed_that_leaves_something_out_is_found() -> None:
    assert "did not tell" in followed(Told("workloads", "risk", "a", 1, b"1"), upto=3)[0]
    assert not followed(Told("workloads", "risk", "a", 1, b"1"), upto=2), "it does not say that it has come so far"


def test_a_feed_that_tells_out_of_order_twice_or_otherwise_is_found() -> None:
    one, other = Told("workloads", "risk", "a", 1, b"1"), Told("workloads", "risk", "b", 3, None)
    assert "was told after" in followed(other, one, upto=3)[0]
    assert "was told after" in followed(one, one, upto=2)[0]
    assert "otherwise" in followed(Told("workloads", "risk", "a", 1, b"2"), upto=2)[0]


def test_a_feed_that_goes_back_is_found_and_a_follower_that_is_sent_back() -> None:
    assert followed(upto=0) == []
    found: list[str] = []
    checker = FeedChecker(("workloads",), lambda invariant, detail: found.append(detail))
    checker.told(5, [], 4)
    assert found == ["a feed went back from 5 to 4"]
    checker.begins(revision(1, 9))
    checker.begins(revision(1, 9))
    checker.begins(revision(2, 3))
    assert len(found) == 1, "a later incarnation is further on, wherever it begins"
    checker.begins(revision(1, 12))
    assert len(found) == 2, "another server knew less than this client had been told"


def test_a_server_that_is_behind_what_a_feed_of_another_one_told_is_found() -> None:
    found: list[str] = []
    checker = FeedChecker(("workloads",), lambda invariant, detail: found.append(detail))
    checker.begins(revision(1, 2))
    checker.told(revision(1, 2), [], revision(1, 7))
    checker.begins(revision(1, 7))
    assert found == []
    checker.begins(revision(1, 6))
    assert found == [f"a follower that had come to {revision(1, 7)} was sent back to {revision(1, 6)}"]


def test_a_feed_is_asked_again_after_a_loss_but_for_what_is_gone() -> None:
    found: list[str] = []
    checker = FeedChecker(("workloads",), lambda invariant, detail: found.append(detail))
    checker.committed(blob(("workloads/risk/a", b"1"), ("workloads/risk/b", b"1")), 1)
    checker.begins(revision(1, 2))
    checker.lost(1, 1)
    checker.told(revision(1, 1), [Told("workloads", "risk", "b", 2, b"1")], revision(1, 2))
    checker.begins(revision(1, 2))
    checker.begins(revision(2, 1))
    assert found == [], "it may be gone, and whoever tells it may not know"
    checker.committed(blob(("workloads/risk/c", b"1")), 2)
    checker.told(revision(2, 1), [Told("workloads", "risk", "b", 2, b"1")], revision(2, 2))
    assert len(found) == 1
    assert "otherwise" in found[0]


def test_a_follower_goes_on_where_it_was_within_one_history() -> None:
    assert begins_at(revision(1, 4), revision(1, 9)) == revision(1, 4)
    assert begins_at(revision(1, 4), revision(2, 9)) == revision(2, 9)
    assert begins_at(0, revision(1, 9)) == revision(1, 9)
