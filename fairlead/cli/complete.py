"""Names for the shell's completion, from the server, within 300 ms and without a word when anything is amiss.

Owns the little that completion needs of HTTP: the standard library's blocking client, because importing the real one takes
longer than a person waits for a Tab. Called by click while the shell completes; never by a command that runs.
"""

from __future__ import annotations

from typing import Any

import click

WITHIN_S = 0.3
NAMES_MAX = 500


def context_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        from fairlead.client import contexts

        return [each.name for each in contexts.load().contexts if each.name.startswith(incomplete)]
    except Exception:
        return []


def namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _quietly(lambda ask: _names(ask, "tenants", ""), ctx, incomplete)


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Kinds first, then names of the kind that stands before; or KIND/NAME in one word."""
    return _quietly(lambda ask: _objects(ask, ctx, incomplete), ctx, incomplete)


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _quietly(lambda ask: _names(ask, "nodes", ""), ctx, incomplete)


def regions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _quietly(lambda ask: _names(ask, "regions", ""), ctx, incomplete)


def overrides(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _quietly(lambda ask: _names(ask, "overrides", _namespace(ctx, ask)), ctx, incomplete)


def workloads(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    slash = incomplete.partition("/")
    prefix = f"{slash[0]}/" if slash[1] else ""
    return _quietly(lambda ask: [prefix + name for name in _names(ask, "workloads", _namespace(ctx, ask))], ctx, incomplete)


def _quietly(find: Any, ctx: click.Context, incomplete: str) -> list[str]:
    try:
        found = find(_Asker(ctx))
        return sorted({name for name in found if name.startswith(incomplete)})[:NAMES_MAX]
    except Exception:  # a completion that fails says nothing: the line being typed is worth more than the reason
        return []


def _objects(ask: _Asker, ctx: click.Context, incomplete: str) -> list[str]:
    rows = [row for row in ask.json("/apis/fairlead.dev/v1alpha1")["resources"] if "/" not in row["name"]]
    before = next((list(value) for name, value in ctx.params.items() if name in ("words", "names") and value), [])
    kind, slash, _ = incomplete.partition("/")
    wanted = kind if slash else before[0] if before else ""
    if not wanted or (before and "/" in before[0] and not slash):
        return [row["name"] for row in rows]
    row = next(row for row in rows if wanted in (row["name"], row["kind"].lower(), *(row.get("shortNames") or ())))
    names = _names(ask, row["name"], _namespace(ctx, ask) if row.get("namespaced") else "")
    return [f"{kind}/{name}" for name in names] if slash else names


def _names(ask: _Asker, plural: str, namespace: str) -> list[str]:
    within = f"/namespaces/{namespace}" if namespace else ""
    found = ask.json(f"/apis/fairlead.dev/v1alpha1{within}/{plural}?limit={NAMES_MAX}")
    return [item["metadata"]["name"] for item in found["items"]]


def _namespace(ctx: click.Context, ask: _Asker) -> str:
    return ctx.params.get("namespace") or ask.context.namespace or "default"


class _Asker:
    """Asks the context's server; whatever goes wrong is an exception for `_quietly`."""

    def __init__(self, ctx: click.Context) -> None:
        from fairlead.client import contexts

        self._end = self._now() + WITHIN_S
        self._contexts = contexts
        self.context = contexts.load().context(ctx.params.get("context_name") or "")

    @staticmethod
    def _now() -> float:
        from fairlead.ports import SystemClock

        return SystemClock().monotonic()

    def json(self, path: str) -> Any:
        import http.client
        from urllib.parse import urlsplit

        import msgspec

        left_s = self._end - self._now()
        if left_s <= 0:
            raise TimeoutError
        base = self._contexts.place().parent
        parts, tls = urlsplit(self.context.server), self._contexts.tls_of(self.context, base)
        port = parts.port or (443 if tls else 80)
        connection = (
            http.client.HTTPSConnection(parts.hostname or "", port, timeout=left_s, context=tls)
            if tls
            else http.client.HTTPConnection(parts.hostname or "", port, timeout=left_s)
        )
        token = self._contexts.token_of(self.context, base)
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ConnectionError(response.status)
            return msgspec.json.decode(response.read())
        finally:
            connection.close()
