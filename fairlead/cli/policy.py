"""`fairlead policy`: look at policy revisions, try one on some, promote it or go back.

Owns the words and which channel it writes; the steps of a channel are decide/channels.py's. No step restarts anything: slots keep
the revision they were placed under. A canary that nobody promotes is ended by the policy controller.
"""

from __future__ import annotations

import difflib
from typing import Any

import click
import msgspec

from fairlead.cli import policy_words
from fairlead.cli.frame import CHANGES, CONFLICT, NOT_FOUND, OK, LazyGroup, Told
from fairlead.cli.kinds import of_model
from fairlead.cli.output import note
from fairlead.cli.session import SOME_TIME, Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.cli.writing import confirmed, how, suffix, write_options, yes_option
from fairlead.client.rest_errors import NotFound
from fairlead.client.rest_shapes import GROUP, VERSION, Query
from fairlead.decide.admission.policy import CANARY_TTL_S_MAX
from fairlead.decide.channels import promoted, rolled_back, tried
from fairlead.model.kinds.policy import Canary, PolicyChannelSpec, SchedulerPolicySpec

CHANNEL = "default"
TTL_S = 3600.0


@click.group("policy", cls=LazyGroup)
def command() -> None:
    """Look at policy revisions, try one on some, promote it, or go back."""


revision_argument = click.argument("revision", type=click.IntRange(min=1), metavar="REVISION")


async def _channel(session: Session) -> tuple[dict[str, Any] | None, PolicyChannelSpec | None]:
    try:
        found = await session.client.get(of_model()["policychannels"], "", CHANNEL)
    except NotFound:
        return None, None
    return found, msgspec.convert(found["spec"], PolicyChannelSpec)


async def _there(session: Session) -> tuple[dict[str, Any], PolicyChannelSpec]:
    found, spec = await _channel(session)
    if found is None or spec is None:
        raise Told("there is no policy channel: the built-in policy decides", hint="apply a PolicyChannel first", code=NOT_FOUND)
    return found, spec


async def _write(session: Session, found: dict[str, Any], spec: PolicyChannelSpec, dry_run: str, key: str) -> None:
    """On the version that was seen, so that nobody's promotion is undone by another's."""
    if dry_run == "client":
        return
    made = msgspec.to_builtins(spec)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "PolicyChannel", "metadata": found["metadata"], "spec": made}
    await session.client.replace(of_model()["policychannels"], "", CHANNEL, body, how(session, dry_run, key))


@command.command("list")
@format_option()
@server_options()
@on_server
async def list_policies(session: Session, form: Format) -> int:
    """Show the revisions and which of them decide."""
    found = (await session.client.list(Query(of_model()["schedulerpolicies"]))).items
    if form.name not in ("table", "wide"):
        put(form, found, single=False)
        return OK
    _, spec = await _channel(session)
    found.sort(key=lambda each: -int(each["spec"]["revision"]))
    rows = [(f"r{each['spec']['revision']}", _role(int(each["spec"]["revision"]), spec), _born(each)) for each in found]
    rows.append(("built-in", "" if spec is not None else "decides", ""))
    put_lines(laid_out(("REVISION", "ROLE", "CREATED"), rows))
    return OK


def _born(each: dict[str, Any]) -> str:
    return str(each["metadata"].get("creationTimestamp") or "")


def _role(revision: int, spec: PolicyChannelSpec | None) -> str:
    if spec is None:
        return ""
    if revision == spec.current:
        return "decides"
    if spec.canary is not None and revision == spec.canary.revision:
        return f"canary: {_on_whom(spec.canary)}"
    return "before" if revision in spec.history else ""


def _on_whom(canary: Canary) -> str:
    parts = [f"tenants {','.join(canary.tenants)}"] if canary.tenants else []
    parts += [f"{canary.share_percent} % of tenants"] if canary.share_percent else []
    parts += [f"regions {','.join(canary.regions)}"] if canary.regions else []
    return "; ".join(parts)


async def _policy(session: Session, revision: int) -> dict[str, Any]:
    found: dict[str, Any] = await session.client.get(of_model()["schedulerpolicies"], "", f"r{revision}")
    return found


@command.command("show")
@revision_argument
@format_option("yaml")
@server_options()
@on_server
async def show(session: Session, revision: int, form: Format) -> int:
    """Show one revision."""
    put(form, [await _policy(session, revision)], single=True)
    return OK


