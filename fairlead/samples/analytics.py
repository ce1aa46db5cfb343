"""analytics: best-effort work that may be stopped at any moment. Counts a slice of numbers every STEP_S, for ever."""

from __future__ import annotations

import asyncio
import zlib

from fairlead.samples.program import identity, number, pause, run, say

SLICE_BYTES = 1 << 20  # about a millisecond of work
TELL_EVERY = 60


async def main(stop: asyncio.Event) -> int:
    who, step_s = identity("analytics"), number("STEP_S", 1.0)
    say(f"{who.workload} slot {who.slot} counts every {step_s:g} s")
    data, slices, sum_ = bytes(SLICE_BYTES), 0, 0
    while not await pause(step_s, stop):
        sum_ = zlib.crc32(data, sum_)
        slices += 1
        if slices % TELL_EVERY == 0:
            say(f"{slices} slices, checksum {sum_}")
    say(f"{who.workload} slot {who.slot} ends after {slices} slices")
    return 0


if __name__ == "__main__":
    run(main)
