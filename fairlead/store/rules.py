"""The answers every engine must give alike: what an empty store says, and why a batch or objects were not written.

Owns no data, does no I/O, never awaits. Called by the engines with what they read in the transaction that refused.
"""

from __future__ import annotations

from fairlead.store.contract import FORMAT, NO_HASH, AlreadyThere, Batch, Committed, Fence, Fenced, Head, Superseded

# Incarnations start at one, so that a token or a revision with none in it is never mistaken for a valid one.
EMPTY = Head(
    format=FORMAT,
    incarnation=1,
    epoch=0,
    holder="",
    renewals=0,
    position=0,
    hash=NO_HASH,
    materialised=0,
    truncated=0,
    anchor=b"",
)


def is_empty(head: Head) -> bool:
    """Nobody ever led it and nothing was ever written: the only store that may be seeded."""
    return head.epoch == 0 and head.position == 0


def may_commit(head: Head, fence: Fence, batch: Batch) -> bool:
    return head.fence() == fence and head.position == batch.first - 1 and head.hash == batch.previous


def why_not_committed(head: Head, fence: Fence, batch: Batch, hash_at_first: bytes | None) -> AlreadyThere | Superseded | Fenced:
    """`hash_at_first` is the hash of the journal row at batch.first, None if there is no such row."""
    if head.fence() != fence:
        return Fenced(head)
    # The second test answers a resubmission whose row was truncated meanwhile: the head still names it.
    if hash_at_first == batch.hash or (head.position == batch.last and head.hash == batch.hash):
        return AlreadyThere()
    return Superseded(head)


def why_not_materialised(head: Head, fence: Fence, as_of: int) -> Committed | Superseded | Fenced:
    """What else refuses under the same fence is that newer rows are there already, which is what was asked for: one that comes
    late must not take objects back behind a journal that may be truncated by now."""
    if head.fence() != fence:
        return Fenced(head)
    return Superseded(head) if as_of > head.position else Committed()
