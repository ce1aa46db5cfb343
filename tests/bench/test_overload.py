"""`fairlead bench overload`, small: a real server is overloaded and told about; what counts as failed."""

from __future__ import annotations

from typing import Any

from bench.overload import OPTIONS, Leases, failures_of, main

SMALL: dict[str, Any] = {
    "rounds": 1, "peak_seconds": 0.5, "seconds": 1.0, "deadline": 20.0, "connections": 20, "half_seconds_max": 1.0,
}  # fmt: skip
FINE: dict[str, Any] = {"ratio": 0.9, "back_max_s": 1.0, "lease_renewals": 10, "lease_renewals_missed": 0}


async def test_every_stretch_runs_and_every_command_is_accounted_for() -> None:
    options = {option.name: option.default for option in OPTIONS}
    assert set(SMALL) < set(options)
    told = await main(**{**options, **SMALL})
    figures = told["results"]
    assert figures["peak_per_s"] > 0
    assert figures["done"] + figures["given_up"] + figures["unsent"] == figures["sent"] > 0
    assert set(figures["overload_cpu_share"]) == {"global", "client"}
    assert isinstance(figures["failures"], list)


def test_each_limit_fails_by_itself() -> None:
    assert failures_of(FINE) == []
    for name, value in (("ratio", 0.79), ("back_max_s", 61.0), ("back_max_s", None), ("lease_renewals_missed", 1)):
        assert len(failures_of(FINE | {name: value})) == 1, name
    assert len(failures_of(FINE | {"lease_renewals": 0})) == 1  # nobody looked


def lease(renewed: str, epoch: int = 1) -> dict[str, Any]:
    spec = {"holder": "a", "epoch": epoch, "ttlSeconds": 10.0, "renewedTime": f"2026-01-01T00:00:{renewed}Z"}
    return {"metadata": {"name": "workload"}, "spec": spec}


def test_a_lease_that_was_late_or_changed_hands_was_missed() -> None:
    leases = Leases()
    for renewed, epoch in (("00", 1), ("03", 1), ("03", 1), ("06", 1)):
        leases.saw(lease(renewed, epoch))
    assert (leases.renewals, leases.missed, leases.gap_max_share) == (2, 0, 0.3)
    leases.saw(lease("17", 1))
    leases.saw(lease("18", 2))
    assert (leases.renewals, leases.missed) == (4, 2)
