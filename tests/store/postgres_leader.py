"""A leader in a process of its own, for tests that stop it: commits without pause until it is fenced, then says so.

Called as `python -m tests.store.postgres_leader DSN PLANE HOLDER`.
"""

from __future__ import annotations

import asyncio
import sys

from fairlead.store.contract import AlreadyThere, Batch, Committed, Fenced
from fairlead.store.postgres import PostgresStore
from fairlead.store.postgres_link import Limits
from tests.store.batches import batch_after, lead

BLOB = b"b" * 512 * 1024  # Does not fit into a socket buffer, so a stop often catches a message half sent.
COMMITS_MAX = 100_000


async def main(dsn: str, plane: str, holder: str) -> None:
    store = PostgresStore(dsn, plane, Limits(write_s=1.0))
    head = await store.open()
    fence = await lead(store, holder)
    last: Batch | None = None
    for number in range(COMMITS_MAX):
        batch = batch_after(last or head, BLOB)
        answer = await store.commit(fence, batch)
        if isinstance(answer, Fenced):
            print("fenced", flush=True)
            break
        if isinstance(answer, Committed | AlreadyThere):
            last = batch  # Anything else leaves `last`, so the same batch is submitted again.
        if number == 3:
            print("leading", flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
