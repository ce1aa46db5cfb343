"""Since when a region has had no word from the global plane, by what it wrote down of its last lease. Pure; used by the
scheduler and the authority of a region, and for its merge reports (apart.py).
"""

from __future__ import annotations

from fairlead.decide import escrow
from fairlead.decide.slots import millis
from fairlead.model.kinds.quota import GrantTerm


def is_cut_off(term: GrantTerm | None, incarnation: int, now_ms: int) -> bool:
    """Two renewals were not answered: quota, policy and residency are as they were then, and may not be so any more."""
    if term is None or term.status.incarnation != incarnation or term.status.end_time is None or not term.spec.lease_seconds:
        return False  # it has never had a lease, and so no room to place anything
    word_ms = last_word_ms(term)
    return word_ms is not None and now_ms >= word_ms + missed_ms(term)


def last_word_ms(term: GrantTerm) -> int | None:
    """When it asked for the last lease it was given, also in a history before this one; None: it has had none."""
    status = term.status
    if status.end_time is None or not term.spec.lease_seconds:
        return millis(status.word_time) if status.word_time is not None else None
    return millis(status.end_time) - escrow.holder_ms(term.spec.lease_seconds * 1000, escrow.RHO)


def missed_ms(term: GrantTerm) -> int:
    """So long without a word means that two questions in a row had no answer."""
    return 2 * (term.spec.lease_seconds * 1000) // 5
