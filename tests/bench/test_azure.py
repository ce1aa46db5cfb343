"""`fairlead bench azure` on a small trace of the same form, and its own books: what it reads, how it packs, what it counts."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.azure import OPTIONS, POLICIES, faults, main
from bench.azure_trace import CUT_S, Packing, Run, Shape, Trace, best_fit, lower_bound, packing_of, read_dev
from fairlead.model.kinds.policy import SchedulerPolicySpec

NODE = Shape(8_000, 16 << 10)
START_S = CUT_S - 300 * 300


def write_trace(folder: Path, lines: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of flavours and lifetimes, a step each."""
    home = folder / "azure_v1_vm"
    home.mkdir()
    (home / "flav_map.txt").write_text("1,1.75 b\n2,3.5 g\n8,14 m\n8,56 o\n")
    (home / "v1.interval_map.txt").write_text("0 0\n300 1\n600 2\n900 2\n1200 2\n")
    for name, column in (("v1.dev.txt", 0), (f"v1.dev.c{CUT_S}.txt", 1)):
        (home / name).write_text("".join(f"{START_S + 300 * n} {line[column]}\n" for n, line in enumerate(lines)))
    monkeypatch.setenv("FAIRLEAD_TRACES", str(folder))


def busy(steps: int) -> list[tuple[str, str]]:
    """Batches of several sizes and flavours; most VMs are short, some stay."""
    chance = random.Random(7)
    out = []
    for _ in range(steps):
        flavours, lives = [], []
        for _ in range(chance.randrange(1, 4)):
            for _ in range(chance.choice((1, 2, 5, 9))):
                flavours.append(chance.choice("bbbbgggmo"))
                lives.append(chance.choice(("U0", "U1", "U2", "U2", "C2")))
            flavours.append("|")
            lives.append("|")
        out.append((",".join(flavours), ",".join(lives)))
    return out


