"""Every engine against a reference model of forty lines, step by step, from several store objects at once.

Hypothesis draws the steps and shrinks a difference to its shortest history. The model below is written without looking
at any engine: lists and dicts, nothing clever.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from fairlead.store.contract import (
    AlreadyThere,
    Batch,
    Committed,
    Compacted,
    Contended,
    Fence,
    Fenced,
    Head,
    ObjectRow,
    Store,
    Superseded,
)
from fairlead.store.rules import EMPTY
from tests.store.batches import batch_after, collect
from tests.store.conftest import ENGINES

STORES = 3
EXAMPLES = 45
STEPS = 60
STEPS_MIN = 2000  # So many calls at least must have been compared on each engine.

Result = TypeVar("Result")
which = st.integers(0, STORES - 1)
old = st.integers(0, 3)  # how many places back in a list of things that once were current
keys = st.sampled_from(["a", "b", "c", "ü", "'"])


class Model:
    """What a store is: a head, the batches that are kept, every batch there ever was, and the objects."""

    def __init__(self) -> None:
        self.head = EMPTY
        self.ever: list[Batch] = []
        self.kept: list[Batch] = []
        self.objects: dict[str, tuple[int, bytes]] = {}

    def commit(self, fence: Fence, batch: Batch) -> object:
        if fence != self.head.fence():
            return Fenced(self.head)
        if batch.first == self.head.position + 1 and batch.previous == self.head.hash:
            self.head = replace(self.head, position=batch.last, hash=batch.hash)
            self.ever.append(batch)
            self.kept.append(batch)
            return Committed()
        return AlreadyThere() if batch in self.kept or batch in self.ever[-1:] else Superseded(self.head)

    def change(self, fence: Fence, **fields: object) -> object:
        if fence != self.head.fence():
            return Fenced(self.head)
        self.head = replace(self.head, **fields)
        return Committed()

    def materialise(self, fence: Fence, upto: int, rows: list[ObjectRow], deleted: list[str], as_of: int) -> object:
        if fence == self.head.fence() and max(upto, as_of) > self.head.position:
            return Superseded(self.head)
        result = self.change(fence, materialised=max(upto, self.head.materialised))
        if result == Committed() and upto == self.head.materialised:
            self.objects |= {key: (position, value) for key, position, value in rows}
            self.objects = {key: row for key, row in self.objects.items() if key not in deleted}
        return result

    def truncate(self, fence: Fence, through: int, anchor: bytes) -> object:
        ends = [batch.last for batch in self.kept if batch.last <= through]
        if not ends or through > self.head.materialised:
            return self.change(fence)
        result = self.change(fence, truncated=ends[-1], anchor=anchor)
        if result == Committed():
            self.kept = self.kept[len(ends) :]
        return result

    def tail(self, after: int) -> list[Batch] | Compacted:
        if after < self.head.truncated:
            return Compacted(self.head.truncated)
        return [batch for batch in self.kept if batch.first > after]


class Differential(RuleBasedStateMachine):
    engine_name = ""
    steps = 0

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp())
        self.engine = self.run(self._make())
        self.stores: list[Store] = [self.run(self.engine.open_store()) for _ in range(STORES)]
        self.model = Model()
        self.heads: list[Head] = [EMPTY]
        self.fences: list[Fence] = [EMPTY.fence()]
        self.acquisitions = 0

    async def _make(self) -> Any:
        return await ENGINES[self.engine_name](self.directory)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.run(self.engine.close())
            self.runner.close()
            shutil.rmtree(self.directory)

    def fence(self, back: int) -> Fence:
        return self.fences[-1 - min(back, len(self.fences) - 1)]

    def batch(self, seed: int, effects: int) -> Batch:
        return batch_after(self.model.head, b"%d " % seed * (seed % 50), effects)

    @rule(store=which, back=old)
    def acquire(self, store: int, back: int) -> None:
        observed = self.heads[-1 - min(back, len(self.heads) - 1)]
        self.acquisitions += 1
        holder = f"holder {self.acquisitions}"
        got = self.run(self.stores[store].acquire(holder, observed))
        if observed.sign_of_life() != self.model.head.sign_of_life():
            assert got == Contended(self.model.head)
            return
        self.model.head = replace(self.model.head, epoch=observed.epoch + 1, holder=holder)
        assert got == self.model.head.fence()
        self.fences.append(self.model.head.fence())

    @rule(store=which, back=old)
    def renew(self, store: int, back: int) -> None:
        fence = self.fence(back)
        expected = self.model.change(fence, renewals=self.model.head.renewals + 1)
        assert self.run(self.stores[store].renew(fence)) == expected

    @rule(store=which, raise_by=st.integers(1, 3))
    def set_incarnation(self, store: int, raise_by: int) -> None:
        fence = self.model.head.fence()
        raised = fence.incarnation + raise_by
        expected = self.model.change(fence, incarnation=raised)
        assert self.run(self.stores[store].set_incarnation(fence, raised)) == expected
        self.fences.append(self.model.head.fence())

    @rule(store=which, seed=st.integers(0, 999), effects=st.integers(1, 4))
    def commit(self, store: int, seed: int, effects: int) -> None:
        self._commit(store, self.model.head.fence(), self.batch(seed, effects))

    @rule(store=which, back=old, seed=st.integers(0, 999))
    def commit_under_an_old_fence(self, store: int, back: int, seed: int) -> None:
        self._commit(store, self.fence(back), self.batch(seed, 1))

    @rule(store=which, back=old, position=st.integers(0, 5))
    def resubmit(self, store: int, back: int, position: int) -> None:
        """Of batches that are kept, and of the newest: about others a store may have forgotten everything."""
        candidates = self.model.kept[-6:] or self.model.ever[-1:]
        if candidates:
            self._commit(store, self.fence(back), candidates[position % len(candidates)])

    @rule(store=which, shift=st.integers(-3, 3), seed=st.integers(1000, 1999))
    def commit_at_a_wrong_position(self, store: int, shift: int, seed: int) -> None:
        right = self.batch(seed, 1)
        if shift and right.first + shift > 0:
            self._commit(store, self.model.head.fence(), replace(right, first=right.first + shift, last=right.last + shift))

    @rule(store=which, seed=st.integers(2000, 2999))
    def commit_after_another_history(self, store: int, seed: int) -> None:
        elsewhere = replace(self.model.head, hash=b"?" * 32)
        self._commit(store, self.model.head.fence(), batch_after(elsewhere, b"%d" % seed))

    def _commit(self, store: int, fence: Fence, batch: Batch) -> None:
        expected = self.model.commit(fence, batch)
        assert self.run(self.stores[store].commit(fence, batch)) == expected

    @rule(
        store=which, back=old, behind=st.integers(-1, 3), later=st.integers(0, 3),
        wrote=st.dictionaries(keys, st.binary(max_size=20)), gone=st.sets(keys),
    )  # fmt: skip
    def materialise(self, store: int, back: int, behind: int, later: int, wrote: dict[str, bytes], gone: set[str]) -> None:
        upto = max(0, self.model.head.position - behind)
        as_of = upto + later if later else 0
        rows = [(key, upto, value) for key, value in wrote.items() if key not in gone]
        expected = self.model.materialise(self.fence(back), upto, rows, sorted(gone), as_of)
        got = self.run(self.stores[store].materialise(self.fence(back), upto, rows, sorted(gone), as_of))
        assert got == expected

    @rule(store=which, back=old, behind=st.integers(0, 8), anchor=st.binary(max_size=8))
    def truncate(self, store: int, back: int, behind: int, anchor: bytes) -> None:
        through = max(0, self.model.head.position - behind)
        expected = self.model.truncate(self.fence(back), through, anchor)
        assert self.run(self.stores[store].truncate(self.fence(back), through, anchor)) == expected

    @rule(store=which, behind=st.integers(0, 12))
    def tail(self, store: int, behind: int) -> None:
        after = max(0, self.model.head.position - behind)
        assert self.run(self.stores[store].tail(after)) == self.model.tail(after)

    @rule(store=which)
    def load(self, store: int) -> None:
        async def load() -> tuple[Head, int, dict[str, tuple[int, bytes]]]:
            checkpoint = await self.stores[store].load()
            return checkpoint.head, checkpoint.position, await collect(checkpoint)

        assert self.run(load()) == (self.model.head, self.model.head.materialised, self.model.objects)

    @rule(store=which)
    def reopen(self, store: int) -> None:
        self.run(self.stores[store].close())
        self.stores[store] = self.run(self.engine.open_store())

    @rule(store=which)
    def observe(self, store: int) -> None:
        self.heads.append(self.run(self.stores[store].head()))

    @invariant()
    def every_store_sees_the_head_of_the_model(self) -> None:
        if hasattr(self, "model"):
            # In turn, since a real server takes its time: a store that lags is found out within three steps.
            type(self).steps += 1
            assert self.runner.run(self.stores[self.steps % STORES].head()) == self.model.head


@pytest.mark.parametrize("name", list(ENGINES))
def test_the_engine_and_the_reference_model_agree_at_every_step(name: str) -> None:
    class Machine(Differential):
        engine_name = name
        steps = 0

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,  # the same histories in every run; change EXAMPLES for others
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Machine.steps >= STEPS_MIN
