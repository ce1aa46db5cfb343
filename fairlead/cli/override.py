"""`fairlead override`: order an exception with a reason and an end, see what is in force, approve, extend or revoke it.

Owns the words and the manifest it writes. What an override does is done where it is evaluated (fairlead/decide/overrides.py); it
ends there too, whether or not anybody runs a command.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args, get_type_hints

import click

from fairlead.cli.access_work import WHOAMI
from fairlead.cli.ages import span
from fairlead.cli.complete import overrides as complete_overrides
from fairlead.cli.frame import CONFLICT, OK, LazyGroup, Told
from fairlead.cli.kinds import of_model
from fairlead.cli.output import note
from fairlead.cli.session import SOME_TIME, Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.cli.writing import confirmed, how, suffix, write_options, yes_option
from fairlead.client.rest_errors import Conflict
from fairlead.client.rest_shapes import GROUP, VERSION, Query, Write
from fairlead.decide.overrides import APPROVED_KINDS
from fairlead.model.kinds.policy import OverrideSpec

KINDS = tuple(get_args(get_type_hints(OverrideSpec)["kind"]))
TTL_S = 3600.0
ATTEMPTS = 5  # statuses are written all the time: one that alone has changed is no change of what was read
HEADINGS = ("NAME", "TENANT", "KIND", "ACTIVE", "LEFT", "REQUESTER", "APPROVER", "SCOPE", "PARAMETERS", "REASON")


@click.group("override", cls=LazyGroup)
def command() -> None:
    """Order exceptions that end by themselves: hold, freeze, zone-avoidance and others."""


known_argument = click.argument("name", metavar="NAME", shell_complete=complete_overrides)


@command.command("create")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", metavar="NAME")
@click.option("--reason", required=True, metavar="TEXT", help="Why: it is kept, and shown to whoever waits because of it.")
@click.option("--for", "ttl", type=SOME_TIME, default=TTL_S, show_default="1h", metavar="DURATION",
              help="After this it has no effect. At most 4h, or what the policy allows.")  # fmt: skip
@click.option("--of", "tenants", multiple=True, metavar="TENANT", help="About these tenants; * is all. [default: -n]")
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="About these workloads only.")
@click.option("--in-region", "regions", multiple=True, metavar="REGION", help="In these regions only.")
@click.option("--zone", "zones", multiple=True, metavar="ZONE", help="The zones to be avoided.")
@click.option("--set", "parameters", multiple=True, metavar="NAME=VALUE", help="How much, for emergency-quota: cpu=20.")
@yes_option
@write_options
@server_options()
@on_server
async def create(session: Session, kind: str, name: str, reason: str, ttl: float, tenants: tuple[str, ...],
                 workloads: tuple[str, ...], regions: tuple[str, ...], zones: tuple[str, ...], parameters: tuple[str, ...],
                 yes: bool, dry_run: str, idempotency_key: str) -> int:  # fmt: skip
    """Order an exception. Says first what it touches, and asks; off a terminal it needs --yes.

    \b
    hold              nothing new is bound for its scope
    freeze            what is wanted stays where it is: no rollouts, drains, moves
    zone-avoidance    no new work goes to these zones
    autoscaler-pause  autoscalers change nothing
    repair-approval   repairs wait until another person approves this override
    recovery          work is recovered as if its region were lost (needs approval)
    emergency-quota   a tenant may use more (needs approval)
    """
    scope = {"tenants": tenants, "workloads": workloads, "regions": regions, "zones": zones}
    if not any(scope.values()):
        scope["tenants"] = (session.namespace,)
    spec: dict[str, Any] = {
        "kind": kind, "reason": reason.strip(), "ttlSeconds": int(ttl),
        "scope": {field: list(names) for field, names in scope.items() if names},
    }  # fmt: skip
    if parameters:
        spec["parameters"] = dict(_pair(text) for text in parameters)
    manifest = _manifest(session.namespace, name, spec)
    overrides, write = of_model()["overrides"], how(session, dry_run, idempotency_key)
    note(f"override {session.namespace}/{name}, {kind} for {int(ttl)} s")
    if dry_run == "client":
        note("what it touches is the server's to say: --dry-run server")
    if dry_run == "none":
        await _told_first(session, manifest, write)
        confirmed(yes, f"Order {kind} {name}?")
    if dry_run != "client":
        await session.client.create(overrides, session.namespace, manifest, write)
    click.echo(f"override/{name} created{suffix(dry_run)}")
    if kind in APPROVED_KINDS:
        note(f"it has no effect until another person says 'fairlead override approve {name} -n {session.namespace}'")
    return OK


async def _told_first(session: Session, manifest: dict[str, Any], write: Write) -> None:
    """The server tries it, and says in warnings what it would touch; the write itself says none of them again."""
    try:
        trial = write._replace(dry_run=True, key="")
        await session.client.create(of_model()["overrides"], session.namespace, manifest, trial)
    except Conflict:
        if not write.key:  # Under a key it may be there because this very request was made before: the write knows.
            raise


def _manifest(namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Override", "metadata": metadata, "spec": spec}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Told(f"--set {text}: write NAME=VALUE, such as cpu=20")
    return name, value


@command.command("list")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all tenants.")
@format_option()
@server_options()
@on_server
async def list_overrides(session: Session, everywhere: bool, form: Format) -> int:
    """Show overrides: whether each is in force, how long it lasts, who asked and who agreed."""
    found = (await session.client.list(Query(of_model()["overrides"], "" if everywhere else session.namespace))).items
    if form.name not in ("table", "wide"):
        put(form, found, single=False)
        return OK
    if not found:
        note("there are no overrides" + ("" if everywhere else f" of tenant {session.namespace}; -A shows all"))
        return OK
    wall = session.client.clock.wall()
    put_lines(laid_out(HEADINGS, [_row(each, wall) for each in found]))
    return OK


def _row(each: dict[str, Any], wall: float) -> tuple[str, ...]:
    meta, spec = each["metadata"], each.get("spec") or {}
    active = _condition(each, "Active")
    shown = (
        active.get("reason", "Unknown")
        if active.get("status") != "True"
        else "Yes"
        if active["reason"] == "InForce"
        else "EndsSoon"
    )
    left = max(0, int(_end_s(each) - wall))
    return (
        meta["name"], meta.get("namespace", ""), spec.get("kind", ""), shown, span(left), spec.get("requester") or "-",
        spec.get("approver") or "-", _scope(spec), _parameters(spec), spec.get("reason", ""),
    )  # fmt: skip


def _scope(spec: dict[str, Any]) -> str:
    return "; ".join(f"{field} {','.join(names)}" for field, names in (spec.get("scope") or {}).items() if names)


def _parameters(spec: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in (spec.get("parameters") or {}).items()) or "-"


def _condition(each: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = (each.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def _born(each: dict[str, Any]) -> float:
    text = str(each["metadata"].get("creationTimestamp") or "1970-01-01T00:00:00Z")
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def _end_s(each: dict[str, Any]) -> float:
    return _born(each) + int((each.get("spec") or {}).get("ttlSeconds") or 0)


@command.command("approve")
@known_argument
@yes_option
@write_options
@server_options()
@on_server
async def approve(session: Session, name: str, yes: bool, dry_run: str, idempotency_key: str) -> int:
    """Agree to what another person asked for. Says first what that is, and asks; off a terminal it needs --yes.

    What was told is what is approved: exit code 4 if it was changed meanwhile. It may not change afterwards.
    """
    found = await session.client.get(of_model()["overrides"], session.namespace, name, region=session.region)
    _tell_asked(session, found)
    if dry_run == "none":
        confirmed(yes, f"Approve {found['spec'].get('kind')} {name}?")
    me = await _me(session)
    if dry_run != "client" and found["spec"].get("approver") != me:
        await _approve(session, found, me, how(session, dry_run, idempotency_key))
    click.echo(f"override/{name} approved by {me}{suffix(dry_run)}")
    return OK


def _tell_asked(session: Session, found: dict[str, Any]) -> None:
    meta, spec = found["metadata"], found["spec"]
    ends_s = _end_s(found)
    left_s = ends_s - session.client.clock.wall()
    note(f"override {meta.get('namespace', '')}/{meta['name']}, {spec.get('kind')}, asked for by {spec.get('requester') or '-'}")
    note(f"  reason      {spec.get('reason', '')}")
    note(f"  scope       {_scope(spec)}")
    note(f"  parameters  {_parameters(spec)}")
    when = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    note(f"  ends        {when}, {f'in {span(int(left_s))}' if left_s > 0 else 'which is over'}")


async def _me(session: Session) -> str:
    review = await session.client.post(WHOAMI, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    username = ((review.get("status") or {}).get("userInfo") or {}).get("username", "")
    me = username.rpartition(":")[2]  # `user:ann` is ann in overrides, as everywhere in objects
    if not me:
        raise Told("the server does not say who you are", hint="log in with a token of your own")
    return str(me)


async def _approve(session: Session, told: dict[str, Any], me: str, write: Write) -> None:
    """On the version that was told, or a later one that asks for the same."""
    overrides, name = of_model()["overrides"], told["metadata"]["name"]
    found = told
    for attempt in range(1, ATTEMPTS + 1):
        if found["metadata"].get("uid") != told["metadata"].get("uid") or found["spec"] != told["spec"]:
            hint = "look at what is asked for now: say 'approve' again"
            raise Told(f"override/{name} was changed while you read it; nothing was approved", hint=hint, code=CONFLICT)
        body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": {"approver": me}}
        try:
            await session.client.patch(overrides, session.namespace, name, body, write)
            return
        except Conflict:
            if write.key or attempt == ATTEMPTS:  # Under a key that was chosen, the refusal is what is remembered.
                raise
        found = await session.client.get(overrides, session.namespace, name, region=session.region)


@command.command("extend")
@known_argument
@click.option("--for", "more", type=SOME_TIME, required=True, metavar="DURATION", help="How long it is to last from now on.")
@write_options
@server_options()
@on_server
async def extend(session: Session, name: str, more: float, dry_run: str, idempotency_key: str) -> int:
    """Let an override last that much longer from now, within 4h of its beginning. One that has ended stays ended.

    What was approved may not change: then another one, NAME-2, is ordered. If its kind needs approval, so does that one; of
    other kinds it is in force at once.
    """
    overrides = of_model()["overrides"]
    found = await session.client.get(overrides, session.namespace, name)
    spec = found["spec"]
    write = how(session, dry_run, idempotency_key)
    if spec.get("approver"):
        after = _manifest(
            session.namespace, _next_name(name), {k: v for k, v in spec.items() if k not in ("approver", "requester")}
        )
        after["spec"]["ttlSeconds"] = int(more)
        if dry_run != "client":
            await session.client.create(overrides, session.namespace, after, write)
        click.echo(f"override/{after['metadata']['name']} created{suffix(dry_run)}")
        needs = f"has no effect until another person says 'fairlead override approve {_next_name(name)} -n {session.namespace}'"
        works = (
            needs if spec.get("kind") in APPROVED_KINDS else "is in force at once, approved by nobody: its kind does not need it"
        )
        note(f"{name} was approved and stays as it is; the new one {works}")
        return OK
    if _condition(found, "Expired").get("status") == "True":
        raise Told(f"override/{name} has ended", hint="order another one with 'fairlead override create'", code=CONFLICT)
    ttl = int(session.client.clock.wall() - _born(found) + more)
    if dry_run != "client":
        await session.client.patch(overrides, session.namespace, name, {"spec": {"ttlSeconds": ttl}}, write)
    click.echo(f"override/{name} lasts {int(more)} s from now{suffix(dry_run)}")
    return OK


def _next_name(name: str) -> str:
    stem, dash, number = name.rpartition("-")
    return f"{stem}-{int(number) + 1}" if dash and number.isdecimal() else f"{name}-2"


@command.command("revoke")
@known_argument
@write_options
@server_options()
@on_server
async def revoke(session: Session, name: str, dry_run: str, idempotency_key: str) -> int:
    """End an override now. Its effect is over as soon as this is stored, and in the regions as soon as they hear of it."""
    if dry_run != "client":
        await session.client.delete(of_model()["overrides"], session.namespace, name, how(session, dry_run, idempotency_key))
    click.echo(f"override/{name} revoked{suffix(dry_run)}")
    return OK
