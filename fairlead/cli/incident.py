"""`fairlead incident`: opens one, shows what is out of order since, and closes it only when everything is cleaned up.

Owns the checks of the clean-up and the words. An incident is a Config in the system's tenant, so that it is durable, audited and
seen by everybody who may; nothing acts on it. Overrides, quotas and budgets are changed by their own commands.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import click

from fairlead.cli import copies
from fairlead.cli.frame import CHECK_FAILED, CONFLICT, NOT_FOUND, OK, LazyGroup, Told
from fairlead.cli.kinds import of_model
from fairlead.cli.output import note
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.client.rest_errors import ApiError, NotFound
from fairlead.client.rest_shapes import GROUP, VERSION, Query
from fairlead.model.kinds.access import SYSTEM_TENANT

PREFIX: Final = "incident."
LABEL: Final = "fairlead.dev/incident"
LEAKED_S: Final = 90.0  # S10
SHOWN_MAX: Final = 20  # events
NOTE_MAX: Final = 100  # characters of one

# Why slots wait that no waiting helps: something has to be put right first.
BLOCKED: Final = frozenset({"Misconfigured", "NoMatchingCapacity", "ResidencyBlocked", "PolicyAuthorityUnreachable"})

Tree = dict[str, Any]
Lists = dict[str, list[Tree]]
ASKED: Final = ("overrides", "quotas", "grants", "reservations", "bindings", "recoveryorders", "regions", "nodes", "workloads")


class Check(NamedTuple):
    name: str
    left: list[str]  # what is not as it should be; empty: clean

    @property
    def passed(self) -> bool:
        return not self.left


def checks(found: Lists, now_s: float) -> list[Check]:
    """Everything that must be so before an incident is over."""
    parts: tuple[tuple[str, Callable[[Lists, float], list[str]]], ...] = (
        ("no override is in force", _overrides),
        ("no emergency quota is in force", _emergency),
        ("no tenant uses more than its quota", _over_quota),
        ("no reservation is leaked", _leaked),
        ("no placement waits to be confirmed", _provisional),
        ("recovery budgets are returned", _recovering),
        ("every region is healthy", _regions),
        ("every node is heard", _nodes),
        ("every workload serves what it must", _workloads),
    )
    return [Check(name, look(found, now_s)) for name, look in parts]


def _overrides(found: Lists, now_s: float) -> list[str]:
    return [
        f"{_name(one)} ({one['spec'].get('kind')} by {one['spec'].get('requester') or 'nobody'}): {one['spec'].get('reason', '')}"
        for one in found["overrides"]
        if not one["metadata"].get("deletionTimestamp") and _ends_s(one) > now_s
    ]


def _ends_s(override: Tree) -> float:
    said = (override.get("status") or {}).get("expiryTime")
    if said:
        return _seconds(said)
    return _seconds(override["metadata"].get("creationTimestamp") or "") + float(override["spec"].get("ttlSeconds") or 0)


def _emergency(found: Lists, now_s: float) -> list[str]:
    return [
        f"{_name(one)}: {one['spec']['emergency']}"
        for one in found["grants"]
        if one["spec"].get("emergency") and _seconds(one["spec"].get("emergencyEndTime") or "9999-01-01T00:00:00Z") > now_s
    ]


def _leaked(found: Lists, now_s: float) -> list[str]:
    ended = [(one, one["spec"].get("expiryTime")) for one in found["reservations"]]
    return _unheard(found, "reservations") + [
        f"{_name(one)} ran out {now_s - _seconds(when):.0f} s ago"
        for one, when in ended
        if when and now_s - _seconds(when) > LEAKED_S
    ]


def _provisional(found: Lists, now_s: float) -> list[str]:
    """Confirmed is what is there while its region's leases are renewed; of a region that is not heard nobody knows."""
    apart = {one["metadata"]["name"] for one in found["regions"] if _health(one) != "Healthy"}
    nodes = {one["metadata"]["name"] for one in found["nodes"] if one["spec"].get("region") in apart}
    return _unheard(found, "bindings") + [
        _name(one) for one in found["bindings"] if one["spec"].get("provisionalUntilTime") and one["spec"].get("node") in nodes
    ]


