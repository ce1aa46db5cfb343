"""Which planes nobody can write to just now, told as a warning to whoever looks at planes: what is stored of a plane says who led
last, and goes on to say it while its store takes nothing. Called by reading.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from fairlead.api.calls import Call
from fairlead.api.columns import age_of
from fairlead.api.failures import Failure
from fairlead.api.members import Member
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable
from fairlead.ports import Tasks


async def warn_of_unwritable(call: Call, members: list[Member]) -> None:
    if call.resource.plural != "planes" or call.query.get("at"):
        return
    async with Tasks() as tasks:
        asked = [tasks.start(_unwritable_s(member), member.name) for member in members]
    for member, task in zip(members, asked, strict=True):
        unwritable_s = task.result()
        if unwritable_s is not None:
            since = datetime.fromtimestamp(call.services.clock.wall() - unwritable_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            call.warn(
                f"{member.name}: nobody can write since {since} ({age_of(unwritable_s)}): its store does not answer or takes "
                "nothing; see /readyz?verbose of its server"
            )


async def _unwritable_s(member: Member) -> float | None:
    try:
        return await member.ask(partial(member.plane.ask_unwritable_s))
    except (Unreachable, Expired, Failure):  # one that is away is told of with what it has; one that is busy writes
        return None
