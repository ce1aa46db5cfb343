"""risk-api: the critical service. Answers `/?account=NAME` with a score and with who answered."""

from __future__ import annotations

import asyncio
import zlib

from fairlead.samples.program import Site, identity, run


async def main(stop: asyncio.Event) -> int:
    who = identity("risk-api")

    def page(query: str) -> str:
        account = query.partition("account=")[2].partition("&")[0][:64] or "nobody"
        return f"{who.lines()}account={account}\nscore={zlib.crc32(account.encode()) % 1000}\n"

    return await Site(page, stop).serve(who)


if __name__ == "__main__":
    run(main)