def _over_quota(found: Lists, now_s: float) -> list[str]:
    return [f"{_name(one)}: {said}" for one in found["quotas"] if (said := _true(one, "OverQuota")) is not None]


def _true(one: Tree, kind: str) -> str | None:
    conditions = (one.get("status") or {}).get("conditions") or ()
    return next((str(c.get("message")) for c in conditions if c.get("type") == kind and c.get("status") == "True"), None)


def _recovering(found: Lists, now_s: float) -> list[str]:
    """An order stays a while after the loss: its slots go when what they stood in for has been well for long enough."""

    def for_whom(order: Tree) -> str:
        lost = order["spec"].get("lost")
        return f"stands in for {', '.join(lost)}" if lost else "goes back to where it was"

    return [f"{_name(one)} {for_whom(one)}" for one in found["recoveryorders"]]


def _regions(found: Lists, now_s: float) -> list[str]:
    silent = [f"{one['metadata']['name']} is {_health(one)}" for one in found["regions"] if _health(one) != "Healthy"]
    partial = [(one["metadata"]["name"], _true(one, "Partial")) for one in found["regions"]]
    return silent + [f"{name} is partial: {said}" for name, said in partial if said is not None]


def _nodes(found: Lists, now_s: float) -> list[str]:
    heard = [one for one in found["nodes"] if copies.age_s(one) is None]
    silent = [f"{one['metadata']['name']} is {_health(one)}" for one in heard if _health(one) != "Ready"]
    return _unheard(found, "nodes") + silent


def _unheard(found: Lists, plural: str) -> list[str]:
    """Regions of which nobody knows how their objects stand: nothing there can be called clean."""
    lost = {one["metadata"]["name"]: "" for one in found["regions"] if _health(one) != "Healthy"}
    ages = {copies.region_of(one): f" for {age_s:.0f} s" for one in found[plural] if (age_s := copies.age_s(one)) is not None}
    return [f"{plural} of {region} are not heard of{said}" for region, said in sorted((lost | ages).items())]


def _workloads(found: Lists, now_s: float) -> list[str]:
    """Jobs serve nobody: what they must is run, and those that wait their turn do. One that is blocked does not."""
    out = []
    for one in found["workloads"]:
        for condition in (one.get("status") or {}).get("conditions") or ():
            owes = condition.get("reason") not in ("Suspended", "ScaledToZero")
            if condition.get("type") == "Serving" and condition.get("status") == "False" and owes:
                out.append(f"{_name(one)}: {condition.get('reason')}")
        if one["spec"].get("job") is not None:
            blocked = [why for why in (one.get("status") or {}).get("pending") or () if why.get("reason") in BLOCKED]
            out += [f"{_name(one)}: {why['reason']}, {why.get('count', 0)} of its job do not run" for why in blocked]
    return out


def _health(one: Tree) -> str:
    return str((one.get("status") or {}).get("health") or "not heard of yet")


def _name(one: Tree) -> str:
    return f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


# --- the commands -----------------------------------------------------------------------------------------------------------


@click.group("incident", cls=LazyGroup)
def command() -> None:
    """Open an incident, see what is out of order, and close it when everything is cleaned up."""


@command.command("open")
@click.argument("name")
@click.option("--reason", required=True, metavar="TEXT", help="What is wrong, in a few words.")
@server_options()
@on_server
async def open_(session: Session, name: str, reason: str) -> int:
    """Open one: fairlead incident open eu-power --reason "eu-central lost power"."""
    body = {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "Config",
        "metadata": {"name": PREFIX + name, "namespace": SYSTEM_TENANT, "labels": {LABEL: "open"}},
        "spec": {"data": {"reason": reason, "opened": _now(session)}},
    }  # fmt: skip
    await session.client.create(of_model()["configs"], SYSTEM_TENANT, body)
    click.echo(f"incident/{name} opened")
    return OK


