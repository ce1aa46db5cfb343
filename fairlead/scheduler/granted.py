"""The grants a scheduler knows, by tenant, with the term of their leases. A cache: the authority has the last word. Fed by
observer.py, asked by cycle.py."""

from __future__ import annotations

from fairlead.decide.cut_off import is_cut_off
from fairlead.decide.granting import in_force
from fairlead.decide.leasing import installed, policy_end_ms
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources


class Grants(dict[str, Grant]):
    term: GrantTerm | None = None
    channel: Metadata | None = None  # the marks of the copies that policy and residency are judged by
    region: Metadata | None = None
    _lease: tuple[object, object, object, int, int] = (None, None, None, -1, 0)  # what the end of a lease was told from, and it

    def holds(self, grant: Grant, local_autonomy: bool, revision: int, now_ms: int) -> str:
        """Why this waits until the global plane answers; empty: it does not."""
        incarnation = split_revision(revision)[0]
        if now_ms >= self._policy_end_ms(incarnation):
            return "the lease on policy and residency has ended, and the global plane does not answer"
        if not local_autonomy and grant.spec.lease_seconds > 0 and is_cut_off(self.term, incarnation, now_ms):
            return "the global plane does not answer"
        return ""

    def _policy_end_ms(self, incarnation: int) -> int:
        term, channel, region, of, end_ms = self._lease
        if term is not self.term or channel is not self.channel or region is not self.region or of != incarnation:
            end_ms = policy_end_ms(self.term, installed(self.channel, self.region), incarnation)
            self._lease = (self.term, self.channel, self.region, incarnation, end_ms)
        return end_ms

    def limit(self, grant: Grant, revision: int, now_ms: int) -> Resources:
        """What the tenant may use altogether, here and now."""
        return in_force(grant, self.term, split_revision(revision)[0], now_ms).limit
