"""Waits for one object to become as somebody wants it, through lost connections and expired history, for no longer than said.

Owns the wait; what is waited for is its caller's. Called by wait, delete and rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.cli.kinds import Target
from fairlead.cli.session import Session, WaitTimedOut
from fairlead.client.rest_shapes import Query

Seen = dict[str, Any] | None  # None: it is not there


async def until(session: Session, target: Target, namespace: str, holds: Callable[[Seen], bool], *, within_s: float,
                wanted: str, hint: Callable[[Seen], str] = lambda seen: "") -> Seen:  # fmt: skip
    """The object as it was when `holds` first said yes. WaitTimedOut after `within_s` seconds, with what was last seen."""
    import asyncio

    from fairlead.client.rest_watch import Watch

    query = Query(target.resource, namespace, fields=f"metadata.name={target.name}", region=session.region)
    seen: Seen = None
    try:
        async with asyncio.timeout(max(within_s, 0.001) if within_s >= 0 else None):
            async for event in Watch(session.client, query).events():
                if event.type == "DELETED":
                    seen = None
                elif event.type != "SYNCED":
                    seen = event.object
                if (event.type != "ADDED" or seen is not None) and holds(seen):
                    return seen
    except TimeoutError:
        raise WaitTimedOut(f"{target}: not {wanted} after {within_s:.3g} s", hint(seen)) from None
    raise AssertionError("a watch ended by itself")