@command.command("status")
@click.argument("name", required=False, default="")
@format_option()
@server_options()
@on_server
async def status(session: Session, name: str, form: Format) -> int:
    """Show open incidents, what happened since, which overrides are in force, and what must be cleaned up before closing."""
    incidents = await _open_ones(session, name)
    found = await _lists(session)
    seen = checks(found, session.client.clock.wall())
    since_s = min((_seconds(one["spec"]["data"].get("opened", "")) for one in incidents), default=session.client.clock.wall())
    happened = await _events(session, since_s)
    if not form.is_table:
        told = [{"name": _bare(one), **one["spec"]["data"]} for one in incidents]
        put(form, [{"incidents": told, "checks": [one._asdict() for one in seen], "events": happened}], single=True)
        return OK
    for one in incidents:
        data = one["spec"]["data"]
        click.echo(f"incident/{_bare(one)}, open since {data.get('opened')}: {data.get('reason')}")
    if incidents:
        click.echo()
    else:
        note("no incident is open")
    _tell(seen)
    if happened:
        click.echo()
        put_lines(laid_out(["LAST", "TIMES", "WHAT", "OBJECT", "SAID"], [list(map(str, event.values())) for event in happened]))
    return OK


@command.command("close")
@click.argument("name")
@server_options()
@on_server
async def close(session: Session, name: str) -> int:
    """Close one. Refuses, with exit code 8, while anything is not cleaned up, and says what."""
    incidents = await _open_ones(session, name)
    seen = checks(await _lists(session), session.client.clock.wall())
    if not all(one.passed for one in seen):
        _tell(seen)
        left = sum(not one.passed for one in seen)
        raise Told(f"incident/{name} stays open: {left} check{' fails' if left == 1 else 's fail'}", code=CHECK_FAILED)
    data = incidents[0]["spec"]["data"]
    body = {"metadata": {"labels": {LABEL: "closed"}}, "spec": {"data": {**data, "closed": _now(session)}}}
    await session.client.patch(of_model()["configs"], SYSTEM_TENANT, PREFIX + name, body)
    click.echo(f"incident/{name} closed: {len(seen)} checks passed")
    return OK


def _tell(seen: list[Check]) -> None:
    rows = [
        [one.name, "ok" if one.passed else "NOT YET", "; ".join(one.left[:3]) + (" ..." if len(one.left) > 3 else "")]
        for one in seen
    ]
    put_lines(laid_out(["CLEAN-UP", "STATE", "LEFT"], rows))


async def _open_ones(session: Session, name: str) -> list[Tree]:
    configs = of_model()["configs"]
    if not name:
        return (await session.client.list(Query(configs, SYSTEM_TENANT, f"{LABEL}=open"))).items
    try:
        one = await session.client.get(configs, SYSTEM_TENANT, PREFIX + name)
    except NotFound as error:
        hint = "'fairlead incident status' shows those there are"
        raise Told(f"there is no open incident {name}", hint=hint, code=NOT_FOUND) from error
    if (one["metadata"].get("labels") or {}).get(LABEL) != "open":
        raise Told(f"incident {name} was closed at {one['spec']['data'].get('closed', '?')}", code=CONFLICT)
    return [one]


async def _lists(session: Session) -> Lists:
    """What cannot be read cannot be called clean."""
    out: Lists = {}
    for plural in ASKED:
        try:
            out[plural] = (await session.client.list(Query(of_model()[plural]))).items
        except ApiError as error:
            raise Told(
                f"{plural} cannot be read, so nobody can say whether they are clean: {error.message}", code=CHECK_FAILED
            ) from error
    return out


async def _events(session: Session, since_s: float) -> list[Tree]:
    found = (await session.client.list(Query(of_model()["events"]))).items
    rows = []
    for one in found:
        spec = one.get("spec") or {}
        last = str(spec.get("lastTime") or "")
        if spec.get("type") == "Warning" and _seconds(last) >= since_s:
            told = {"last": last, "count": spec.get("count", 1), "reason": spec.get("reason", "")}
            rows.append({**told, "object": str(spec.get("regarding", "")), "note": str(spec.get("note", ""))[:NOTE_MAX]})
    return sorted(rows, key=lambda row: str(row["last"]))[-SHOWN_MAX:]


def _bare(one: Tree) -> str:
    return str(one["metadata"]["name"]).removeprefix(PREFIX)


def _now(session: Session) -> str:
    return datetime.fromtimestamp(session.client.clock.wall(), tz=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
