"""`fairlead bench observe`: what decisions, metrics and audit cost per bind, how large decisions are, and how long `why` takes.

Five planes stand side by side in this process, each with its own fleet and scheduler: with everything on, without one of the
three, and without all of them. They bind the load of `bench schedule` in turns and in small waves; what is kept of those is
written after each turn, and segments are closed every few turns. CPU counts client, scheduler, authority and every thread. A
shared machine changes its speed by half from one tenth of a second to the next, so each kind of work counts by the fastest
quarter of its pieces, those that nobody disturbed; runs of a whole load meet both speeds, and differ by more than what is
measured here. Only this bench can switch the parts off:

- decisions: no records are made and kept (fairlead/store/decisions)
- metrics: nothing is counted, nobody scrapes; with them, the whole page is made after the waves, and charged as if it were
  asked for every `--scrape` seconds
- audit: no command in the journal's entries, no hash chain, no archive of thirty days beside the store

Sizes are of closed segments: where workloads come whole, as above, and where slots come one by one, `--rate` a second.
`why` is asked of a real front door over a global plane and a region: a workload whose slots all wait, each with its last decision
looked up among `--kept` attempts.
"""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.observe_sides import PARTS, side
from bench.observe_why import why_latencies
from bench.planes import engine_named, percentile, result
from bench.registry import Option
from bench.schedule_cases import CASES
from fairlead.store.decisions import Settings

OPTIONS = (
    Option("case", "basic", "what is scheduled: " + ", ".join(CASES), tuple(CASES)),
    Option("nodes", 5000, "nodes of each fleet"),
    Option("slots", 500, "slots to bind in each wave"),
    Option("turns", 24, "of each plane; five waves make a turn"),
    Option("engine", "sqlite", "where it is made durable", ("memory", "sqlite")),
    Option("scrape", 15.0, "seconds of CPU between two scrapes, a busy plane's seconds; Prometheus' own default is 60"),
    Option("kept", 1_000_000, "attempts in the log that `why` looks into"),
    Option("asked", 200, "times that `why` is asked"),
    Option("rate", 100, "binds a second, for thirty days; and for `--rate-seconds` to measure the size of a decision"),
    Option("rate_seconds", 20, "seconds of that; 0: not measured"),
    Option("seconds_max", 120, "give up on a wave after this long"),
)
SHARE_MAX = 0.15
WHY_MAX_MS = 200.0
DAYS = 30
WRITE_EVERY = 5  # waves: 2,500 binds, a quarter of a second of a busy plane
CLOSE_EVERY = 4  # turns: 10,000 binds, 7 MB of history
EVERYTHING = frozenset(PARTS)


async def costs(options: dict[str, Any]) -> dict[str, Any]:
    kinds = {"on": EVERYTHING, **{f"without_{part}": EVERYTHING - {part} for part in PARTS}, "off": frozenset[str]()}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlead-observe-")))
        engine = await stack.enter_async_context(engine_named(options["engine"]))
        as_fast_as_taken = {**options, "rate": 0}
        sides = {
            name: await stack.enter_async_context(side(on, engine, folder / name, as_fast_as_taken)) for name, on in kinds.items()
        }
        names = list(sides)
        for turn in range(1, options["turns"] + 1):
            first = turn % len(names)
            for one in [sides[name] for name in names[first:] + names[:first]]:
                for _ in range(WRITE_EVERY):
                    await one.wave(options["slots"], options["seconds_max"])
                await one.write()
                if turn % CLOSE_EVERY == 0 or turn == options["turns"]:
                    one.close_segments()
        for one in sides.values():
            await one.charge_scrapes(options["scrape"])
        cost = {name: one.cpu_us_per_bind() for name, one in sides.items()}
        pieces = {name: {work: [round(us, 2) for us in costs] for work, costs in one.us.items()} for name, one in sides.items()}
        kept = sides["on"].bytes_per_bind()
    return {
        "share_of_cpu_per_bind": round(1 - cost["off"] / cost["on"], 4),
        "cpu_us_per_bind": round(cost["on"], 1),
        "cpu_us_per_bind_off": round(cost["off"], 1),
        **{f"{part}_share": round(1 - cost[f"without_{part}"] / cost["on"], 4) for part in PARTS},
        "cpu_us_per_bind_pieces": pieces,
        "bytes_per_decision_whole": round(kept["decisions"], 1),
        "audit_bytes_per_bind": round(kept["audit"], 1),
    }


async def bytes_one_by_one(options: dict[str, Any]) -> float:
    """Of a decision, where slots come one after the other."""
    with tempfile.TemporaryDirectory(prefix="fairlead-observe-") as name:
        async with (
            engine_named(options["engine"]) as engine,
            side(EVERYTHING, engine, Path(name), options) as only,
        ):
            await only.wave(options["rate"] * options["rate_seconds"], options["seconds_max"])
            await only.write()
            only.close_segments()
            return only.bytes_per_bind()["decisions"]


async def main(**options: Any) -> dict[str, Any]:
    results = await costs(options)
    times = DAYS * 86_400 * options["rate"]
    results["decisions_30_days_whole_bytes"] = round(results["bytes_per_decision_whole"] * times)
    if options["rate_seconds"]:
        each = await bytes_one_by_one(options)
        results["bytes_per_decision"] = round(each, 1)
        results["decisions_30_days_bytes"] = round(each * times)
    results["decisions_kept_bytes"] = Settings().max_bytes
    took, slots = await why_latencies(options["kept"], options["asked"])
    results |= {
        "why_slots": slots,
        "why_p50_ms": round(percentile(took, 0.5), 2),
        "why_p99_ms": round(percentile(took, 0.99), 2),
    }
    failures = []
    if results["share_of_cpu_per_bind"] > SHARE_MAX:
        failures.append(f"observing costs {results['share_of_cpu_per_bind']:.1%} of the CPU per bind, more than {SHARE_MAX:.0%}")
    if results.get("decisions_30_days_bytes", 0) > results["decisions_kept_bytes"]:
        failures.append(f"{DAYS} days of decisions do not fit in the {results['decisions_kept_bytes']} bytes that are kept")
    if results["why_p99_ms"] > WHY_MAX_MS:
        failures.append(f"why took {results['why_p99_ms']} ms, more than {WHY_MAX_MS:.0f}")
    return result("observe", options, {**results, "failures": failures})
