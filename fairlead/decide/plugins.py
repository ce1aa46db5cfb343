"""Gates, scores and extensions by name: the built-in ones and those of plug-ins. A policy names what it uses; this finds it.

Owns what a plug-in must have to be taken: a name with a dot (built-in names have none, so neither can hide the other), its tier,
one line of text, and the functions of its sort. Never imports a plug-in: fairlead/plugins.py finds and imports them, and hands
over a `Registry`. Used by policy.py, by admission for the built-in names, and by the authority, which refuses a policy revision
that needs what its plane does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import msgspec

from fairlead.decide.extensions import Extension, Extensions, Filter
from fairlead.decide.fit import GATES
from fairlead.decide.scores import (
    Score,
    Tier,
    affinity,
    balance,
    cost,
    fill,
    fragmentation,
    image,
    locality,
    packing,
    spread,
    stability,
)

Sort = Literal["gates", "scores", "extensions"]
SORTS: Final[tuple[Sort, ...]] = ("gates", "scores", "extensions")
NAME_MAX: Final = 253
NAME_WORDS: Final = (
    "like 'example.rack-power': parts of a-z, 0-9 and '-' with dots between them, a letter or digit at both ends of each"
)

_PART: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PLUGIN_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})+")


class GatePlugin(Filter, Protocol):
    """A gate from a plug-in: operators and table look-ups only, as the built-in ones, because the authority asks it for one node
    with ints and the scheduler for all nodes with columns."""

    @property
    def tier(self) -> Tier: ...

    @property
    def text(self) -> str: ...


class Registry(msgspec.Struct, frozen=True):
    """What can be named. `gates` has plug-ins only: the built-in gates hold without being named."""

    gates: Mapping[str, GatePlugin] = MappingProxyType({})
    scores: Mapping[str, Score] = MappingProxyType({})
    extensions: Mapping[str, Extension] = MappingProxyType({})

    def with_plugins(self, found: Iterable[tuple[Sort, str, Any]]) -> tuple[Registry, tuple[str, ...]]:
        """This and the plug-ins, each as (sort, the name it was found under, the object), and a line about each that cannot be
        taken. One that cannot is left out; a policy that names it is then refused, which is where it matters."""
        tables: dict[Sort, dict[str, Any]] = {sort: dict(getattr(self, sort)) for sort in SORTS}
        faults: list[str] = []
        for sort, name, plugin in found:
            wrong = _wrong_with(sort, name, plugin)
            if not wrong and name in tables[sort]:
                wrong = "another plug-in has that name"
            if wrong:
                faults.append(f"{sort[:-1]} plug-in {name!r}: {wrong}")
            else:
                tables[sort][name] = plugin
        return Registry(**{sort: MappingProxyType(table) for sort, table in tables.items()}), tuple(faults)


def is_plugin_name(name: str) -> bool:
    """Meant as a plug-in's, well formed or not."""
    return "." in name


def is_well_formed(name: str) -> bool:
    return len(name) <= NAME_MAX and _PLUGIN_NAME.fullmatch(name) is not None


def _wrong_with(sort: Sort, name: str, plugin: Any) -> str:
    """What keeps a plug-in from being taken, or nothing."""
    if not is_well_formed(name):
        return f"its name must be {NAME_WORDS}"
    if getattr(plugin, "name", None) != name:
        return f"it calls itself {getattr(plugin, 'name', None)!r}; both names must be the same"
    tier = getattr(plugin, "tier", None)
    if not isinstance(tier, Tier):
        return "it has no tier; use one of fairlead.decide.scores.Tier"
    text = getattr(plugin, "text", None)
    if not (isinstance(text, str) and text.strip()):
        return "it has no text: one line that says what it does"
    match sort:
        case "gates":
            if tier is not Tier.INVARIANT:  # a hint may rank, never authorise; nor may it forbid
                return f"a gate is a hard invariant, this one is a {tier.value}; make it a score"
            return _missing(plugin, "check", "why")
        case "scores":
            if tier is Tier.INVARIANT:
                return "a score may rank, never authorise; a hard invariant is a gate"
            if getattr(plugin, "scope", None) not in ("node", "domain"):
                return "its scope must be 'node' or 'domain'"
            return _missing(plugin, "rate")
        case "extensions":
            return "" if isinstance(getattr(plugin, "points", None), Extensions) else "its points must be an Extensions record"


def _missing(plugin: Any, *functions: str) -> str:
    absent = [name for name in functions if not callable(getattr(plugin, name, None))]
    return f"it has no function {' and no function '.join(absent)}" if absent else ""


_BUILT_IN_SCORES: Final[tuple[Score, ...]] = (
    packing.SCORE,
    balance.SCORE,
    fragmentation.SCORE,
    fill.SCORE,
    spread.SCORE,
    affinity.SCORE,
    locality.SCORE,
    cost.SCORE,
    image.SCORE,
    stability.SCORE,
)

BUILT_IN_GATES: Final = tuple(gate.name for gate in GATES)
BUILT_INS: Final = Registry(scores=MappingProxyType({score.name: score for score in _BUILT_IN_SCORES}))
assert not any(is_plugin_name(name) for name in (*BUILT_IN_GATES, *BUILT_INS.scores)), "a built-in name has no dot"
