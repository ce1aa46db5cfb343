"""Measures the archive: `python bench/archive.py [--effects N] [--keys N] [--no-checkpoints] [--directory D]` prints JSON.

Objects are about 350 bytes of msgpack of which a quarter is random (ids, hashes), the rest repeats, as bindings do. Batches hold
100 effects and 100 ms of plane time each, so a million effects are 17 minutes of a busy plane. CPU is that of
the calling thread; the garbage collector is frozen, as a server's is after its load (P17).
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from fairlead.model import codec
from fairlead.model.journal import Entry, Header, chain_hash, encode_blob
from fairlead.store.archive import GENESIS, Archive, Point, Settings
from fairlead.store.contract import NO_HASH, Batch

BATCH_EFFECTS = 100
BATCH_MS = 100
COMMAND = msgspec.Raw(codec.encode({"caller": "scheduler", "verb": "bind", "evidence": [1, 2, 3], "correlation": "c" * 24}))


def make_object(draw: random.Random, key: str, position: int) -> bytes:
    return codec.encode(
        {
            "name": key,
            "uid": f"{draw.getrandbits(128):032x}",
            "generation": position,
            "node": f"node-{draw.randrange(10_000):05d}",
            "state": draw.choice(["Reserved", "Bound", "Running", "Draining"]),
            "resources": {"cpu": draw.choice([500, 1000, 2000]), "memory": draw.choice([1 << 28, 1 << 30]), "gpu": 1},
            "labels": {"app": f"app-{draw.randrange(200)}", "team": f"team-{draw.randrange(40)}", "tier": "critical"},
            "decision": f"{draw.getrandbits(128):032x}",
            "conditions": [{"type": "Ready", "status": True, "reason": "AgentReported", "since": position * 7}],
        }
    )


def make_batch(
    draw: random.Random, keys: int, first: int, previous: bytes, time_ms: int
) -> tuple[Batch, list[tuple[str, bytes]]]:
    effects = []
    for position in range(first, first + BATCH_EFFECTS):
        key = f"bindings/team-{(number := draw.randrange(keys)) % 40}/app-{number}"
        effects.append((key, make_object(draw, key, position)))
    # One command for each effect, as binds come.
    parts = [codec.encode(Entry(COMMAND, (effect,))) for effect in effects]
    blob = encode_blob(Header(1, 1, 1, "leader", first, time_ms), parts)
    return Batch(first, first + BATCH_EFFECTS - 1, previous, chain_hash(previous, blob), blob), effects


def fill(archive: Archive, effects: int, keys: int, checkpoints: bool) -> dict[str, float]:
    draw = random.Random(1)
    state: dict[str, tuple[int, bytes]] = {}
    appending_s, raw_bytes, previous = 0.0, 0, NO_HASH
    closing: list[tuple[float, float]] = []
    checkpoint_s: list[float] = []
    for first in range(1, effects + 1, BATCH_EFFECTS):
        time_ms = first // BATCH_EFFECTS * BATCH_MS
        batch, made = make_batch(draw, keys, first, previous, time_ms)
        previous, raw_bytes = batch.hash, raw_bytes + len(batch.blob)
        state.update((key, (first + at, value)) for at, (key, value) in enumerate(made))
        begin = time.thread_time()
        archive.append(batch)
        appending_s += time.thread_time() - begin
        while archive.waiting():
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            archive.close_segment()
            closing.append((time.perf_counter() - begin, time.thread_time() - begin_cpu))
        if checkpoints and (first - 1) * 4 % effects == 0 and first > 1:  # three of them, evenly
            begin = time.perf_counter()
            archive.write_checkpoint(archive.last(), time_ms, ((key, at, value) for key, (at, value) in state.items()))
            checkpoint_s.append(time.perf_counter() - begin)
        if first // BATCH_EFFECTS % 1000 == 0:
            gc.collect()
            gc.freeze()
    archive.seal()
    archive.close_segment()
    return {
        "effects": effects,
        "keys": keys,
        "raw_bytes_per_effect": round(raw_bytes / effects, 1),
        "append_cpu_us_per_effect": round(appending_s / effects * 1e6, 3),
        "segments": len(closing) + 1,
        "close_segment_ms_p50": round(percentile([wall for wall, _ in closing], 50) * 1e3, 1),
        "close_segment_ms_max": round(max((wall for wall, _ in closing), default=0) * 1e3, 1),
        "close_segment_cpu_ms_p50": round(percentile([cpu for _, cpu in closing], 50) * 1e3, 1),
        "checkpoints": len(checkpoint_s),
        "checkpoint_s_max": round(max(checkpoint_s, default=0), 2),
    }


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


def read(directory: Path, effects: int, keys: int, gets: int) -> dict[str, float]:
    begin = time.perf_counter()
    archive = Archive(directory, writable=False)
    opening = time.perf_counter() - begin
    draw = random.Random(2)
    taken: list[float] = []
    cpu = time.thread_time()
    found = 0
    for _ in range(gets):
        number = draw.randrange(keys)
        point = Point(1, draw.randint(1, effects))
        begin = time.perf_counter()
        found += archive.get(f"bindings/team-{number % 40}/app-{number}", point) is not None
        taken.append(time.perf_counter() - begin)
    cpu = time.thread_time() - cpu
    begin = time.perf_counter()
    rows = sum(1 for _ in archive.state_at(Point(1, effects)))
    state_s = time.perf_counter() - begin
    begin = time.perf_counter()
    batches = sum(1 for _ in archive.batches(GENESIS, archive.last()))
    batches_s = time.perf_counter() - begin
    begin = time.thread_time()
    faults = archive.verify()
    return {
        "open_ms": round(opening * 1e3, 1),
        "gets": gets,
        "gets_found": found,
        "get_ms_first_100_p50": round(percentile(taken[:100], 50) * 1e3, 3),
        "get_ms_p50": round(percentile(taken, 50) * 1e3, 3),
        "get_ms_p99": round(percentile(taken, 99) * 1e3, 3),
        "get_cpu_ms_mean": round(cpu / gets * 1e3, 3),
        "cache_bytes": archive.cache.bytes,
        "state_at_s": round(state_s, 2),
        "state_rows": rows,
        "batches_per_s": round(batches / batches_s),
        "verify_cpu_s": round(time.thread_time() - begin, 2),
        "faults": len(faults),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effects", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--gets", type=int, default=3000)
    parser.add_argument("--level", type=int, default=Settings().level)
    parser.add_argument("--no-checkpoints", action="store_true")
    parser.add_argument("--directory", type=Path, default=None, help="left in place if given")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="fairlead-archive-"))
    try:
        archive = Archive(directory, Settings(level=options.level, segment_ms=10**12))
        figures = fill(archive, options.effects, options.keys, not options.no_checkpoints)
        segments = sum(path.stat().st_size for path in directory.glob("*.segment"))
        archive.close()
        figures["segment_bytes_per_effect"] = round(segments / options.effects, 1)
        figures["directory_bytes"] = sum(path.stat().st_size for path in directory.iterdir())
        figures |= read(directory, options.effects, options.keys, options.gets)
    finally:
        if options.directory is None:
            shutil.rmtree(directory)
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
