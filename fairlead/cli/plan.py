"""`fairlead plan`: what a change would do, before it is made; and what would become of services if a region were lost.

Owns which change is asked about and how it is kept in a file. The answer is the server's, which tries the change on copies of
the planes with the functions it acts by; nothing is computed here. The words are plan_words.py's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from fairlead.cli import plan_words
from fairlead.cli.apply import file_options, sent_as
from fairlead.cli.complete import regions as complete_regions
from fairlead.cli.frame import CHANGES, CHECK_FAILED, NOT_FOUND, OK, Told
from fairlead.cli.kinds import of_model, targets
from fairlead.cli.output import note
from fairlead.cli.session import SOME_TIME, Session, on_server, server_options
from fairlead.cli.show import Format, format_option, put
from fairlead.client.rest_errors import ApiError
from fairlead.client.rest_shapes import GROUP, VERSION, Query

PATH = f"/apis/{GROUP}/{VERSION}/plans"
PLAN_S = 120.0  # a trial of a large platform takes its time
DRAIN_S = 600.0
VERBS = ("drain", "cordon", "uncordon", "delete", "policy")
Change = dict[str, Any]


@click.command("plan")
@click.argument("words", nargs=-1, metavar="[drain|cordon|uncordon NODE... | delete KIND/NAME... | policy REVISION]")
@file_options
@click.option("--lose-region", "lost", default="", metavar="REGION", shell_complete=complete_regions,
              help="As if this region were lost now.")  # fmt: skip
@click.option("--require-ready", is_flag=True, help="Exit code 8 if critical services would be left that no recovery reaches.")
@click.option("--deadline", type=SOME_TIME, default=DRAIN_S, show_default="10m", metavar="DURATION", help="Of a drain.")
@click.option("--force-conflicts", is_flag=True, help="As if fields that other managers own were taken over.")
@click.option("--field-manager", default="fairlead", show_default=True, help="Who would own the fields.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Keep the plan, for 'fairlead apply --plan FILE'.")
@format_option()
@server_options(PLAN_S)
@on_server
async def command(session: Session, words: tuple[str, ...], files: tuple[str, ...], recursive: bool, lost: str,
                  require_ready: bool, deadline: float, force_conflicts: bool, field_manager: str, out: Path | None,
                  form: Format) -> int:  # fmt: skip
    """Say what a change would do: who moves, who is evicted, who waits and why, recovery and cost. Nothing is changed.

    \b
    fairlead plan -f risk-api.yaml
    fairlead plan -f quota.yaml -f budget.yaml --out friday.plan
    fairlead plan drain eu-n3
    fairlead plan delete wl/analytics
    fairlead plan policy 7
    fairlead plan --lose-region us-east

    The server tries the change on a copy of what it has now. Exit code 2 if anything would change, 0 if nothing would, whatever
    is planned: of --lose-region 2 if anything runs there. With --require-ready 8 instead, if a critical service would not reach
    its minimum after the loss; of another change, if more of them would not survive the loss of some region than today, or if
    that is not known.
    """
    if lost:
        if words or files or out:
            raise Told("--lose-region is a plan of its own", hint="leave out files and other changes")
        return await _lose(session, lost, form, require_ready)
    changes = [*_manifests(session, files, recursive), *await _ordered(session, words, deadline)]
    if not changes:
        raise Told("say which change", hint="-f FILE, drain NODE, delete KIND/NAME, policy REVISION or --lose-region REGION")
    spec = {"changes": changes, "marks": out is not None}
    got = await session.client.post(asked_as(field_manager, force_conflicts), {"spec": spec})
    status: dict[str, Any] = got["status"]
    if out is not None:
        kept = {"kind": "SavedPlan", "apiVersion": got["apiVersion"], "fieldManager": field_manager, "force": force_conflicts,
                "changes": changes, "base": got["base"], "status": status}  # fmt: skip
        out.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    if form.is_table:
        plan_words.tell(status)
    else:
        shown = {**got, "base": {name: value for name, value in got["base"].items() if name != "marks"}}
        put(form, [shown], single=True)
    if out is not None:
        note(f"kept in {out}; carry it out with: fairlead apply --plan {out}")
    return _code(bool(status["changed"]), not require_ready or _stays_ready(status))


def _stays_ready(status: dict[str, Any]) -> bool:
    """No more critical services would be left behind than today. What cannot be seen is not taken for granted."""
    unseen = [f"{name} cannot be read" for name in status["unreachable"]]
    if not status["readiness"]:
        unseen.append("what would survive the loss of a region is not yours to see, or not worked out yet")
    if unseen:
        note(f"not known to be ready: {'; '.join(unseen)}")
    return not unseen and not any(row["shortAfter"] > row["shortBefore"] for row in status["readiness"])


def asked_as(field_manager: str, force: bool) -> str:
    """Where a plan is asked for, by whom."""
    return f"{PATH}?{urlencode({'fieldManager': field_manager, 'force': 'true' if force else 'false'})}"


def _code(changed: bool, fine: bool) -> int:
    """The same for whatever is planned."""
    if not fine:
        return CHECK_FAILED
    return CHANGES if changed else OK


def _manifests(session: Session, files: tuple[str, ...], recursive: bool) -> list[Change]:
    if not files:
        return []
    from fairlead.cli.manifests import load

    documents = load(files, recursive=recursive, tenant=session.said_tenant)
    return [{"apply": sent_as(each, each.namespace(session.namespace))} for each in documents]


async def _ordered(session: Session, words: tuple[str, ...], deadline: float) -> list[Change]:
    if not words:
        return []
    verb, names = words[0], words[1:]
    if verb not in VERBS or not names:
        raise Told(f"cannot plan {' '.join(words)!r}", hint=f"say one of {', '.join(VERBS)}, and of what")
    match verb:
        case "delete":
            found = await targets(session.client, names)
            return [{"delete": _named(one.resource.kind, one.name, session.namespace_of(one.resource))} for one in found]
        case "policy":
            return [await _deciding(session, names)]
    spec: dict[str, Any] = {"unschedulable": verb != "uncordon"}
    if verb == "drain":
        end = datetime.fromtimestamp(session.client.clock.wall() + deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        spec["drain"] = {"reason": "planned", "deadlineTime": end}
    if verb == "uncordon":
        spec["drain"] = None
    return [{"patch": _named("Node", name.rpartition("/")[2]) | {"spec": spec}} for name in names]


def _named(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name} | ({"namespace": namespace} if namespace else {})}


async def _deciding(session: Session, names: tuple[str, ...]) -> Change:
    """As if this revision decided for everybody."""
    from fairlead.decide.channels import rolled_back
    from fairlead.model.kinds.policy import PolicyChannelSpec

    revision = int(names[0].removeprefix("r")) if len(names) == 1 and names[0].removeprefix("r").isdecimal() else 0
    if revision < 1:
        raise Told("name one policy revision, such as 7", hint="see 'fairlead policy list'")
    channel = await session.client.get(of_model()["policychannels"], "", "default")
    before = msgspec.convert(channel["spec"], PolicyChannelSpec)
    made = rolled_back(before, revision) or before
    # What is left out of a patch stays: a canary and a history that would be no more are taken out by name.
    spec = {"canary": None, "history": [], **msgspec.to_builtins(made)}
    return {"patch": _named("PolicyChannel", "default") | {"spec": spec}}


# --- the loss of a region


async def _lose(session: Session, lost: str, form: Format, require_ready: bool) -> int:
    """The recovery controller works it out all the time, with the function it acts by (RegionOutlook)."""
    outlooks = of_model()["regionoutlooks"]
    found = {one["metadata"]["name"]: one for one in (await session.client.list(Query(outlooks))).items}
    if lost not in found:
        known = ", ".join(sorted(found)) or "no region yet"
        hint = f"it is worked out for regions that are healthy: {known}"
        raise Told(f"nothing is known of losing {lost!r}", hint=hint, code=NOT_FOUND)
    spec = found[lost].get("spec") or {}
    ready = not spec.get("short")
    others = await _runs_anything(session, lost)
    gone = await _is_lost(session, lost)
    changed = bool(spec.get("services")) or others
    if form.is_table:
        plan_words.tell_loss(lost, spec, others, gone=gone)
    else:
        status = {**(found[lost].get("status") or {}), "changed": changed, "recoveryReady": ready, "lost": gone}
        put(form, [{**found[lost], "status": status}], single=True)
    return _code(changed, ready or not require_ready)


async def _is_lost(session: Session, region: str) -> bool:
    """Its outlook stands still from then on."""
    try:
        found = await session.client.get(of_model()["regions"], "", region)
    except ApiError:
        return False
    return (found.get("status") or {}).get("health") == "Lost"


async def _runs_anything(session: Session, region: str) -> bool:
    """Any slot that this caller may see."""
    page = await session.client.read(of_model()["bindings"].path(""), {"region": region, "limit": "1"})
    return bool(page.get("items"))