@pytest.fixture
def process_settings() -> Iterator[None]:
    """A plane tunes its interpreter; other tests should not notice."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.unfreeze()


def options(**changed: Any) -> dict[str, Any]:
    return {option.name: option.default for option in OPTIONS} | {"engine": "memory", "seconds_max": 60} | changed


def test_reads_batches_flavours_and_lifetimes_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(tmp_path, [("b,b,g,|,m,|", "U0,U1,C2,|,U0,|"), ("b,|", "U1,|"), ("g,|", "C0,|")], monkeypatch)
    trace = read_dev()
    assert list(trace.runs(0)) == [Run(0, 0, 0, 0, 2), Run(0, 2, 2, 1, 1), Run(1, 3, 0, 2, 1)]
    assert list(trace.runs(1)) == [Run(2, 4, 0, 0, 1)]
    assert (trace.cpu_millis().tolist(), trace.memory_mib().tolist()[:4]) == (
        [1000, 1000, 2000, 8000, 1000, 2000],
        [1792, 1792, 3584, 14336],
    )
    assert trace.ended_by_step() == [[], [0, 3], [1]]


def test_a_lifetime_stays_in_its_range_and_one_that_ended_did_so_before_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, quiet = ("b," * 200 + "|", "U2," * 200 + "|"), ("b,|", "C0,|")
    write_trace(tmp_path, [many, *[quiet] * 297, many, *[quiet] * 9], monkeypatch)
    trace = read_dev()
    assert set(trace.ends[trace.arrives == 0].tolist()) == {3, 4, 5}
    assert set(trace.ends[trace.arrives == 298].tolist()) == {301}


def test_the_first_vms_of_a_trace_are_the_same_as_in_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(tmp_path, busy(12), monkeypatch)
    whole, first = read_dev(), read_dev(20)
    assert first.vms == 20
    assert first.batch.tolist() == whole.batch[:20].tolist()
    assert [min(end, first.steps) for end in whole.ends[:20].tolist()] == first.ends.tolist()


def trace_of(*vms: tuple[int, int, int]) -> Trace:
    """VMs as (cores, arrives, ends)."""
    shapes = tuple(Shape(1000 * cores, 1024 * cores) for cores in range(9))
    column = [np.array(values, np.int64) for values in zip(*vms, strict=True)]
    steps = int(column[1].max()) + 1
    zeros = np.zeros(len(vms), np.int64)
    return Trace(shapes, zeros, np.arange(len(vms)), column[0], column[1], np.minimum(column[2], steps), steps)


def test_best_fit_takes_the_fullest_node_that_has_room_and_reuses_what_ended() -> None:
    trace = trace_of((5, 0, 9), (6, 0, 1), (2, 0, 9), (7, 1, 9), (3, 1, 9))
    assert best_fit(trace, NODE) == [0, 1, 1, 2, 0]


def test_best_fit_opens_as_many_nodes_as_it_needs() -> None:
    assert len(set(best_fit(trace_of(*[(8, 0, 9)] * 2500), NODE))) == 2500


def test_a_vm_that_is_larger_than_a_node_is_told() -> None:
    with pytest.raises(ValueError, match="fits no node"):
        best_fit(trace_of((8, 0, 9)), Shape(4_000, 16 << 10))


def test_nodes_count_while_something_is_on_them() -> None:
    trace = trace_of((5, 0, 1), (4, 0, 2), (4, 1, 9), (4, 2, 9))
    assert packing_of(trace, [0, 1, 2, 2], NODE) == Packing(2, 1.7)
    assert lower_bound(trace, NODE) == Packing(2, 1.3)


def test_a_node_that_holds_more_than_it_has_is_counted() -> None:
    trace = trace_of((5, 0, 1), (5, 0, 9), (5, 1, 9))
    assert packing_of(trace, [0, 0, 1], NODE).overfull == 1
    assert packing_of(trace, [0, 1, 0], NODE).overfull == 0


def test_a_run_that_breaks_its_limits_says_which() -> None:
    found = faults(10, 9, 0, Packing(12, 11.0, 3), Packing(10, 9.0), 1.01)
    assert [line.split()[0] for line in found] == ["1", "3", "12"]
    assert faults(10, 10, 2, Packing(10, 11.0, 3), Packing(10, 9.0), 1.0) == []


@pytest.mark.usefixtures("process_settings")
@pytest.mark.parametrize("ahead", [0, 2])
async def test_every_vm_is_bound_and_ends_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    write_trace(tmp_path, busy(25), monkeypatch)
    trace = read_dev()
    got = (await main(**options(ahead=ahead)))["results"]
    assert (got["bound"], got["pending"], got["conflicts"]) == (trace.vms, 0, 0)
    assert got["ended"] == sum(map(len, trace.ended_by_step()))
    assert got["lower_bound_nodes"] <= got["nodes_used"] <= got["nodes"]
    if not ahead:
        assert got["failures"] == []


@pytest.mark.usefixtures("process_settings")
async def test_the_policy_asked_for_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `Balance` every VM has a node to itself while there are as many, which no other policy here does."""
    write_trace(tmp_path, [("b,b,b,b,|,m,m,m,m,|", "C2,C2,C2,C2,|,C2,C2,C2,C2,|")] * 2, monkeypatch)
    balance = SchedulerPolicySpec(revision=3, packing="Balance")
    monkeypatch.setitem(POLICIES, "balance", (balance, 9.0))
    got = (await main(**options(policy="balance", node_gib=64)))["results"]
    assert (got["bound"], got["pending"], got["refusals"]) == (16, 0, {})
    assert got["nodes_used"] == got["nodes"] > got["best_fit_nodes"]


@pytest.mark.usefixtures("process_settings")
@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_every_policy_on_offer_binds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    write_trace(tmp_path, busy(6), monkeypatch)
    got = (await main(**options(policy=policy)))["results"]
    assert (got["bound"], got["pending"], got["refusals"]) == (read_dev().vms, 0, {})
