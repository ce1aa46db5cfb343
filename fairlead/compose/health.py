"""/livez, /readyz and what they say. Nothing here needs a name or a token, so nothing here says anything about objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


class Checked(Protocol):
    def readiness(self) -> Sequence[tuple[str, bool, str]]: ...


def health_routes(server: Checked) -> list[Route]:
    async def livez(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> PlainTextResponse:
        checks = server.readiness()
        failed = [name for name, passed, _ in checks if not passed and not name.startswith("peer-")]
        lines = [f"[{'+' if passed else '-'}]{name} {detail}" for name, passed, detail in checks]
        text = "\n".join([*lines, "ready" if not failed else f"not ready: {', '.join(failed)}"]) + "\n"
        verbose = "verbose" in request.query_params
        return PlainTextResponse(text if verbose or failed else "ok\n", status_code=200 if not failed else 503)

    return [Route("/livez", livez), Route("/readyz", readyz)]
