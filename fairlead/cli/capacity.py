"""`fairlead capacity`: how much room there is, how broken up it is, and what the work costs: by region, tenant and class.

Owns the sums. They are of what is requested and bound, which is what placing goes by. Room that is held for recovery is no
headroom: only recovery may take it. Asks the server for nodes, bindings, reservations, grants and workloads; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import click

from fairlead.cli import copies
from fairlead.cli.frame import OK, Told
from fairlead.cli.kinds import of_model
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.client.rest_shapes import Query
from fairlead.model.quantity import BadQuantity, parse_quantity

GONE: Final = ("Released", "Succeeded")
UNITS: Final = {"cpu": -3, "memory": 0}  # as powers of ten: thousandths of a core, bytes
SHAPE: Final = "cpu=500m,memory=512Mi"

Tree = dict[str, Any]


class Amount(NamedTuple):
    cpu: int = 0
    memory: int = 0

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        return Amount(self.cpu + sign * other.cpu, self.memory + sign * other.memory)

    def least(self) -> Amount:
        return Amount(max(0, self.cpu), max(0, self.memory))

    def holds(self, ask: Amount) -> int:
        """How many of these fit."""
        counts = [have // want for have, want in zip(self, ask, strict=True) if want]
        return max(0, min(counts)) if counts else 0

    def share_of(self, whole: Amount) -> float:
        """Of the dimension it uses most of."""
        return max((have / all_ for have, all_ in zip(self, whole, strict=True) if all_), default=0.0)


def amount_of(tree: Any) -> Amount:
    return Amount(*(_parsed((tree or {}).get(name), exponent) for name, exponent in UNITS.items()))


def _parsed(text: Any, exponent: int) -> int:
    try:
        return parse_quantity(str(text), unit_exponent=exponent) if text is not None else 0
    except BadQuantity:
        return 0


class _Node:
    def __init__(self, tree: Tree) -> None:
        spec, status = tree.get("spec") or {}, tree.get("status") or {}
        self.region = str(spec.get("region", ""))
        self.whole = amount_of(spec.get("allocatable"))
        self.cost = int(spec.get("hourlyCostMillis") or 0)
        self.age_s = copies.age_s(tree)
        self.well = self.age_s is None and status.get("health") == "Ready" and bool(status.get("schedulable"))
        self.used, self.held = Amount(), Amount()

    @property
    def free(self) -> Amount:
        """What new work could take: nothing of a node that takes none."""
        return self.whole.plus(self.used, -1).plus(self.held, -1).least() if self.well else Amount()


class _Row:
    def __init__(self) -> None:
        self.slots, self.cost = 0, 0.0
        self.used, self.held = Amount(), Amount()

    def add(self, asked: Amount, cost: float) -> None:
        self.slots += 1
        self.used, self.cost = self.used.plus(asked), self.cost + cost


class Capacity:
    """All the sums. `shape`: what fragmentation is asked about."""

    def __init__(self, nodes: Iterable[Tree], shape: Amount) -> None:
        self._nodes = {str(tree["metadata"]["name"]): _Node(tree) for tree in nodes}
        self._shape = shape
        self._tenants: dict[tuple[str, str], _Row] = {}
        self._classes: dict[str, _Row] = {}

    def bound(self, bindings: Iterable[Tree], class_of: dict[tuple[str, str], str]) -> None:
        for tree in bindings:
            spec, tenant = tree.get("spec") or {}, str(tree["metadata"].get("namespace", ""))
            node = self._nodes.get(str(spec.get("node")))
            if node is None or (tree.get("status") or {}).get("state") in GONE:
                continue
            asked = amount_of(spec.get("requests"))
            node.used = node.used.plus(asked)
            cost = node.cost * asked.share_of(node.whole)
            workload = str((spec.get("slot") or {}).get("workload", ""))
            self._tenants.setdefault((tenant, node.region), _Row()).add(asked, cost)
            self._classes.setdefault(class_of.get((tenant, workload), "?"), _Row()).add(asked, cost)

    def reserved(self, reservations: Iterable[Tree]) -> None:
        for tree in reservations:
            spec = tree.get("spec") or {}
            node = self._nodes.get(str(spec.get("node")))
            if node is not None:
                asked, tenant = amount_of(spec.get("requests")), str(tree["metadata"].get("namespace", ""))
                node.held = node.held.plus(asked)
                row = self._tenants.setdefault((tenant, node.region), _Row())
                row.held = row.held.plus(asked)

    def regions(self) -> list[Tree]:
        out = []
        for region in sorted({node.region for node in self._nodes.values()}):
            nodes = [node for node in self._nodes.values() if node.region == region]
            whole, used, held, free = (
                _total(getattr(node, part) for node in nodes) for part in ("whole", "used", "held", "free")
            )
            fits, ideal = sum(node.free.holds(self._shape) for node in nodes), free.holds(self._shape)
            old = {"ageSeconds": max(ages)} if (ages := [node.age_s for node in nodes if node.age_s is not None]) else {}
            out.append(old | {
                "region": region, "nodes": len(nodes), "ready": sum(node.well for node in nodes),
                "cpu": _shown(whole)["cpu"], "memory": _shown(whole)["memory"], "used": _shown(used), "held": _shown(held),
                "free": _shown(free), "usedShare": round(used.share_of(whole), 4), "fits": fits,
                "fragmentation": round(1 - fits / ideal, 4) if ideal else 0.0,
                "costPerHour": round(sum(node.cost for node in nodes) / 1000, 3),
            })  # fmt: skip
        return out

    def tenants(self, grants: dict[tuple[str, str], Amount]) -> list[Tree]:
        out = []
        for tenant, region in sorted({*self._tenants, *grants}):
            row, grant = self._tenants.get((tenant, region), _Row()), grants.get((tenant, region))
            left = _shown(grant.plus(row.used, -1).plus(row.held, -1).least()) if grant is not None else None
            out.append({
                "tenant": tenant, "region": region, "slots": row.slots, "used": _shown(row.used),
                "held": _shown(row.held), "granted": _shown(grant) if grant is not None else None, "headroom": left,
                "costPerHour": round(row.cost / 1000, 3),
            })  # fmt: skip
        return out

    def classes(self) -> list[Tree]:
        rows = sorted(self._classes.items())
        return [
            {"class": name, "slots": row.slots, "used": _shown(row.used), "costPerHour": round(row.cost / 1000, 3)}
            for name, row in rows
        ]


def _total(amounts: Iterable[Amount]) -> Amount:
    out = Amount()
    for amount in amounts:
        out = out.plus(amount)
    return out


def _shown(amount: Amount) -> dict[str, str]:
    return {"cpu": f"{amount.cpu}m", "memory": f"{amount.memory >> 20}Mi"}


def shape_of(text: str) -> Amount:
    """Such as cpu=500m,memory=512Mi. Raises Told."""
    parts = dict(part.partition("=")[::2] for part in text.split(",") if part)
    unknown = sorted(set(parts) - set(UNITS))
    found = amount_of(parts)
    if unknown or not any(found):
        raise Told(f"--shape {text}: write cpu=AMOUNT,memory=AMOUNT, such as {SHAPE}")
    return found


@click.command("capacity")
@click.option("--shape", default=SHAPE, show_default=True, metavar="ASK", help="The replica that fragmentation is asked about.")
@format_option()
@server_options()
@on_server
async def command(session: Session, shape: str, form: Format) -> int:
    """Show headroom, fragmentation and cost, by region, tenant and class.

    \b
    FREE        what new work could take on nodes that take work; room held for recovery is not free
    FITS        how many replicas of --shape find a node each
    FRAGMENTED  how much of what is free in all is lost to that replica because it lies in pieces
    COST        an hour, by the share of its node that a slot asks for most of
    """
    kinds = of_model()

    async def all_of(plural: str) -> list[Tree]:
        return (await session.client.list(Query(kinds[plural], region=session.region))).items

    found = Capacity(await all_of("nodes"), shape_of(shape))
    workloads = (await session.client.list(Query(kinds["workloads"]))).items
    named = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"].get("workloadClass", "standard") for one in workloads
    }
    found.bound(await all_of("bindings"), named)
    found.reserved(await all_of("reservations"))
    grants = {
        (one["metadata"]["namespace"], str(one["spec"].get("region"))): amount_of(one["spec"].get("during"))
        for one in (await session.client.list(Query(kinds["grants"]))).items
        if not session.region or one["spec"].get("region") == session.region
    }
    told = {"regions": found.regions(), "tenants": found.tenants(grants), "classes": found.classes()}
    if not form.is_table:
        put(form, [told], single=True)
        return OK
    _tables(told)
    return OK


def _tables(told: dict[str, list[Tree]]) -> None:
    rows = [
        [one["region"], _ready(one), *one["used"].values(), *one["held"].values(), *one["free"].values(),
         str(one["fits"]), f"{one['fragmentation']:.0%}", f"{one['costPerHour']:.2f}"]
        for one in told["regions"]
    ]  # fmt: skip
    put_lines(laid_out(["REGION", "READY", "USED", "", "HELD", "", "FREE", "", "FITS", "FRAGMENTED", "COST/H"], rows))
    click.echo()
    rows = [
        [one["tenant"], one["region"], str(one["slots"]), *one["used"].values(), *_left(one), f"{one['costPerHour']:.2f}"]
        for one in told["tenants"]
    ]  # fmt: skip
    put_lines(laid_out(["TENANT", "REGION", "SLOTS", "USED", "", "HEADROOM", "", "COST/H"], rows))
    click.echo()
    rows = [[one["class"], str(one["slots"]), *one["used"].values(), f"{one['costPerHour']:.2f}"] for one in told["classes"]]
    put_lines(laid_out(["CLASS", "SLOTS", "USED", "", "COST/H"], rows))


def _ready(one: Tree) -> str:
    """Of a region that cannot be reached, also how long ago these sums were right."""
    return f"{one['ready']}/{one['nodes']}" + (f" ({one['ageSeconds']:.0f}s old)" if "ageSeconds" in one else "")


def _left(one: Tree) -> list[str]:
    return list(one["headroom"].values()) if one["headroom"] else ["<no grant>", ""]
