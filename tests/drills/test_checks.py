"""What drills hold for proved: each of these checks fails where the thing itself did not happen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.rest_errors import OutcomeUnknown
from fairlead.drills.census import Look
from fairlead.drills.commits import CommitTimeout
from fairlead.drills.contract import RISK
from fairlead.drills.losses import AFTER_S, check_withdrawn, named_dead_s, share_of_dead
from fairlead.drills.policies import PolicyRollback
from fairlead.drills.restarts import astray, made_before
from fairlead.drills.scene import Scene
from fairlead.ports import Clock, SystemClock


class Doubtful:
    """A client whose first answer is lost; the next one has this uid."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.asked = 0

    async def read(self, path: str) -> None:
        return None

    async def create(self, *_: Any) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise OutcomeUnknown("key", "the create", "lost")
        return SimpleNamespace(object={"metadata": {"uid": self.uid} if self.uid else {}})


class Asked:
    def __init__(self, uid: str, replays: float) -> None:
        self.plane, self.replays, self.looks = Doubtful(uid), replays, 0

    async def client(self, *_: Any, **__: Any) -> Doubtful:
        return self.plane

    async def get(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"uid": "u-1"}}

    async def metric(self, name: str, plane: str) -> float:
        self.looks += 1
        return 5.0 + (self.replays if self.looks > 1 else 0.0)


class Links:
    async def cut(self, *_: Any, **__: Any) -> None:
        return None

    async def heal(self, *_: Any) -> None:
        return None

    async def stop_store(self, plane: str) -> None:
        return None


def stage(asking: Any = None, clock: Clock | None = None) -> Scene:
    nothing: Any = None
    chaos: Any = Links()
    return Scene(nothing, nothing, chaos, asking, nothing, clock or SystemClock(), lambda text: None, "")


@pytest.mark.parametrize(
    ("uid", "replays", "passed"), [("u-1", 1.0, True), ("u-1", 0.0, False), ("", 1.0, False), ("u-2", 1.0, False)]
)
async def test_a_repeated_request_is_answered_from_its_receipt_with_the_first_uid(uid: str, replays: float, passed: bool) -> None:
    scene = stage(Asked(uid, replays))
    await CommitTimeout()._answer_lost(scene)
    assert all(check.passed for check in scene.checks) is passed, scene.checks


class Held:
    """A region whose server counted so many commits in doubt, and refused ones, before and after its store was held."""

    def __init__(self, doubted: tuple[float, float], refused: tuple[float, float]) -> None:
        self.counted = {"commit_unknown_total": list(doubted), "store_unavailable_total": list(refused)}

    async def metric(self, name: str, plane: str) -> float:
        return self.counted[name].pop(0)

    async def slots(self, *_: Any) -> list[dict[str, Any]]:
        return [binding(f"p-{number}") for number in range(CommitTimeout.COUNT)]

    async def counts(self, *_: Any) -> dict[str, int]:
        return {"ready": CommitTimeout.COUNT}

    async def create(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("doubted", "refused", "passed"),
    [((2, 2), (3, 4), True), ((0, 1), (0, 0), True), ((2, 2), (3, 3), False), ((0, 0), (0, 0), False)],
    ids=["refused", "in doubt", "nothing but what was counted before", "nothing"],
)
async def test_a_store_that_is_held_has_kept_commits_from_being_made(
    doubted: tuple[float, float], refused: tuple[float, float], passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scene, "sqlite_region", lambda self: "us-east")
    scene = stage(Held(doubted, refused), Quick())
    await CommitTimeout()._store_held(scene)
    assert [check.passed for check in scene.checks] == [True, True, passed], scene.checks
    assert scene.figures == {"commit_unknown_total": doubted[1], "store_unavailable_total": refused[1]}


def binding(name: str, token: Any = "1.1.1", state: str = "Starting", created: str = "2026-01-01T10:00:00Z") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"node": "a", "token": token},
        "status": {"state": state},
    }


