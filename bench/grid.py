"""`fairlead bench grid`: LCG jobs and Grid'5000 outages replayed over nine regions, with recovery and without, in simulated time.

Both ways replay the same jobs and the same outages of whole sites and of single nodes on the production control plane
(bench/grid_run.py). Without recovery a job stays at the site it was sent to, which restarts it when it is back; a job on a lost
node is placed on another node of its region either way. Time lost is that in which a job that was under way ran nowhere, and the
work it had to do again. It fails if a promise is found broken, a quota is ever exceeded, a job of a lost region does not run
again within 300 s, or recovery saved nothing. Same seed, same result, but for CPU.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from bench.apart import answer_apart, measured_apart
from bench.grid_run import Lost, Replayed, Settings, replay
from bench.grid_trace import Draw, Rates, draw
from bench.planes import percentile, result
from bench.registry import Option

OPTIONS = (
    Option("seed", 1, "which jobs and outages are drawn"),
    Option("regions", 9, "sites"),
    Option("jobs", 200, "how many are replayed"),
    Option("minutes", 20, "simulated, from the first job on"),
    Option("outages", 9, "of whole sites, each site in turn"),
    Option("node_outages", 9, "of single nodes"),
    Option("longest_seconds", 900, "outages that were longer end there"),
    Option("nodes", 3, "of each region"),
    Option("quota_percent", 100, "of what each tenant's jobs would use at most at once"),
    Option("small", False, "three regions for three minutes: to see that it works"),
)
SMALL: Final = {"regions": 3, "jobs": 30, "minutes": 3, "outages": 1, "node_outages": 0, "longest_seconds": 100, "nodes": 2}
PROMISED_S: Final = 300.0  # L5
FIRST_SHARE, LAST_SHARE = 0.15, 0.85  # of the time: the first outage and the last begin there


def drawn(options: dict[str, Any]) -> Draw:
    within_s = options["minutes"] * 60.0
    rates = Rates(
        options["outages"], options["node_outages"], FIRST_SHARE * within_s, LAST_SHARE * within_s,
        float(options["longest_seconds"]), options["nodes"],
    )  # fmt: skip
    return draw(options["seed"], options["regions"], options["jobs"], within_s, rates)


class Order(msgspec.Struct, frozen=True):
    """What a process of its own is asked for."""

    draw: Draw
    settings: Settings


def lost_s(one: Lost, until_s: float) -> float:
    """Time this job lost by one outage: it ran nowhere, and what it had to do again."""
    return (one.back_s if one.back_s is not None else until_s) - one.at_s + one.again_s


def figures(found: Replayed, until_s: float, outages: int) -> dict[str, Any]:
    sites = [one for one in found.lost if one.site]
    back = [one.back_s - one.at_s for one in sites if one.back_s is not None]
    total_s = sum(lost_s(one, until_s) for one in sites)
    return {
        "jobs_hit": len(sites),
        "jobs_hit_by_nodes": len(found.lost) - len(sites),
        "recovered": len(back),
        "recovered_elsewhere": sum(one.elsewhere for one in sites),
        "recovered_p50_s": round(percentile(back, 0.5), 1),
        "recovered_p99_s": round(percentile(back, 0.99), 1),
        "recovered_max_s": round(max(back, default=0.0), 1),
        "lost_s_per_outage": round(total_s / outages, 1) if outages else None,
        "lost_s_per_job_hit": round(total_s / len(sites), 1) if sites else None,
        "completed": found.completed,
        "work_s": round(found.work_s),
        "waited_s": found.waited_s,
        "steady_commands_per_s": _rate(found.commands, found, "steady"),
        "commands_per_s": _rate(found.commands, found, "outage"),
        "steady_cpu_share": _rate(found.cpu_s, found, "steady"),
        "cpu_share": _rate(found.cpu_s, found, "outage"),
        "peak_queue": found.peak_queue,
        "quota_violations": found.quota_violations,
        "quota_checked": found.quota_checked,
        "refused": found.refused,
        "trace": found.trace,
    }


def _rate(counted: dict[str, Any], found: Replayed, phase: str) -> float | None:
    seconds = found.seconds.get(phase, 0)
    return round(counted.get(phase, 0) / seconds, 3) if seconds else None


def failures(ours: Replayed, base: Replayed, until_s: float) -> list[str]:
    out = [f"{way}: {text}" for way, found in (("with recovery", ours), ("without", base)) for text in found.findings]
    if not any(one.site for one in ours.lost) or not any(one.site for one in base.lost):
        out.append("no outage of a site hit a job: nothing was shown")
    for one in ours.lost:
        if one.site and (one.back_s if one.back_s is not None else until_s) - one.at_s > PROMISED_S:
            out.append(f"{one.job} of {one.region}, lost at {one.at_s:.0f} s, did not run again within {PROMISED_S:.0f} s")
    saved_s = sum(lost_s(o, until_s) for o in base.lost if o.site) - sum(lost_s(o, until_s) for o in ours.lost if o.site)
    if saved_s <= 0:
        out.append(f"recovery saved nothing: {saved_s:.0f} s")
    for found in (ours, base):
        if not found.quota_checked.get("S4") or not found.quota_checked.get("S5"):
            out.append("nobody looked at the quota")
    return out


async def main(**options: Any) -> dict[str, Any]:
    options |= SMALL if options.pop("small", False) else {}
    chosen, until_s = drawn(options), options["minutes"] * 60.0
    orders = [
        Order(chosen, Settings(options["seed"], recovery, options["nodes"], until_s, options["quota_percent"]))
        for recovery in (True, False)
    ]
    ours, base = await asyncio.gather(*(measured_apart("bench.grid", order, Replayed) for order in orders))
    outages = sum(one.node is None for one in chosen.outages)
    results = {
        "jobs": len(chosen.jobs),
        "tenants": len(chosen.tenants),
        "outages": outages,
        "node_outages": len(chosen.outages) - outages,
        "outage_p50_s": percentile([one.for_s for one in chosen.outages if one.node is None], 0.5),
        **figures(ours, until_s, outages),
        "baseline": figures(base, until_s, outages),
        "failures": failures(ours, base, until_s),
    }
    mine, theirs = results["lost_s_per_outage"], results["baseline"]["lost_s_per_outage"]
    results["lost_ratio"] = round(mine / theirs, 3) if mine is not None and theirs else None
    return result("grid", options, results)


if __name__ == "__main__":
    answer_apart(Order, lambda order: replay(order.draw, order.settings))
