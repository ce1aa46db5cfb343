"""fraud-batch: a job. Works for DURATION_S and ends with EXIT_CODE; the first FAIL_ATTEMPTS attempts of a slot end with 3.

While it runs it adds a line with its token and the time to WITNESS_FILE, if there is one: whoever reads it sees whether two ever
ran at once."""

from __future__ import annotations

import asyncio
import os

from fairlead.samples.program import Identity, identity, number, pause, run, say

PARTS = 10
WITNESS_S = 0.05
FAILED, STOPPED = 3, 143  # 143 is what a shell shows for a process that SIGTERM ended: this work is not done


def attempt(who: Identity) -> int:
    """The last part of the fencing token: incarnation, epoch, attempt."""
    last = who.token.rpartition(".")[2]
    return int(last) if last.isdecimal() else 1


def testify(path: str, line: str) -> None:
    with open(path, "a") as file:  # one write, appended: lines of two do not mix
        file.write(line)


async def work(seconds: float, who: Identity, stop: asyncio.Event) -> bool:
    """True: it is time to end."""
    witness, loop = os.environ.get("WITNESS_FILE", ""), asyncio.get_running_loop()
    if not witness:
        return await pause(seconds, stop)
    until = loop.time() + seconds
    while not stop.is_set() and loop.time() < until:
        testify(witness, f"{who.token} {who.node} {loop.time():.3f}\n")
        await pause(WITNESS_S, stop)
    return stop.is_set()


async def main(stop: asyncio.Event) -> int:
    who = identity("fraud-batch")
    duration_s, code, failing = number("DURATION_S", 5.0), int(number("EXIT_CODE", 0)), int(number("FAIL_ATTEMPTS", 0))
    say(f"{who.workload} slot {who.slot} attempt {attempt(who)} in {who.region or 'no region'}: {duration_s:g} s of work")
    for part in range(1, PARTS + 1):
        if await work(duration_s / PARTS, who, stop):
            say(f"stopped after {100 * (part - 1) // PARTS} %")
            return STOPPED
    code = FAILED if attempt(who) <= failing else code
    say(f"done with exit code {code}")
    return code


if __name__ == "__main__":
    run(main)