@pytest.mark.parametrize(
    ("starting", "made", "passed"),
    [
        ([binding("p-0"), binding("p-1", state="Ready")], [binding("p-0", state="Ready"), binding("p-1")], True),
        ([binding("p-0")], [binding("p-0", token="1.1.2")], False),
        ([binding("p-0")], [], False),
        ([binding("p-0", state="Ready")], [binding("p-0")], False),
        ([], [binding("p-0")], False),
    ],
)
def test_what_starts_when_a_policy_is_taken_back_goes_on_in_the_same_life(starting: Any, made: Any, passed: bool) -> None:
    scene = stage()
    PolicyRollback._check_started(scene, starting, made)
    assert [check.passed for check in scene.checks] == [passed]


def test_what_was_bound_before_a_server_died_is_told_from_what_the_next_one_bound() -> None:
    there = [binding("p-0"), binding("p-1", created="2026-01-01T10:00:01.5Z")]
    assert made_before(there, 1_767_261_601.0) == 1


def test_a_slot_that_was_bound_to_a_dead_node_and_replaced_is_told_from_one_in_its_first_life() -> None:
    there = [binding("p-0", token=[1, 2, 1]), binding("p-1", token=[1, 1, 1]), binding("p-2", token=[1, 2, 1])]
    assert astray(there, [binding("p-0")]) == ["p-2"]
    assert astray(there[:2], [binding("p-0")]) == []


# --- what clients may see of a lost zone -----------------------------------------------------------------------------------


def look(at_s: float, unanswered: int = 0) -> Look:
    return Look(at_s, (), (), unanswered)


@pytest.mark.parametrize(
    ("looks", "named_s"),
    [
        ([look(1.0, 3), look(11.0), look(12.0, 2), look(13.0, 1), look(13.5), look(14.0)], 3.5),
        ([look(11.0), look(12.0)], 0.0),
        ([look(11.0), look(12.0, 1), look(13.0), look(14.0, 1), look(14.5)], 4.5),
        ([look(11.0, 1)], None),
        ([look(1.0)], None),
    ],
    ids=["until all that are named answer", "never seen", "named once more", "still named", "nobody has looked"],
)
def test_the_dead_are_withdrawn_when_all_that_are_named_answer(looks: list[Look], named_s: float | None) -> None:
    assert named_dead_s(looks, 10.0) == named_s


def test_of_each_turn_the_dead_get_their_share_until_they_are_withdrawn() -> None:
    assert share_of_dead(1, 6, 0.0) == 2, "a second and a half at eight a second"
    assert share_of_dead(1, 6, 10.5) == 16
    assert share_of_dead(2, 6, 10.5) == 32
    assert share_of_dead(0, 6, 30.0) == 0


class Counted:
    """What the census has counted: errors that there are, and those that come later."""

    def __init__(self, looks: list[Look], errors: int, later: int) -> None:
        self.looks = {RISK: looks}
        self.errors = {"Refused": errors}
        self.later = later
        self.probers = {RISK: SimpleNamespace(measures=SimpleNamespace(all=self))}
        self.sent, self.outage_s = 400, 0.4


class Quick(SystemClock):
    """Time passes when somebody sleeps; errors come then."""

    def __init__(self) -> None:
        self.now_s, self.counted = 100.0, list[Counted]()

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for counted in self.counted:
            if seconds == AFTER_S:
                counted.errors["Refused"] += counted.later


@pytest.mark.parametrize(
    ("named_s", "errors", "later", "wrong"),
    [
        (20.0, 29, 0, []),
        (20.0, 30, 0, ["at most 29 requests"]),
        (20.0, 29, 1, ["no request of clients fails"]),
        (40.0, 29, 0, ["withdrawn within 35 s"]),
    ],
)
async def test_a_zone_may_cost_clients_what_went_to_the_dead_and_no_more(
    named_s: float, errors: int, later: int, wrong: list[str]
) -> None:
    nothing: Any = None
    clock, began_s = Quick(), 100.0
    census: Any = Counted([look(began_s + 1, 1), look(began_s + named_s)], errors, later)
    clock.counted.append(census)
    scene = Scene(nothing, nothing, nothing, nothing, census, clock, lambda text: None, "")
    clock.now_s += named_s + 1
    await check_withdrawn(scene, {RISK: 1}, {RISK: 6})
    found = [check.name for check in scene.checks if not check.passed]
    assert len(found) == len(wrong), scene.checks
    assert all(word in name for word, name in zip(wrong, found, strict=True)), found
