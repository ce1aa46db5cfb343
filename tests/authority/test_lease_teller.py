"""What a leader tells agents of its grants' leases: nothing that could be undone yet, and not worked out for every heartbeat."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairlead.authority.leases import EVERY_MS, LeaseTeller
from fairlead.decide.lasting import GrantWord
from fairlead.model.registry import GLOBAL, REGION
from tests.decide.test_lasting import END_MS, TERM, grant

NOW_MS = END_MS - 60_000


def context(plane: str = REGION) -> Any:
    """A region with one leased grant of which more is used than stays."""
    state = SimpleNamespace(
        position=5,
        durable=4,
        hot=lambda plural, tenant, name: TERM,
        live=lambda plural: [SimpleNamespace(tenant="risk", hot=grant(1_000))],
    )
    ledger = SimpleNamespace(used={"cpu": 2_000})
    ledger.tenant = lambda name: SimpleNamespace(used=ledger.used)
    settings = SimpleNamespace(plane=plane, region="us")
    return SimpleNamespace(settings=settings, state=state, ledger=ledger, incarnation=1, taken_back=0)


def test_a_word_is_said_when_all_it_rests_on_is_durable_and_the_one_before_it_until_then() -> None:
    ctx = context()
    teller = LeaseTeller(ctx)
    assert teller.word(NOW_MS) is None
    ctx.state.durable = 5
    above = teller.word(NOW_MS)
    assert above == GrantWord(5, 60.0, {"risk": 60.0})
    ctx.state.position, ctx.ledger.used = 6, {"cpu": 500}
    later_ms = NOW_MS + EVERY_MS
    assert teller.word(later_ms) == GrantWord(5, 59.5, {"risk": 59.5}), "what ended may be undone yet"
    ctx.state.durable = 6
    assert teller.word(later_ms) == GrantWord(6, 59.5, {})


def test_what_was_seen_in_a_batch_that_is_taken_back_is_never_said_though_its_position_is_durable_again() -> None:
    """It holds something else by then: what is above the limit that stays would be firm on its nodes (S5)."""
    ctx = context()
    teller, ctx.ledger.used = LeaseTeller(ctx), {"cpu": 500}
    assert teller.word(NOW_MS) is None
    ctx.taken_back, ctx.ledger.used, ctx.state.durable = 1, {"cpu": 2_000}, 5
    assert teller.word(NOW_MS) is None
    assert teller.word(NOW_MS + EVERY_MS) == GrantWord(5, 59.5, {"risk": 59.5})


def test_leases_are_looked_at_twice_a_second_and_not_in_the_global_plane() -> None:
    ctx = context()
    teller, ctx.state.durable = LeaseTeller(ctx), 9
    first = teller.word(NOW_MS)
    ctx.ledger.used, ctx.state.position = {"cpu": 500}, 9
    assert first is not None
    again = teller.word(NOW_MS + EVERY_MS - 1)
    assert again is not None
    assert again.position == first.position
    assert LeaseTeller(context(GLOBAL)).word(NOW_MS) is None
