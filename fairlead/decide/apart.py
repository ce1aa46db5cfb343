"""When a region was without the global plane, for the report after it. Pure; used by the region's grant controller and by its
authority when an answer is taken.

Two signs. Its reports upward get no answer for longer than the lease they are made under, which is when the global plane no
longer counts on it; or two questions of its grants got none. What is known of a cut is in GrantTermStatus (`cut_time`, and
`healed_time` once it is over), so that it is reported whoever leads then.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from fairlead.decide.cut_off import last_word_ms, missed_ms
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.quota import EndedApart, GrantTerm, GrantTermStatus
from fairlead.model.kinds.work import Binding


class Contact(NamedTuple):
    """What whoever leads a region has seen of the global plane, in the region's time."""

    began_ms: int  # when it began to look
    heard_ms: int | None = None  # the last answer; None: none so far
    since_ms: int = 0  # the first of those that came without a long silence between them
    patience_ms: int = 0  # how long a silence is an ordinary one


def is_open(status: GrantTermStatus) -> bool:
    return status.cut_time is not None and status.healed_time is None


def is_unreported(status: GrantTermStatus) -> bool:
    """A cut is over, and its report is not written."""
    if status.cut_time is None or status.healed_time is None:
        return False
    return status.merge is None or status.merge.cut_time != status.cut_time


def looked(term: GrantTerm, contact: Contact, now_ms: int) -> GrantTermStatus:
    """The status with a cut that has begun or is over, by what was heard; equal to the one before where neither is so."""
    status, word_ms = term.status, last_word_ms(term)
    heard_ms = contact.heard_ms
    if is_open(status):
        over = heard_ms is not None and now_ms <= heard_ms + contact.patience_ms
        return replace(status, healed_time=instant(max(contact.since_ms, millis(status.cut_time)))) if over else status
    if is_unreported(status) or word_ms is None:
        return status  # one after the other; and whoever never had a word is not cut off
    # Who leads since the silence began has no better word for its beginning than the last that was written down.
    quiet_ms = now_ms - max(heard_ms if heard_ms is not None else contact.began_ms, _healed_ms(status))
    if quiet_ms <= contact.patience_ms:
        return status
    since_ms = max(heard_ms if heard_ms is not None else word_ms, _healed_ms(status))
    return replace(status, cut_time=instant(since_ms), healed_time=None)


def answered(term: GrantTerm, incarnation: int, now_ms: int) -> GrantTermStatus:
    """The status with the cut that an answer ends, taken at that moment. What waited for it is placed with it at the earliest."""
    status = term.status
    if is_open(status):
        return replace(status, healed_time=instant(now_ms))
    since_ms = None if is_unreported(status) else _unanswered_since_ms(term, incarnation, now_ms)
    if since_ms is None:
        return status
    return replace(status, cut_time=instant(since_ms), healed_time=instant(now_ms))


def _unanswered_since_ms(term: GrantTerm, incarnation: int, now_ms: int) -> int | None:
    """Since when the region has had no word, where two questions in a row had no answer."""
    word_ms = last_word_ms(term)
    if term.status.incarnation != incarnation or not term.spec.lease_seconds or word_ms is None:
        return None
    since_ms = max(word_ms, _healed_ms(term.status))
    return since_ms if now_ms >= since_ms + missed_ms(term) else None


def placed_since_ms(term: GrantTerm, incarnation: int, now_ms: int) -> int | None:
    """From when on what was bound counts for the next report, as far as is known now; None: there is no cut to report."""
    status = term.status
    if is_open(status) or is_unreported(status):
        return millis(status.cut_time)
    return _unanswered_since_ms(term, incarnation, now_ms)


def with_ended(term: GrantTerm, incarnation: int, now_ms: int, gone: Binding) -> GrantTermStatus:
    """The status when a binding is removed: what was placed apart is counted though nothing is left of it."""
    status, since_ms, bound_ms = term.status, placed_since_ms(term, incarnation, now_ms), millis(gone.metadata.creation_time)
    if (
        since_ms is None
        or bound_ms < since_ms
        or (status.healed_time and is_unreported(status) and bound_ms >= _healed_ms(status))
    ):
        return status
    before, since, tenant = status.ended, instant(since_ms), gone.metadata.namespace
    if before is None or before.since_time != since:
        before = EndedApart(since_time=since)
    counts = {**before.tenants, tenant: before.tenants.get(tenant, 0) + 1}
    provisional = before.provisional + (gone.spec.provisional_until_time is not None)
    return replace(status, ended=EndedApart(since_time=since, tenants=counts, provisional=provisional))


def _healed_ms(status: GrantTermStatus) -> int:
    return millis(status.healed_time) if status.healed_time is not None else 0
