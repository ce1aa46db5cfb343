"""billing-api: the steady service that must not be disturbed. Answers `/` with who answered and how many invoices it has written
since it started: a number that goes back was a restart."""

from __future__ import annotations

import asyncio

from fairlead.samples.program import Site, identity, run


async def main(stop: asyncio.Event) -> int:
    who = identity("billing-api")
    written = 0

    def page(query: str) -> str:
        nonlocal written
        written += 1
        return f"{who.lines()}invoices={written}\n"

    return await Site(page, stop).serve(who)


if __name__ == "__main__":
    run(main)
