"""`fairlead auth`: what may I do, who am I, and tokens: create, list, revoke, rotate; join tokens for nodes.

Owns the words and the output; what is done is in fairlead/cli/access_work.py. A new token is printed once, alone on stdout.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from fairlead.cli import access_work as work
from fairlead.cli.frame import ERROR, OK, LazyGroup, Told
from fairlead.cli.output import json_option, note, put_json, put_pairs, put_table
from fairlead.cli.session import DURATION, Session, on_server, server_options

REASON = click.option("--reason", default="", help="Why; kept with the token.")


class SessionObjects:
    """The client interface of access_work over the command line's own client."""

    def __init__(self, session: Session) -> None:
        self._client = session.client

    async def read(self, plural: str, tenant: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.get(_resource(plural), tenant, name)
        return found

    async def listed(self, plural: str, tenant: str) -> list[dict[str, Any]]:
        from fairlead.client.rest_shapes import Query

        return list((await self._client.list(Query(_resource(plural), tenant))).items)

    async def create(self, plural: str, tenant: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._client.create(_resource(plural), tenant, body)
        return body

    async def merge(self, plural: str, tenant: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._client.patch(_resource(plural), tenant, name, body)
        return body

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.post(path, body)
        return found


def _resource(plural: str) -> Any:
    from fairlead.client.rest_shapes import Resource
    from fairlead.model.registry import KINDS

    return Resource(plural, KINDS[plural].kind, KINDS[plural].namespaced)


def _now(session: Session) -> datetime:
    from fairlead.security.certificates import instant

    return instant(session.world.clock().wall())


@click.group("auth", cls=LazyGroup)
def command() -> None:
    """Ask what you may do and who you are; create, list, revoke and rotate tokens."""


@command.command("can-i")
@click.argument("verb", required=False)
@click.argument("what", required=False, metavar="KIND[/NAME]")
@click.option("--subresource", default="", help="status, scale, why, logs, ...")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In every tenant.")
@click.option("--list", "everything", is_flag=True, help="List all that is allowed in the tenant.")
@click.option("-q", "--quiet", is_flag=True, help="Say it with the exit code only.")
@server_options()
@on_server
async def can_i(
    session: Session, verb: str | None, what: str | None, subresource: str, everywhere: bool, everything: bool, quiet: bool
) -> int:
    """Say whether you may do VERB to KIND. Exit code 0: yes, 1: no."""
    client = SessionObjects(session)
    if everything:
        found = await work.rules(client, session.namespace)
        rows = [[kind, ",".join(rule.get("verbs", ()))] for rule in found for kind in rule.get("resources", ())]
        put_table(["RESOURCE", "VERBS"], sorted(rows))
        return OK
    if not verb or not what:
        raise Told("say a verb and a kind", hint="for example: fairlead auth can-i create workloads -n risk")
    kind, _, name = what.partition("/")
    tenant = "" if everywhere else session.namespace
    allowed, reason = await work.can_i(client, verb, _plural(kind), tenant, name, subresource)
    if not quiet:
        click.echo("yes" if allowed else "no")
        if not allowed and reason:
            note(reason)
    return OK if allowed else ERROR


def _plural(word: str) -> str:
    from fairlead.model.registry import KINDS

    for plural, info in KINDS.items():
        if word.lower() in (plural, info.kind.lower(), *info.short_names):
            return plural
    return word


@command.command("whoami")
@json_option
@server_options()
@on_server
async def whoami(session: Session, as_json: bool) -> int:
    """Say whom the server takes you for."""
    user = await work.who_am_i(SessionObjects(session))
    if as_json:
        put_json(user)
        return OK
    pairs = [("username", str(user.get("username", ""))), ("groups", ", ".join(user.get("groups", ())) or "-")]
    put_pairs([*pairs, *((key, ", ".join(values)) for key, values in sorted(user.get("extra", {}).items()))])
    return OK


@command.group("token", cls=LazyGroup)
def token() -> None:
    """Create, list, revoke and rotate tokens."""


@token.command("create")
@click.argument("subject", metavar="USER|serviceaccount/NAME")
@click.option(
    "--expires-in", type=DURATION, default="2160h", show_default="90 days", metavar="DURATION", help="When it ends by itself."
)
@click.option("--only-tenant", "narrowed", multiple=True, help="Narrow it to this tenant; may be repeated.")
@json_option
@server_options()
@on_server
async def create(session: Session, subject: str, expires_in: float, narrowed: tuple[str, ...], as_json: bool) -> int:
    """Issue a token for a person, or for a service account of the tenant (-n). It is printed once and kept nowhere."""
    kind, slash, name = subject.rpartition("/")
    if slash and kind not in ("serviceaccount", "serviceaccounts", "sa"):
        raise Told(f"{kind!r} is no kind of subject", hint="write USER, or serviceaccount/NAME with -n TENANT")
    wanted = work.Wanted(name, session.namespace if slash else "", narrowed, timedelta(seconds=expires_in))
    issued = await work.create_token(SessionObjects(session), session.world.ids(), _now(session), wanted)
    return _show(issued, as_json)


@command.command("join-token")
@click.argument("node")
@click.option("--in-region", "node_region", required=True, help="The region the node belongs to.")
@click.option("--cpu", required=True, help="The most it may offer: 16, 500m.")
@click.option("--memory", required=True, help="The most it may offer: 64Gi.")
@click.option("--zone", default="", help="The zone the node is in.")
@click.option("--pool", default="", help="The pool it belongs to.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Labels of the node; it cannot choose them itself.")
@click.option("--device", "devices", multiple=True, metavar="RESOURCE=COUNT", help="The most devices it may have.")
@click.option("--max-slots", type=click.IntRange(min=1), default=110, show_default=True, help="Slots it may take at most.")
@click.option("--expires-in", type=DURATION, default="1h", show_default=True, metavar="DURATION", help="How long it may be used.")
@json_option
@server_options()
@on_server
async def join_token(
    session: Session,
    node: str,
    node_region: str,
    cpu: str,
    memory: str,
    zone: str,
    pool: str,
    labels: tuple[str, ...],
    devices: tuple[str, ...],
    max_slots: int,
    expires_in: float,
    as_json: bool,
) -> int:
    """Issue a token with which the agent of NODE gets its certificate, once. What is said here is the most the node may be."""
    profile: dict[str, Any] = {
        "node": node,
        "region": node_region,
        "capacity": {"cpu": cpu, "memory": memory},
        "labels": _pairs(labels, "--label"),
        "devices": {key: _count(value) for key, value in _pairs(devices, "--device").items()},
        "maxSlots": max_slots,
    }
    profile |= {key: value for key, value in (("zone", zone), ("pool", pool)) if value}
    lifetime = timedelta(seconds=expires_in)
    issued = await work.create_join_token(SessionObjects(session), session.world.ids(), _now(session), profile, lifetime)
    return _show(issued, as_json)


def _pairs(words: tuple[str, ...], flag: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Told(f"{flag} {word}: expected KEY=VALUE")
        found[key] = value
    return found


def _count(text: str) -> int:
    if not text.isdecimal():
        raise Told(f"--device: {text!r} is no number")
    return int(text)


@token.command("list")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of every tenant.")
@click.option("--system", is_flag=True, help="Those of people and nodes.")
@json_option
@server_options()
@on_server
async def list_tokens(session: Session, everywhere: bool, system: bool, as_json: bool) -> int:
    """List tokens: whose, until when, when last used. The tokens themselves are known to nobody but their owners."""
    tenant = "" if everywhere else work.SYSTEM_TENANT if system else session.namespace
    now = _now(session)
    rows = [work.row_of(found, now) for found in await SessionObjects(session).listed("tokens", tenant)]
    if as_json:
        put_json({"tokens": rows})
    else:
        names = ["name", "tenant", "purpose", "subject", "expires", "last_used", "state"]
        put_table([name.upper().replace("_", "-") for name in names], [[row[name] for name in names] for row in rows])
    return OK


@token.command("revoke")
@click.argument("name", required=False)
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Refuse this certificate.")
@click.option("--system", is_flag=True, help="NAME is a token of a person or a node.")
@REASON
@server_options()
@on_server
async def revoke(session: Session, name: str | None, certificate: Path | None, system: bool, reason: str) -> int:
    """Revoke a token, from the next request on. With a join token go the certificates that came of it."""
    client = SessionObjects(session)
    if certificate is not None:
        made = await work.revoke_certificate(client, session.world.ids(), certificate.read_bytes(), reason)
        click.echo(f"token/{made}")
        return OK
    if not name:
        raise Told("say which: NAME, or --certificate FILE")
    await work.revoke(client, work.SYSTEM_TENANT if system else session.namespace, name, reason)
    click.echo(f"token/{name} revoked")
    return OK


@token.command("rotate")
@click.argument("name")
@click.option("--system", is_flag=True, help="NAME is a token of a person.")
@click.option(
    "--overlap", type=DURATION, default="1h", show_default=True, metavar="DURATION", help="How long the old one still works."
)
@json_option
@server_options()
@on_server
async def rotate(session: Session, name: str, system: bool, overlap: float, as_json: bool) -> int:
    """Issue a token in the place of NAME: the same subject, as long a life."""
    tenant = work.SYSTEM_TENANT if system else session.namespace
    try:
        issued = await work.rotate(
            SessionObjects(session), session.world.ids(), _now(session), tenant, name, timedelta(seconds=overlap)
        )
    except ValueError as error:
        raise Told(str(error)) from error
    return _show(issued, as_json)


def _show(issued: work.Issued, as_json: bool) -> int:
    if as_json:
        facts = {
            "name": issued.name,
            "tenant": issued.tenant,
            "expires": work.instant(issued.expiry),
            "token": issued.text.reveal(),
        }
        put_json(facts)
    else:
        click.echo(issued.text.reveal())
        note(f"token/{issued.name} in {issued.tenant}, until {work.instant(issued.expiry)}. It is not shown again.")
    return OK