@command.command("diff")
@click.argument("before", type=click.IntRange(min=1), metavar="BEFORE")
@click.argument("after", type=click.IntRange(min=1), metavar="AFTER")
@server_options()
@on_server
async def diff(session: Session, before: int, after: int) -> int:
    """Show what differs between two revisions. Exit code 2 if anything does."""
    texts = []
    for revision in (before, after):
        spec = {**(await _policy(session, revision))["spec"]}
        spec.pop("revision", None)
        texts.append(msgspec.json.format(msgspec.json.encode(spec, order="sorted"), indent=2).decode().splitlines())
    lines = list(difflib.unified_diff(texts[0], texts[1], f"r{before}", f"r{after}", lineterm=""))
    put_lines(lines)
    return CHANGES if lines else OK


@command.command("canary")
@revision_argument
@click.option("--of", "tenants", multiple=True, metavar="TENANT", help="Try it on these tenants.")
@click.option("--share", type=click.IntRange(0, 100), default=0, metavar="PERCENT", help="Try it on this share of the tenants.")
@click.option("--in-region", "regions", multiple=True, metavar="REGION", help="Try it in these regions only.")
@click.option("--for", "ttl", type=SOME_TIME, default=TTL_S, show_default="1h", metavar="DURATION",
              help="It is taken back after this if nobody promoted it. At most 4h.")  # fmt: skip
@write_options
@server_options()
@on_server
async def canary(session: Session, revision: int, tenants: tuple[str, ...], share: int, regions: tuple[str, ...], ttl: float,
                 dry_run: str, idempotency_key: str) -> int:  # fmt: skip
    """Let a revision decide for some: tenants by name or share, or whole regions."""
    if not (tenants or share or regions):
        raise Told("say on whom: --of TENANT, --share PERCENT or --in-region REGION")
    await _policy(session, revision)
    found, spec = await _there(session)
    trial = Canary(revision=revision, tenants=tenants, share_percent=share, regions=regions, ttl_seconds=int(ttl))
    new = tried(spec, trial)
    note(await policy_words.reach(session, new))
    await _write(session, found, new, dry_run, idempotency_key)
    left_s = policy_words.left_s(found, trial, session.client.clock.wall())
    if left_s < trial.ttl_seconds:
        note("ordered the same before" if new == spec else f"tried before: it ends {CANARY_TTL_S_MAX} s after its first order")
    click.echo(f"revision {revision} is tried on {_on_whom(trial)} for {left_s} s{suffix(dry_run)}")
    return OK


@command.command("promote")
@yes_option
@write_options
@server_options()
@on_server
async def promote(session: Session, yes: bool, dry_run: str, idempotency_key: str) -> int:
    """Let the canary's revision decide for everybody, after saying what that changes. Asks first; off a terminal it needs --yes.

    Exit code 4 if there is no canary, 5 if nobody confirmed.
    """
    found, spec = await _there(session)
    new = promoted(spec)
    if new is None:
        raise Told("there is no canary to promote", hint="try a revision with 'fairlead policy canary'", code=CONFLICT)
    note(f"from revision {spec.current} to {new.current}:")
    for line in await _changes(session, spec.current, new.current):
        note(f"  {line}")
    note(await policy_words.reach(session, spec))
    if dry_run == "none":
        confirmed(yes, f"Let revision {new.current} decide for everybody?")
    await _write(session, found, new, dry_run, idempotency_key)
    click.echo(f"revision {new.current} decides{suffix(dry_run)}")
    return OK


async def _changes(session: Session, before: int, after: int) -> list[str]:
    specs = [msgspec.convert((await _policy(session, one))["spec"], SchedulerPolicySpec) for one in (before, after)]
    return policy_words.changes(*specs) or ["nothing: both decide alike"]


@command.command("rollback")
@click.option("--to", type=click.IntRange(min=1), default=None, metavar="REVISION", help="Which one. [default: the one before]")
@write_options
@server_options()
@on_server
async def rollback(session: Session, to: int | None, dry_run: str, idempotency_key: str) -> int:
    """End a canary, or without one go back to the revision before. Nothing that runs is restarted."""
    found, spec = await _there(session)
    new = rolled_back(spec, to or 0)
    if new is None:
        said = f"revision {to} decides already" if to and to == spec.current else "there is nothing to go back to"
        raise Told(said, hint="'fairlead policy list' shows the revisions", code=CONFLICT)
    try:
        await _policy(session, new.current)
    except NotFound as error:
        hint = "'fairlead policy list' shows those there are; name one with --to"
        raise Told(f"revision {new.current} is not there any more", hint=hint, code=NOT_FOUND) from error
    await _write(session, found, new, dry_run, idempotency_key)
    note("slots keep the revision they were placed under")
    click.echo(f"revision {new.current} decides{suffix(dry_run)}")
    return OK
