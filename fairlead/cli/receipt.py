"""`fairlead receipt`: what a write came to, by its idempotency key. For whoever got exit code 7."""

from __future__ import annotations

import click

from fairlead.cli.frame import CONFLICT, NOT_FOUND, OK, UNKNOWN, Told
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, put
from fairlead.client.rest_shapes import outcome_of


@click.command("receipt")
@click.argument("key")
@format_option()
@server_options()
@on_server
async def command(session: Session, key: str, form: Format) -> int:
    """Say what a write came to: KEY is what exit code 7 printed, or your --idempotency-key.

    Exit code 0: it was done. 4: it was refused. 3: the server has no trace of it. 7: it cannot be said yet.
    """
    from fairlead.client.rest_errors import NotFound

    key = key.removeprefix("receipt/")
    try:
        found = await session.client.receipt(key)
    except NotFound as error:
        hint = (
            f"if the write was sent more than a minute ago it was not done: send it again with --idempotency-key {key}. "
            "If more than a day ago, nobody remembers: look at the object first"
        )
        raise Told(f"there is no receipt {key!r}", hint=hint, code=NOT_FOUND) from error
    outcome = outcome_of(found)
    if not form.is_table:
        put(form, [found], single=True)
    else:
        status = found.get("status") or {}
        detail = " ".join(str(status[name]) for name in ("reason", "message", "key", "revision") if status.get(name))
        click.echo(f"receipt/{key} {outcome or 'Unknown'}{': ' + detail if detail else ''}")
    return OK if outcome == "Accepted" else CONFLICT if outcome == "Refused" else UNKNOWN
