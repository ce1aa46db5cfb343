"""`fairlead probe`: sends requests to a workload through its endpoints, as a client outside would, and tells what came back.

Owns where the endpoints are looked up: DNS or a document; by default the DNS server of the local platform. Sends no credentials
and asks no plane. The rest is fairlead/serving/prober.py's.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import click
import msgspec

from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, Told, World
from fairlead.cli.kinds import named, of_model
from fairlead.cli.output import json_option, put_json, put_table
from fairlead.cli.programs import state_option
from fairlead.cli.session import DURATION
from fairlead.ports import system_random
from fairlead.serving.dns_client import Unresolved, knows
from fairlead.serving.prober import ProbeOptions, probe, rows, through_dns, through_file


@click.command("probe")
@click.argument("workload")
@click.option("-n", "--namespace", "tenant", required=True, metavar="TENANT", help="The tenant the workload belongs to.")
@click.option("--rate", default=10.0, show_default=True, metavar="PER_SECOND", help="How many requests a second.")
@click.option("--duration", type=DURATION, default=10.0, show_default="10s", metavar="DURATION", help="For how long.")
@click.option("--port", default="http", show_default=True, metavar="NAME", help="The workload's port, by name.")
@click.option("--path", default="/", show_default=True, help="What to GET.")
@click.option("--timeout", type=DURATION, default=1.0, show_default="1s", metavar="DURATION", help="Of one request.")
@click.option("--region", default="", help="Only the endpoints of this region.")
@click.option("--max-outage", type=DURATION, default=None, metavar="DURATION", help="A longer outage ends with exit code 8.")
@click.option("--dns", default="", metavar="HOST:PORT", help="Ask this DNS server. Default: the local platform's.")
@click.option("--documents", type=click.Path(exists=True), help="Read endpoints documents: a file or a directory.")
@state_option
@json_option
@click.pass_obj
def command(
    world: World, workload: str, tenant: str, rate: float, duration: float, port: str, path: str, timeout: float, region: str,
    max_outage: float | None, dns: str, documents: str | None, state: str, as_json: bool,
) -> int:  # fmt: skip
    """Ask a workload's endpoints at a steady rate and tell what a client sees, by region and slot. Serving is what this sees.

    \b
    fairlead probe risk-api -n risk
    fairlead probe risk-api -n risk --rate 50 --duration 1m --max-outage 1s --json

    Exit code 3 if there is no such workload, 8 if no request succeeded, or if an outage was longer than --max-outage.
    """
    options = ProbeOptions(_named(workload), tenant, rate, duration, port, path, timeout, region, max_outage)
    faults = options.faults()
    if faults:
        raise Told("; ".join(faults))
    shown, passed = world.run(_probed(world, options, dns, documents, state))
    if as_json:
        put_json(shown)
    else:
        head, *table = rows(shown["results"])
        put_table(head, table)
    return OK if passed else CHECK_FAILED


def _named(word: str) -> str:
    """NAME, or KIND/NAME as other verbs take it."""
    kind, slash, name = word.rpartition("/")
    found = named(kind, of_model()) if slash else None
    if slash and (found is None or found.plural != "workloads" or not name):
        raise Told(f"{word!r} is no workload", hint="write its name, or wl/NAME")
    return name


async def _probed(
    world: World, options: ProbeOptions, dns: str, documents: str | None, state: str
) -> tuple[dict[str, Any], bool]:  # fmt: skip
    """A name that nobody knows is no outage; it is asked for first, where that can be known."""
    if dns and documents:
        raise Told("--dns and --documents: say one of them")
    place = Path(documents) if documents else None
    if place is None:
        server = _server(dns, state)
        try:
            known = await knows(server, options.tenant, options.workload, system_random())
        except Unresolved:
            known = True  # nobody can say
        resolve = through_dns(options, server, system_random())
    else:
        known = not place.is_dir() or (place / options.tenant / f"{options.workload}.json").exists()
        resolve = through_file(options, place)
    if not known:
        raise Told(
            f"there is no workload {options.workload} in tenant {options.tenant} that has endpoints", code=NOT_FOUND,
            hint="check the name and -n TENANT; a workload without ports has none",
        )  # fmt: skip
    return await probe(options, resolve, world.clock())


def _server(dns: str, state: str) -> tuple[str, int]:
    host, _, number = (dns or _local_dns(state)).rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise Told(f"--dns {dns}: write the IP address and the port of a DNS server, such as 127.0.0.1:5300") from None
    if not number.isdecimal() or not 0 < int(number) < 65536:
        raise Told(f"--dns {dns}: {number or 'nothing'} is no port")
    return host.strip("[]"), int(number)


class _Dns(msgspec.Struct):
    dns: str


def _local_dns(state: str) -> str:
    """As the configuration of the platform's endpoints process says."""
    try:
        return msgspec.json.decode(Path(state, "config", "endpoints.json").read_bytes(), type=_Dns).dns
    except (OSError, msgspec.DecodeError):
        hint = "`fairlead up` starts one; or say --dns HOST:PORT or --documents DIRECTORY"
        raise Told(f"there is no local platform in {state} whose DNS could be asked", hint=hint) from None
