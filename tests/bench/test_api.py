"""`fairlead bench api`, small: every part with real servers and a host of simulated nodes, and the figures it promises."""

from __future__ import annotations

from typing import Any

from bench.api import OPTIONS, PARTS, main

SMALL: dict[str, Any] = {
    "part": "all", "nodes": 30, "hosts": 1, "rate": 10, "seconds": 1, "idle_seconds": 1, "slots": 100, "replicas": 25,
    "watchers": 6, "long": 40, "seconds_max": 120,
}  # fmt: skip
PROMISED = (
    "binds_per_s", "cpu_us_per_bind", "create_to_bound_p50_ms", "create_to_bound_p99_ms", "conflicts", "bound", "pending",
    "create_to_ready_p50_ms", "create_to_serving_p50_ms", "create_to_serving_p99_ms", "undo_to_serving_p50_ms",
    "idle_share_of_core", "quota_cost", "watched_create_to_bound_p99_ms", "restart_all_heard_s", "long_rolled_out_s",
)  # fmt: skip


async def test_every_part_runs_to_its_end_and_gives_the_figures_it_promises() -> None:
    options = {option.name: option.default for option in OPTIONS}
    assert set(SMALL) == set(options)
    told = await main(**{**options, **SMALL})
    figures = told["results"]
    assert figures["failures"] == []
    assert [name for name in PROMISED if name not in figures] == []
    assert (figures["bound"], figures["pending"], figures["conflicts"]) == (50, 0, 0)
    assert figures["watched_deliveries"] > 0
    assert figures["restart_slots_kept"] == 300
    assert all(figures[f"{part}_took_s"] > 0 for part in PARTS)
