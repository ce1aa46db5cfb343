"""The policy channel's few steps, and on whom a canary is tried."""

from __future__ import annotations

from fairlead.decide.channels import HISTORY_MAX, promoted, rolled_back, tried
from fairlead.decide.policy import revision_for
from fairlead.model.kinds.policy import Canary, PolicyChannelSpec


def test_a_canary_is_promoted_or_taken_back_and_the_way_back_is_remembered() -> None:
    first = PolicyChannelSpec(current=1)
    assert promoted(first) is None
    assert rolled_back(first) is None
    trial = tried(first, Canary(revision=2, share_percent=5))
    assert rolled_back(trial) == first
    second = promoted(trial)
    assert second == PolicyChannelSpec(current=2, history=(1,))
    assert rolled_back(second) == PolicyChannelSpec(current=1)
    assert rolled_back(second, to=7) == PolicyChannelSpec(current=7, history=(2, 1))
    assert rolled_back(second, to=2) is None


def test_each_step_back_goes_to_the_one_before_and_never_to_one_that_was_gone_back_from() -> None:
    third = PolicyChannelSpec(current=3, history=(2, 1))
    second = rolled_back(third)
    assert second == PolicyChannelSpec(current=2, history=(1,))
    first = rolled_back(second)
    assert first == PolicyChannelSpec(current=1)
    assert rolled_back(first) is None
    assert rolled_back(third, to=1) == first, "in one step as in two"
    assert rolled_back(first, to=3) == PolicyChannelSpec(current=3, history=(1,)), "whoever names it may have it again"
    again = promoted(tried(second, Canary(revision=4, share_percent=5)))
    assert again == PolicyChannelSpec(current=4, history=(2, 1))


def test_a_revision_named_while_one_is_on_trial_ends_the_trial() -> None:
    trial = PolicyChannelSpec(current=3, canary=Canary(revision=4), history=(2, 1))
    assert rolled_back(trial, to=3) == PolicyChannelSpec(current=3, history=(2, 1))
    assert rolled_back(trial, to=2) == PolicyChannelSpec(current=2, history=(1,))


def test_the_history_is_bounded_and_names_each_revision_once() -> None:
    channel = PolicyChannelSpec(current=1)
    for revision in [*range(2, 80), 5]:
        moved = promoted(tried(channel, Canary(revision=revision, share_percent=1)))
        assert moved is not None
        channel = moved
    assert channel.current == 5
    assert len(channel.history) == HISTORY_MAX == len(set(channel.history))
    assert 5 not in channel.history


def test_a_canary_by_region_is_tried_there_and_on_whom_it_names() -> None:
    all_of_west = PolicyChannelSpec(current=1, canary=Canary(revision=2, regions=("eu-west",)))
    assert [revision_for(all_of_west, "risk", region) for region in ("eu-west", "us-east", "")] == [2, 1, 1]
    risk_in_west = PolicyChannelSpec(current=1, canary=Canary(revision=2, regions=("eu-west",), tenants=("risk",)))
    assert [revision_for(risk_in_west, tenant, "eu-west") for tenant in ("risk", "shop")] == [2, 1]
    assert revision_for(risk_in_west, "risk", "us-east") == 1
    by_share = PolicyChannelSpec(current=1, canary=Canary(revision=2, share_percent=100))
    assert revision_for(by_share, "anybody") == 2
