"""Is the node open for work: not cordoned, ready, its handshake done, heard recently."""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import CAPACITY, Gate, always
from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier


def cordon(need: Need, row: Row, view: View) -> Any:
    return row.cordoned == 0


def health(need: Need, row: Row, view: View) -> Any:
    return row.healthy == 1


def handshake(need: Need, row: Row, view: View) -> Any:
    return row.schedulable == 1


def observation(need: Need, row: Row, view: View) -> Any:
    return view.now_ms - need.max_age_ms <= row.observed_ms


CORDON = Gate("cordon", cordon, always("it is cordoned"), Tier.INVARIANT, CAPACITY)
HEALTH = Gate("health", health, always("it is not ready"), Tier.INVARIANT, CAPACITY)
HANDSHAKE = Gate("handshake", handshake, always("its inventory handshake is not done"), Tier.INVARIANT, CAPACITY)
OBSERVATION = Gate("observation", observation, always("it was not heard recently enough"), Tier.INVARIANT, CAPACITY)
