"""The grants a scheduler knows, by tenant, with the term of their leases. A cache: the authority has the last word. Fed by
observer.py, asked by cycle.py."""

from __future__ import annotations

from fairlead.decide.granting import in_force, is_cut_off
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.resources import Resources


class Grants(dict[str, Grant]):
    term: GrantTerm | None = None

    def holds(self, grant: Grant, local_autonomy: bool, revision: int, now_ms: int) -> bool:
        """The region is cut off, and this waits until it is not."""
        return not local_autonomy and grant.spec.lease_seconds > 0 and is_cut_off(self.term, split_revision(revision)[0], now_ms)

    def limit(self, grant: Grant, revision: int, now_ms: int) -> Resources:
        """What the tenant may use altogether, here and now."""
        return in_force(grant, self.term, split_revision(revision)[0], now_ms).limit
