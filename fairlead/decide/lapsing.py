"""What is left of the leases that a region was given after a time that nobody has measured: none of them (ADR 0034). Pure. Used
by the authority of a region when it starts cold.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from fairlead.decide.cut_off import last_word_ms
from fairlead.decide.slots import instant
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm


def lapsed_term(term: GrantTerm, now: datetime) -> GrantTerm:
    """All leases are over, as far as anybody here knows, and a new question is asked, so that no answer to an earlier one is
    taken. What agents were told stands: they went on counting. When it last had a word is kept: a cut may have begun then."""
    status, word_ms = term.status, last_word_ms(term)
    word = instant(word_ms) if word_ms is not None else None
    asked = replace(status, asked=status.asked + 1, asked_time=now, end_time=None, before_end_time=None, word_time=word)
    return replace(term, status=asked)


def lapsed_grant(grant: Grant) -> Grant:
    """The same of one whose lease ends by itself."""
    if grant.status.lease_end_time is None:
        return grant
    return replace(grant, status=replace(grant.status, lease_end_time=instant(0)))
