"""search-index: a bursty worker with a large memory. Fills BURST_MIB for BURST_S, lets go, rests for REST_S, and again."""

from __future__ import annotations

import asyncio
import zlib

from fairlead.samples.program import identity, number, pause, run, say

STEP_BYTES = 4 << 20  # between two looks at whether it is to end


async def main(stop: asyncio.Event) -> int:
    who = identity("search-index")
    burst_bytes, burst_s, rest_s = int(number("BURST_MIB", 64)) << 20, number("BURST_S", 4.0), number("REST_S", 6.0)
    say(f"{who.workload} slot {who.slot} indexes {burst_bytes >> 20} MiB at a time")
    shift = zlib.crc32(who.slot.encode()) % 100 / 100  # so that the slots of a node do not all swell at once
    ended, bursts = await pause(rest_s * shift, stop), 0
    while not ended:
        documents: list[bytearray] = []
        while sum(map(len, documents)) < burst_bytes and not await pause(0.005, stop):
            documents.append(bytearray(b"\1") * min(STEP_BYTES, burst_bytes))  # written to, so that it is really there
        await pause(burst_s, stop)
        bursts += 1
        say(f"burst {bursts}: {sum(map(len, documents)) >> 20} MiB")
        del documents
        ended = await pause(rest_s, stop)
    say(f"{who.workload} slot {who.slot} ends after {bursts} bursts")
    return 0


if __name__ == "__main__":
    run(main)
