"""Until when a scheduler places by the policy it has, with the words for who waits; and a fork, which has another policy."""

from __future__ import annotations

from fairlead.decide.leasing import VERSION
from fairlead.decide.slots import instant
from fairlead.model.ids import revision
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata
from fairlead.scheduler.granted import Grants
from fairlead.scheduler.picture import Picture, Seen

AT = revision(1, 7)
GRANT = Grant(Metadata(name="east", namespace="risk"), GrantSpec("east", 1))
CHANNEL = PolicyChannel(Metadata(name="default", annotations={VERSION: "7"}), PolicyChannelSpec(current=1))


def term(leased_policy: int = 7) -> GrantTerm:
    status = GrantTermStatus(
        incarnation=1, asked=1, taken=1, end_time=instant(10_000), leased_policy=leased_policy, before_end_time=instant(4_000)
    )
    return GrantTerm(Metadata(name="east"), GrantTermSpec("east", lease_seconds=10), status)


def test_it_places_until_the_lease_on_what_it_has_ends_and_says_why_not_longer() -> None:
    grants = Grants()
    assert not grants.holds(GRANT, True, AT, 1 << 40), "a plane without a term has nobody to ask"
    grants.term, grants.channel = term(), CHANNEL.metadata
    assert not grants.holds(GRANT, True, AT, 9_999)
    assert "lease on policy" in grants.holds(GRANT, True, AT, 10_000)
    assert grants.holds(GRANT, True, revision(2, 1), 0), "another incarnation was leased nothing"
    grants.term = term(leased_policy=8)
    assert not grants.holds(GRANT, True, AT, 3_999)
    assert grants.holds(GRANT, True, AT, 4_000), "what is leased is newer, and has not come"


def test_a_fork_knows_what_was_installed_though_another_policy_decides() -> None:
    picture = Picture("east")
    picture.fix(None)
    picture.observe([Seen("grantterms", "", "east", 1, b"x", term()), Seen("policychannels", "", "default", 2, b"x", CHANNEL)])
    assert not picture.snapshot.grants.holds(GRANT, True, AT, 9_999)
