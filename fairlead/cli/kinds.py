"""Which kind and which objects the words of a command line mean: `wl`, `workloads risk-api`, `wl/risk-api,nodes`.

Owns names, short names and the suggestion for a misspelt one. Knows kinds from the model; one the model does not know is asked
for at the server, which may be newer. Called by every command that names objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead.cli.frame import ERROR, Told
from fairlead.client.rest_shapes import ROOT, Resource

if TYPE_CHECKING:
    from fairlead.client.rest import RestClient

# A tenant is a namespace; people's fingers know the other word.
ALIASES: Final = {"ns": "tenants", "namespace": "tenants", "namespaces": "tenants", "wls": "workloads"}
ALL: Final = ("workloads", "assignments", "endpoints")  # what `get all` shows, unless the server says otherwise


class Target(NamedTuple):
    resource: Resource
    name: str = ""  # empty: all of the kind

    def __str__(self) -> str:
        return f"{self.resource.singular}/{self.name}" if self.name else self.resource.plural


def of_model() -> dict[str, Resource]:
    from fairlead.model.registry import KINDS  # Here: completion loads this module and needs no records.

    return {
        info.plural: Resource(info.plural, info.kind, info.namespaced, short_names=info.short_names) for info in KINDS.values()
    }


def named(name: str, among: dict[str, Resource]) -> Resource | None:
    word = name.lower().split(".")[0]
    word = ALIASES.get(word, word)
    if word in among:
        return among[word]
    return next((each for each in among.values() if word == each.singular or word in each.short_names), None)


async def discover(client: RestClient) -> dict[str, Resource]:
    """The kinds the server says it serves."""
    found = await client.read(ROOT)
    return {
        row["name"]: Resource(
            row["name"], row["kind"], bool(row.get("namespaced")), short_names=tuple(row.get("shortNames") or ()),
            verbs=tuple(row.get("verbs") or ()), categories=tuple(row.get("categories") or ()),
        )
        for row in found.get("resources") or ()
        if "/" not in row["name"]
    }  # fmt: skip


async def resolve(client: RestClient, name: str) -> Resource:
    known = of_model()
    found = named(name, known)
    if found is None:
        try:
            known = known | await discover(client)
        except Exception:  # the kind is unknown either way, and that is what the user should read about
            raise unknown_kind(name, known) from None
        found = named(name, known)
    if found is None:
        raise unknown_kind(name, known)
    return found


def unknown_kind(name: str, known: dict[str, Resource], code: int = ERROR) -> Told:
    import difflib

    words = [word for each in known.values() for word in (each.plural, each.singular, *each.short_names)]
    near = difflib.get_close_matches(name.lower(), words, n=1, cutoff=0.6)
    said = f"did you mean {near[0]!r}? " if near else ""
    return Told(f"there is no kind {name!r}", hint=f"{said}See 'fairlead api-resources'", code=code)


async def targets(client: RestClient, words: Sequence[str]) -> list[Target]:
    """KIND, KIND NAME..., KIND,KIND, KIND/NAME KIND/NAME..., in the order they were written."""
    if not words:
        raise Told("name a kind, or KIND/NAME", hint="such as 'workloads' or 'wl/risk-api'; see 'fairlead api-resources'")
    if any("/" in word for word in words):
        return [await _pair(client, part) for word in words for part in word.split(",") if part]
    kinds, names = words[0].split(","), words[1:]
    if kinds == ["all"]:
        kinds = list(ALL)
    resources = [await resolve(client, kind) for kind in kinds if kind]
    return [Target(resource, name) for resource in resources for name in names or ("",)]


async def _pair(client: RestClient, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise Told(f"{word!r} is not KIND/NAME", hint="write every object as KIND/NAME, or one kind followed by names")
    return Target(await resolve(client, kind), name)


async def one_target(client: RestClient, words: Sequence[str], what: str) -> Target:
    found = await targets(client, words)
    if len(found) != 1 or not found[0].name:
        raise Told(f"{what} needs exactly one object", hint="such as wl/risk-api")
    return found[0]
