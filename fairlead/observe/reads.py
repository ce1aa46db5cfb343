"""S17 asked of what callers were answered: nothing of another tenant is in it, whatever was asked for and however.

Owns no rules: it is told whose answer it is and which tenants that caller belongs to, and looks at each object. Shares nothing
with the access rules it checks. Fed by the simulator's readers and by tests with answers of a real API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

SHARED: Final = frozenset({"regions"})  # belong to no tenant, and everybody may read them

Found = Callable[[str, str], None]


class ReadChecker:
    def __init__(self, found: Found) -> None:
        self._found = found
        self.checked = 0

    def answered(self, caller: str, tenants: Collection[str], plural: str, answer: Mapping[str, Any]) -> None:
        """An answer with status 200 to a get, a list or a watch event: one object, or a list of them."""
        for item in _objects(answer):
            self.checked += 1
            meta = item.get("metadata", {})
            tenant, name = meta.get("namespace", ""), meta.get("name", "")
            if plural == "tenants":
                tenant = name  # a Tenant object is in the tenant that it is
            if tenant not in tenants and not (not tenant and plural in SHARED):
                self._found("S17", f"{caller} of {sorted(tenants)} was shown {plural} {tenant}/{name}")


def _objects(answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    if "items" in answer:
        found: Iterable[Mapping[str, Any]] = answer["items"] or ()
        return found
    if answer.get("type") in ("ADDED", "MODIFIED", "DELETED"):
        return (answer["object"],)
    return (answer,) if answer.get("kind") != "Status" else ()
