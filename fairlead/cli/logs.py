"""`fairlead logs`: what the processes of a workload wrote, once or as it is written.

Owns the query; the server brings the text from the node. Text is passed on byte for byte.
"""

from __future__ import annotations

import sys

import click

from fairlead.cli.complete import workloads as complete_workloads
from fairlead.cli.frame import NOT_FOUND, OK, Told
from fairlead.cli.kinds import targets
from fairlead.cli.session import DURATION, Session, on_server, server_options
from fairlead.client.rest_errors import NotFound


@click.command("logs")
@click.argument("words", nargs=-1, metavar="WORKLOAD", shell_complete=complete_workloads)
@click.option("--slot", type=click.IntRange(min=0), default=None, help="Which replica; else the lowest one that runs.")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option("--tail", type=click.IntRange(min=0), default=None, help="Only the last so many lines.")
@click.option("--since", type=DURATION, default=None, metavar="DURATION", help="Only what is younger than this.")
@click.option("--previous", is_flag=True, help="Of the life before the last restart.")
@click.option("--limit-bytes", type=click.IntRange(min=1), default=None, help="At most so many bytes.")
@click.option("--stream", type=click.Choice(["all", "stdout", "stderr"]), default="all", show_default=True, help="Which output.")
@click.option("--timestamps", is_flag=True, help="Put the time before every line.")
@server_options()
@on_server
async def command(session: Session, words: tuple[str, ...], slot: int | None, follow: bool, tail: int | None, since: float | None,
                  previous: bool, timestamps: bool, limit_bytes: int | None, stream: str) -> int:  # fmt: skip
    """Show what a workload's process wrote: fairlead logs wl/risk-api --slot 2 -f."""
    words = words if any("/" in word for word in words) or len(words) > 1 else tuple(f"workloads/{word}" for word in words)
    found = await targets(session.client, words)
    if len(found) != 1 or not found[0].name or found[0].resource.plural != "workloads":
        raise Told("name one workload", hint="such as wl/risk-api, and --slot N for one of its replicas")
    given = {"slot": slot, "tailLines": tail, "sinceSeconds": max(1, int(since)) if since is not None else None,
             "limitBytes": limit_bytes, "stream": stream if stream != "all" else None,
             "region": session.region or None}  # fmt: skip
    params = {name: str(value) for name, value in given.items() if value is not None}
    params |= {name: "true" for name, on in (("follow", follow), ("previous", previous), ("timestamps", timestamps)) if on}
    path = found[0].resource.path(session.namespace, found[0].name, "log")
    try:
        async for chunk in session.client.text(path, params):
            _write(chunk)
    except NotFound as error:
        if slot is None and not previous:
            raise
        raise Told(error.message, code=NOT_FOUND) from error  # the workload is there, only not that part of it
    return OK


def _write(chunk: bytes) -> None:
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:
        sys.stdout.write(chunk.decode(errors="replace"))
    else:
        raw.write(chunk)
    sys.stdout.flush()
