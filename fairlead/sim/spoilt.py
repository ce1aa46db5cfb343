"""Owns proposals that are spoilt on their way: what a scheduler sent, as if it had been decided on something older, or after a
rival's that was quicker. Pure. Called by strays.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.commands import Bind, BindGang, BindMany, Body, Command, Reserve

ACTOR: Final = "stray"
PLACEMENTS: Final = (Bind, BindMany, BindGang, Reserve)  # what can be spoilt
WAYS: Final = 7  # in which a proposal may be spoilt: wrong about one of six things, or late
TTL_S: Final = 1.0
HELD_S: Final = 15.0  # as long as some reserve, and bind when they should not any more


def quicker(command: Command, which: float, at: float) -> Command | None:
    """Another scheduler under the same lease, as two of one partition are for a moment: it reserves what this one is about to
    bind. None where the draw is of another way, or nothing single is bound."""
    body = command.body
    if isinstance(body, BindMany) and body.binds:
        body = body.binds[int(at * len(body.binds))]
    if int(which * WAYS) != WAYS - 1 or not isinstance(body, Bind):
        return None
    terms = (body.tenant, body.name, body.epoch, body.generation, body.node, body.policy_revision, body.grant_version)
    ttl_s = HELD_S if at * 31 % 1 < 0.4 else TTL_S
    return Command(replace(command.caller, actor=f"another {ACTOR}"), Reserve(*terms, ttl_s))


def older(body: Body, which: float, at: float, nodes: Sequence[str]) -> Body:
    """A placement, wrong about one thing."""
    if isinstance(body, BindMany) and body.binds:
        index = int(at * len(body.binds))
        changed = older(body.binds[index], which, at, nodes)
        assert isinstance(changed, Bind)
        return BindMany((*body.binds[:index], changed, *body.binds[index + 1 :]))
    if isinstance(body, BindGang) and body.binds:
        return _older_gang(body, which, at, nodes)
    if not isinstance(body, Bind | Reserve):
        return body
    changes: tuple[dict[str, Any], ...] = (
        {"epoch": body.epoch - 1},
        {"generation": body.generation - 1},
        {"policy_revision": body.policy_revision % 3 + 1},
        {"grant_version": body.grant_version + 1},
        {"node": nodes[int(at * len(nodes))]},
        {"node": nodes[-1]},
    )
    return replace(body, **changes[int(which * WAYS) % len(changes)])


def _older_gang(body: BindGang, which: float, at: float, nodes: Sequence[str]) -> Body:
    """Without one of its members, as if they had nothing to do with each other, or with one that is wrong."""
    index = int(at * len(body.binds))
    others = (*body.binds[:index], *body.binds[index + 1 :])
    if which < 0.3 and others:
        return BindGang(others)
    if which < 0.5:
        return BindMany(body.binds)
    changed = older(body.binds[index], (which - 0.5) * 2, at, nodes)
    assert isinstance(changed, Bind)
    return BindGang((*body.binds[:index], changed, *body.binds[index + 1 :]))
