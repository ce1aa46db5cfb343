"""What each node was given, read from the plane's present state: the facts by which an agent is judged (decide/access_agent.py).

Owns nothing and keeps nothing. The server hands it two ways to look; asked by fairlead/api/authz.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fairlead.client.plane import Change
from fairlead.model.kinds.intent import FileMount

Get = Callable[[str, str, str], Change | None]
BindingsOn = Callable[[str], Iterable[Change]]


class PlaneHoldings:
    def __init__(self, get: Get, bindings_on: BindingsOn) -> None:
        self._get = get
        self._bindings_on = bindings_on

    def node_of(self, plural: str, tenant: str, name: str) -> str:
        assert plural in ("bindings", "instances"), plural
        binding = self._get("bindings", tenant, name)  # an instance lives on the node of the binding of the same name
        return str(binding.hot.node) if binding is not None and binding.raw is not None else ""

    def uses(self, node: str, plural: str, tenant: str, name: str) -> bool:
        revisions = self._revisions(node, tenant)
        if plural == "revisions":
            return any(revision == name for revision in revisions)
        secret = plural == "secrets"
        files = (file for revision in dict.fromkeys(revisions) for file in self._files(tenant, revision))
        return any((file.secret if secret else file.config) == name for file in files)

    def _revisions(self, node: str, tenant: str) -> Iterator[str]:
        for binding in self._bindings_on(node):
            if binding.tenant == tenant and binding.raw is not None and binding.hot.node == node:
                workload = binding.name.rpartition("-")[0]  # slots are named WORKLOAD-INDEX
                yield f"{workload}.g{binding.hot.generation}"

    def _files(self, tenant: str, revision: str) -> tuple[FileMount, ...]:
        found = self._get("revisions", tenant, revision)
        if found is None or found.raw is None:
            return ()
        files: tuple[FileMount, ...] = found.hot.spec.template.files
        return files
