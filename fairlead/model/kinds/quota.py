"""How grants are leased to regions (P13): offers that were superseded, the term of a region's leases, the report after a cut."""

from __future__ import annotations

from datetime import datetime

from fairlead.model.meta import Condition, Metadata, Record
from fairlead.model.resources import NOTHING, Resources


class GrantOffer(Record, frozen=True):
    """An offer that was superseded, and that the region may still stand on. `until_time` is the global plane's: from then on
    no region believes that a lease on it still runs."""

    version: int
    during: Resources = NOTHING
    after: Resources = NOTHING
    until_time: datetime | None = None  # None: it has no lease, and ends when the region takes a newer one


class MergeProof(Record, frozen=True):
    """That a tenant's quota is not sold twice at the moment of a report: what is used here then is within the offer that the
    global plane has counted."""

    tenant: str
    version: int  # of the offer
    used: Resources = NOTHING
    offered: Resources = NOTHING


class MergedOverride(Record, frozen=True):
    """What people ordered in the region itself, and its use."""

    tenant: str
    name: str
    kind: str
    requester: str = ""
    reason: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None
    slots: int = 0  # in its scope when it was told: bound, or waiting


class MergeReport(Record, frozen=True):
    """What a region decided while it had no word from the global plane, in its own time."""

    cut_time: datetime | None = None  # when it last had one
    healed_time: datetime | None = None
    placed: int = 0  # slots bound in between; one that was bound twice counts twice
    provisional: int = 0  # of these, above what would have stayed when the lease ended
    confirmed: int = 0  # of these, what stays when leases end
    released: int = 0  # and what has ended or was stopped, or is about to be
    tenants: dict[str, int] = {}  # slots placed, by tenant
    over: tuple[str, ...] = ()  # tenants that use more than they were offered: none, where nothing was sold twice
    proof: tuple[MergeProof, ...] = ()  # of the tenants that placed something apart, and of those above their offers
    overrides: tuple[MergedOverride, ...] = ()  # that held at some time in between
    lasting: int = 0  # of those placed, what stays as long as leases go on: its tenant uses more than stays
    ended: dict[str, int] = {}  # of those released, by tenant, what is not known any more but for this count


class EndedApart(Record, frozen=True):
    """Slots that were bound in the cut that began then, and whose bindings are gone since. Counted by the authority in the entry
    that removes them, until the report is written."""

    since_time: datetime | None = None
    tenants: dict[str, int] = {}
    provisional: int = 0


class MergeCheck(Record, frozen=True):
    """A region's report held against the global plane's own books when it came: of each tenant in its proof what it said to use,
    and what the global plane charges for it there."""

    healed_time: datetime | None = None  # of the report
    charged: tuple[MergeProof, ...] = ()
    over: tuple[str, ...] = ()  # tenants that use more than is charged: none, or quota was sold twice


class GrantTermSpec(Record, frozen=True):
    """The global plane's last answer to a region: all its grants whose newest version it stands on are leased for
    `leaseSeconds` from when it asked. `floors` names the other ones, and the version from which on a lease is given."""

    region: str
    incarnation: int = 0  # of the global plane that answers
    asker: int = 0  # incarnation of the region's plane whose question this is
    answered: int = 0  # the question's number
    lease_seconds: int = 0  # 0: nothing is leased, say first what you stand on
    until_time: datetime | None = None  # when the region has certainly stopped to believe in any answer; the global plane's time
    floors: dict[str, int] = {}  # tenant -> version
    policy: int = 0  # the version of the policy channel from which on policy is leased
    residency: int = 0  # and of the Region, for the areas it lies in
    before_time: datetime | None = None  # when the region has certainly stopped to judge by older versions; as untilTime
    answered_time: datetime | None = None  # when this was answered; the global plane's time
    longest_seconds: int = 0  # of the lease that runs until `untilTime`: an earlier answer may have given a longer one


class GrantTermStatus(Record, frozen=True):
    """The region's side: its last question, and until when its leases run, all in its own plane's time."""

    observed_generation: int = 0
    incarnation: int = 0  # of the region's plane
    asked: int = 0
    asked_time: datetime | None = None
    taken: int = 0  # the last question whose answer was taken
    end_time: datetime | None = None  # of the leases
    knows: int = 0  # the incarnation of the global plane it has heard from
    merge: MergeReport | None = None  # of the last time it was cut off
    conditions: tuple[Condition, ...] = ()
    policy: int = 0  # the version of the policy channel that is installed here
    residency: int = 0  # and of the Region
    leased_policy: int = 0  # from which versions on the last answer leases policy
    leased_residency: int = 0  # and residency
    before_end_time: datetime | None = None  # until when what is older may still be judged by
    word_time: datetime | None = None  # when it last had a word, where it has started cold or anew since and had none
    cut_time: datetime | None = None  # when it last had a word before it was cut off, now or the last time
    healed_time: datetime | None = None  # and when it had the next; None: it is cut off
    ended: EndedApart | None = None  # what the next report counts of slots that are gone
    checked: MergeCheck | None = None  # in the global plane: `merge`, held against what is charged there
    as_of: int = 0  # in the global plane: the revision of the region's plane that this was said at; 0 in the region itself


class GrantTerm(Record, frozen=True):
    """Named like its region; one question and one answer for all tenants."""

    metadata: Metadata
    spec: GrantTermSpec
    status: GrantTermStatus = GrantTermStatus()
