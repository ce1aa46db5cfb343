"""Is this object well formed? All of its faults at once, each with its path in the manifest and what would be right.

Owns the rules on one object and on its change from the stored version. Never looks at any other object (quota, grants and
references are judged where they are used) and never changes what it is given. Called by the authority on every put, and by
the command line for `--dry-run=client`.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.decide.admission.metadata import check_metadata
from fairlead.decide.admission.report import Report
from fairlead.model.commands import Fault
from fairlead.model.meta import Record
from fairlead.model.registry import KindInfo

__all__ = ["OBJECT_BYTES_MAX", "faults"]

OBJECT_BYTES_MAX: Final = 256 * 1024  # A thousand objects of the largest size still fit one journal batch.


def faults(info: KindInfo, new: Record, old: Record | None, *, encoded_bytes: int = 0) -> tuple[Fault, ...]:
    """Everything wrong with `new` as the successor of `old` (None: it is being created). Empty means admitted.

    `encoded_bytes` is the length of its stored form, where the caller knows it.
    """
    report = Report()
    after: Any = new
    before: Any = old
    check_metadata(report, info, after.metadata, before.metadata if before is not None else None)
    if encoded_bytes > OBJECT_BYTES_MAX:
        report.add("", f"the object may have {OBJECT_BYTES_MAX} bytes, has {encoded_bytes}")
    if before is not None and info.immutable and after.spec != before.spec:
        report.add("spec", f"a {info.kind} never changes; create a new one instead")
    return report.faults()
