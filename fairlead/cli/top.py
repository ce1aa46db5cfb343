"""`fairlead top`: how full nodes are, and what workloads ask for and have.

Owns the sums. They are of what is requested and bound, which is what placing goes by; what processes really use is in /metrics.
"""

from __future__ import annotations

from typing import Any

import click

from fairlead.cli import copies, jsonpath, selectors
from fairlead.cli.frame import OK, LazyGroup, Told
from fairlead.cli.kinds import named, of_model
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put_lines
from fairlead.cli.tables import order_of
from fairlead.client.rest_shapes import Query

GONE = ("Released", "Succeeded")
SIZES = {"cpu": -3, "memory": 0}


class _Kinds(LazyGroup):
    """Its commands are kinds, which people call by their short names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = named(cmd_name, of_model())
        return super().get_command(ctx, found.plural if found is not None else cmd_name)


@click.group("top", cls=_Kinds)
def command() -> None:
    """Show how full nodes are and what workloads have bound: requests, not what processes really use."""


sort_option = click.option(
    "--sort-by", default="", metavar="FIELD", help="Order by a field of the JSON, largest first, such as cpu."
)
labels_option = click.option("-l", "--selector", default="", metavar="LABELS", help="Only objects with these labels.")


@command.command("nodes")
@labels_option
@sort_option
@click.option("--no-headers", is_flag=True, help="No line of headings.")
@format_option()
@server_options()
@on_server
async def nodes(session: Session, selector: str, sort_by: str, no_headers: bool, form: Format) -> int:
    """Show what is requested on each node, of what it has."""
    kinds = of_model()
    labels = selectors.text_of(selectors.labels(selector))
    found = (await session.client.list(Query(kinds["nodes"], labels=labels, region=session.region))).items
    used = await _requested(session)
    facts = [_node(node, used.get(node["metadata"]["name"], {})) for node in found]
    headings = ["NAME", "SLOTS", "CPU", "CPU%", "MEMORY", "MEMORY%", "HEALTH"]
    names = ("name", "slots", "cpu", "cpuPercent", "memory", "memoryPercent", "health")
    return _show(form, facts, headings, names, sort_by, no_headers)


async def _requested(session: Session) -> dict[str, dict[str, int]]:
    """Node -> how much is bound there, by resource, and how many slots."""
    sums: dict[str, dict[str, int]] = {}
    async for page in session.client.pages(Query(of_model()["bindings"], region=session.region)):
        for each in page.get("items") or ():
            spec = each.get("spec") or {}
            if (each.get("status") or {}).get("state") in GONE:
                continue
            node = sums.setdefault(str(spec.get("node")), {"slots": 0})
            node["slots"] += 1
            for name, exponent in SIZES.items():
                node[name] = node.get(name, 0) + _amount((spec.get("requests") or {}).get(name), exponent)
    return sums


def _amount(text: Any, exponent: int) -> int:
    from fairlead.model.quantity import BadQuantity, parse_quantity

    try:
        return parse_quantity(str(text), unit_exponent=exponent) if text is not None else 0
    except BadQuantity:
        return 0


def _shown(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m"
    return f"{amount / (1 << 20):.0f}Mi"


def _node(node: dict[str, Any], used: dict[str, int]) -> dict[str, Any]:
    allocatable = (node.get("spec") or {}).get("allocatable") or {}
    facts: dict[str, Any] = {"name": node["metadata"]["name"], "slots": used.get("slots", 0)}
    for name, exponent in SIZES.items():
        whole, part = _amount(allocatable.get(name), exponent), used.get(name, 0)
        facts[name] = _shown(name, part)
        facts[f"{name}Percent"] = f"{100 * part // whole}%" if whole else "<unknown>"
    return facts | {"health": copies.health_of(node, "<unknown>")}


@command.command("workloads")
@labels_option
@sort_option
@click.option("-A", "--all-namespaces", "--all-tenants", "everywhere", is_flag=True, help="Of all tenants.")
@click.option("--no-headers", is_flag=True, help="No line of headings.")
@format_option()
@server_options()
@on_server
async def workloads(session: Session, selector: str, sort_by: str, everywhere: bool, no_headers: bool, form: Format) -> int:
    """Show what workloads have bound: slots by stage, and what these request together."""
    labels = selectors.text_of(selectors.labels(selector))
    query = Query(of_model()["workloads"], "" if everywhere else session.namespace, labels, region=session.region)
    facts = [_workload(each) for each in (await session.client.list(query)).items]
    headings = ["TENANT", "NAME", "DESIRED", "BOUND", "READY", "SERVING", "CPU", "MEMORY"]
    names = ("tenant", "name", "desired", "bound", "ready", "serving", "cpu", "memory")
    return _show(form, facts, headings, names, sort_by, no_headers)


def _workload(each: dict[str, Any]) -> dict[str, Any]:
    counts = (each.get("status") or {}).get("replicas") or {}
    requests = ((each.get("spec") or {}).get("resources") or {}).get("requests") or {}
    bound = int(counts.get("bound") or 0)
    facts: dict[str, Any] = {"tenant": each["metadata"].get("namespace", ""), "name": each["metadata"]["name"]}
    facts |= {stage: int(counts.get(stage) or 0) for stage in ("desired", "bound", "ready", "serving")}
    return facts | {name: _shown(name, bound * _amount(requests.get(name), exponent)) for name, exponent in SIZES.items()}


def _show(
    form: Format, facts: list[dict[str, Any]], headings: list[str], names: tuple[str, ...], sort_by: str, no_headers: bool
) -> int:
    if sort_by:
        path = jsonpath.parse(jsonpath.relaxed(sort_by))
        if facts and all(jsonpath.first(path, row) is None for row in facts):
            raise Told(f"--sort-by {sort_by}: there is no such field", hint=f"there are {', '.join(names)}")
        facts.sort(key=lambda row: order_of(jsonpath.first(path, row)), reverse=True)
    if form.is_table:
        rows = [[str(row[name]) for name in names] for row in facts]
        put_lines(laid_out(None if no_headers else headings, rows))
    else:
        from fairlead.cli.show import put

        put(form, facts, single=False)
    return OK
