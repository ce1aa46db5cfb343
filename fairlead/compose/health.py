"""/livez, /healthz, /readyz and what they say. Nothing here needs a name or a token, so nothing here says anything about objects.

A peer that is away, a controller that is stalled, a plug-in that was left out and a store that takes no batch are listed and do
not make a server unready: it still answers, and one bad object must not take a plane out of service. A store that is silent does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fairlead.client.leased import Leased
from fairlead.plugins import Loaded

_TOLD_ONLY = ("peer-", "controller-", "writes", "plug-ins")


class Checked(Protocol):
    def readiness(self) -> Sequence[tuple[str, bool, str]]: ...


def standing(components: Sequence[Leased]) -> list[tuple[str, bool, str]]:
    """How each component is doing, in words that name no object."""
    out = []
    for each in components:
        health = each.health()
        words = f"stalled: {health.stalled}" if health.stalled else "works" if each.serving else "waits for its lease"
        epoch = f", epoch {each.epoch}" if each.epoch else ""
        behind = f", {health.queue_length} wait, the oldest for {health.oldest_s:.0f} s" if health.queue_length else ""
        out.append((f"controller-{each.terms.name}", not health.stalled, f"{words}{epoch}{behind}"))
    return out


def writing(unwritable_s: float | None, wall_s: float) -> tuple[str, bool, str]:
    """Whether this server's plane can be written to; since when not."""
    if unwritable_s is None:
        return "writes", True, "are taken"
    since = datetime.fromtimestamp(wall_s - unwritable_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "writes", False, f"nobody can write since {since}: the store does not answer or takes nothing"


def loading(plugins: Loaded) -> tuple[str, bool, str]:
    """Which are there for policies to name, and which should be; why not is in the server's log."""
    taken, left_out = (", ".join(sorted({each.name for each in some})) for some in (plugins.taken, plugins.left_out))
    words = f"left out: {left_out}; why is in this server's log" if left_out else ""
    return "plug-ins", not left_out, "; ".join(filter(None, (taken, words))) or "none are installed"


def health_routes(server: Checked) -> list[Route]:
    async def livez(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> PlainTextResponse:
        checks = server.readiness()
        failed = [name for name, passed, _ in checks if not passed and not name.startswith(_TOLD_ONLY)]
        lines = [f"[{'+' if passed else '-'}]{name} {detail}" for name, passed, detail in checks]
        text = "\n".join([*lines, "ready" if not failed else f"not ready: {', '.join(failed)}"]) + "\n"
        verbose = "verbose" in request.query_params
        return PlainTextResponse(text if verbose or failed else "ok\n", status_code=200 if not failed else 503)

    # /healthz is the older name, which load balancers and kubectl still ask.
    return [Route("/livez", livez), Route("/healthz", livez), Route("/readyz", readyz)]
