"""What a resync looks through: what there is to do, and not all there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fairlead.controllers.cache import Cache, Item
from fairlead.controllers.contract import Controller, View
from fairlead.controllers.garbage import GarbageController
from fairlead.controllers.repair import RepairController
from fairlead.model.commands import Delete
from fairlead.model.lifecycle import SlotState
from tests.controllers.test_job import slot
from tests.controllers.test_overrides import fill
from tests.controllers.test_repair import NOW, order

_S = SlotState


@pytest.mark.parametrize(
    ("controller", "state"),
    [
        (RepairController("r"), _S.UNKNOWN),
        (RepairController("r"), _S.FAILED),
        (RepairController("r"), _S.RELEASED),
        (GarbageController(), _S.RELEASED),
        (GarbageController(), _S.SUCCEEDED),
    ],
)
def test_a_resync_finds_what_is_broken_or_over_without_a_look_at_every_slot(
    controller: Controller, state: SlotState, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = fill(View(controller.indexes, {}), *(slot(index, _S.SERVING) for index in range(5)))
    ill = fill(View(controller.indexes, {}), *(slot(index, _S.SERVING) for index in range(5)), slot(9, state))
    looked: list[str] = []
    every = Cache.all

    def counted(self: Cache, plural: str) -> Iterable[Item]:
        looked.append(plural)
        return every(self, plural)

    monkeypatch.setattr(Cache, "all", counted)
    assert list(controller.resync(well)) == []
    assert list(controller.resync(ill)) == [("t", "api")]
    assert "bindings" not in looked


def test_what_has_ended_goes_with_its_assignment_and_what_runs_stays() -> None:
    def removed(*objects: tuple[str, Any]) -> list[str]:
        view = fill(
            View(GarbageController.indexes, {}), slot(0, _S.SERVING), slot(1, _S.RELEASED), slot(2, _S.SUCCEEDED), *objects
        )
        bodies = GarbageController().reconcile(("t", "api"), view, NOW).bodies
        return [body.name for body in bodies if isinstance(body, Delete)]

    assert removed() == ["api-1", "api-2"]
    assert removed(order()) == []
