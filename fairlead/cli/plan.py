"""`fairlead plan`: what would happen, before it does. Today: if a region were lost.

Owns the words. The answer is the recovery controller's, which works it out all the time with the function it acts by
(RegionOutlook); nothing is computed here.
"""

from __future__ import annotations

from typing import Any

import click

from fairlead.cli.frame import CHECK_FAILED, OK, Told
from fairlead.cli.kinds import of_model
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.client.rest_shapes import Query


@click.command("plan")
@click.option("--lose-region", "lost", required=True, metavar="REGION", help="As if this region were lost now.")
@format_option()
@server_options()
@on_server
async def command(session: Session, lost: str, form: Format) -> int:
    """Say what would become of every critical service if a region were lost now.

    \b
    fairlead plan --lose-region us-east
    fairlead plan --lose-region eu-central -o yaml

    Exit code 8 if a service would not reach its minimum.
    """
    outlooks = of_model()["regionoutlooks"]
    found = {one["metadata"]["name"]: one for one in (await session.client.list(Query(outlooks))).items}
    if lost not in found:
        known = ", ".join(sorted(found)) or "no region yet"
        raise Told(f"nothing is known of losing {lost!r}", hint=f"it is worked out for regions that are healthy: {known}")
    spec = found[lost].get("spec") or {}
    if form.is_table:
        _tell(lost, spec)
    else:
        put(form, [found[lost]], single=True)
    return CHECK_FAILED if spec.get("short") else OK


def _tell(region: str, spec: dict[str, Any]) -> None:
    services = spec.get("services") or ()
    if not services:
        click.echo(f"No critical service has slots in {region}: nothing would have to be recovered.")
        return
    ready, short = spec.get("ready", 0), spec.get("short", 0)
    if short:
        click.echo(f"If {region} were lost now, {short} of {ready + short} critical services would NOT reach their minimum.")
    else:
        click.echo(
            f"If {region} were lost now, all {ready} critical services would reach their minimum, in {spec['seconds']:.0f} s."
        )
    click.echo()
    rows = [_row(one) for one in services]
    put_lines(laid_out(["TENANT", "WORKLOAD", "IN REGION", "NEW SLOTS", "SECONDS", "MISSING", "WHY"], rows))
    if len(services) < ready + short:
        click.echo(f"and {ready + short - len(services)} more that would be well")


def _row(one: dict[str, Any]) -> list[str]:
    seconds = f"{one.get('seconds', 0):.0f}" if not one.get("missing") else "-"
    return [
        one.get("tenant", ""), one.get("workload", ""), one.get("region") or "<nowhere>", str(one.get("newSlots", 0)), seconds,
        str(one.get("missing", 0)), one.get("why") or "-",
    ]  # fmt: skip
