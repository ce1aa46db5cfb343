"""The points at which the scheduler's cycle asks others, the built-ins among them, and what each may answer.

| point | asked | with | may |
|---|---|---|---|
| pre-filter | once per shape and cycle | the need, all nodes | stop the shape with a reason |
| filter | once per shape, and for each node that changed | the need, row or columns | rule nodes out |
| post-filter | when no node is left for a shape | the need, the nodes each gate ruled out | propose a way out: victims |
| score | as filter | the need, row or columns | rank |
| reserve | when places are chosen, before anything is sent | the placements | take something elsewhere, or refuse |
| unreserve | when a reserved placement ends in any other way than bound | the placements | give it back |
| permit | after reserve | the placements | let them go, wait with a deadline, or deny |
| bind | when permitted | the placements | say which commands ask the authority for them |
| post-bind | when the authority has answered | the placements, the outcomes | take note |

What holds for all: they are pure but for reserve, unreserve and post-bind, whose effects are their own; none is async or may
block. A hint may rank, never authorise: a filter can only rule out more, and whatever a point says, the authority asks every
hard gate again before it commits. `unreserve` is idempotent and may come without a `reserve` before it, so that a cycle that
stopped half-way can be cleaned up by calling it for all. Points are asked in the order of the tuple; the first refusal wins.

Owns the shapes of the points and the record of who is asked. Never calls one. Called by the scheduler's cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from fairlead.decide.fit import Need, Row, View
from fairlead.decide.scores import RatedRow, Tier
from fairlead.model.commands import Bind as BindCommand
from fairlead.model.commands import BindGang, Outcome
from fairlead.model.commands import Reserve as ReserveCommand


class Stop(msgspec.Struct, frozen=True):
    """Not now, and why: a reason from the list of pending reasons, and words for people. A reason that is not in the
    list is told as one of the words, of a slot that waits for capacity."""

    reason: str
    detail: str = ""


class Allow(msgspec.Struct, frozen=True):
    pass


class Wait(msgspec.Struct, frozen=True):
    """Ask again when something changed, at the latest at `until_ms` (plane time); by then it is allowed or denied."""

    until_ms: int
    reason: str


class Deny(msgspec.Struct, frozen=True):
    reason: str
    detail: str = ""


ALLOW: Final = Allow()
Verdict = Allow | Wait | Deny


class Placed(Protocol):
    """One slot and the node chosen for it."""

    @property
    def tenant(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def node(self) -> str: ...

    @property
    def need(self) -> Need: ...


class Proposal(msgspec.Struct, frozen=True):
    """A post-filter's way out: place the need on this node once the victims (TENANT/NAME) are gone. The authority judges it."""

    node: str
    victims: tuple[str, ...]


class PreFilter(Protocol):
    def pre_filter(self, need: Need, columns: Row, view: View) -> Stop | None: ...


class Filter(Protocol):
    """The built-in gates are filters; so is whatever has a name, `check` and `why`."""

    @property
    def name(self) -> str: ...

    def check(self, need: Need, row: Row, view: View) -> Any:
        """True where the node may be used: a bool for one node, a mask for columns."""

    def why(self, need: Need, row: Row, view: View) -> str:
        """Of one node that failed it."""


class PostFilter(Protocol):
    def post_filter(self, need: Need, ruled_out: Mapping[str, int], columns: Row, view: View) -> Proposal | Stop | None:
        """`ruled_out` has for each gate the nodes that failed it. None: nothing to propose, ask the next."""


class ScorePoint(Protocol):
    @property
    def name(self) -> str: ...

    def rate(self, need: Need, row: RatedRow, view: View) -> Any:
        """As a score's."""


class Reserve(Protocol):
    def reserve(self, placements: Sequence[Placed]) -> Sequence[Stop | None]:
        """One answer for each placement; a Stop takes nothing."""

    def unreserve(self, placements: Sequence[Placed]) -> None: ...


class Permit(Protocol):
    def permit(self, placements: Sequence[Placed], view: View) -> Sequence[Verdict]:
        """One verdict for each placement. Waiting keeps what is reserved."""


class Bind(Protocol):
    def bind(self, placements: Sequence[Placed]) -> Sequence[BindCommand | BindGang | ReserveCommand] | None:
        """The commands that ask for exactly these placements, or None: not mine, ask the next. The built-in one comes last, and
        the cycle sends all plain binds together."""


class PostBind(Protocol):
    def post_bind(self, placements: Sequence[Placed], outcomes: Sequence[Outcome]) -> None: ...


class Extensions(msgspec.Struct, frozen=True):
    """Who is asked at each point, in order. Empty tuples cost the cycle one truth test each."""

    pre_filters: tuple[PreFilter, ...] = ()
    filters: tuple[Filter, ...] = ()
    post_filters: tuple[PostFilter, ...] = ()
    scores: tuple[tuple[ScorePoint, int], ...] = ()  # with their weights
    reserves: tuple[Reserve, ...] = ()
    permits: tuple[Permit, ...] = ()
    binds: tuple[Bind, ...] = ()
    post_binds: tuple[PostBind, ...] = ()

    def then(self, others: Extensions) -> Extensions:
        """Both, these first."""
        both = {name: getattr(self, name) + getattr(others, name) for name in self.__struct_fields__}
        return Extensions(**both)


NO_EXTENSIONS: Final = Extensions()


class Extension(Protocol):
    """A plug-in that is asked at one or more points, named by the policy under `extensions`."""

    @property
    def name(self) -> str: ...

    @property
    def tier(self) -> Tier: ...

    @property
    def text(self) -> str: ...

    @property
    def points(self) -> Extensions: ...
