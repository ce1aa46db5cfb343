"""What the fields of records mean, in words: the comments that stand beside them in the model, and a few that all kinds share.

So a field is explained in one place, next to its type. Nothing is said where the source is not at hand. Called by OpenAPI and by
`fairlead explain`.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Final

_COMMENT: Final = re.compile(r"^    (\w+): [^#]*(?:#\s*(.+))?$")
ALIKE: Final = {
    "metadata": "Name, tenant, labels and what the server keeps of every object.",
    "spec": "What is wanted.",
    "status": "What was observed; written by its owner only.",
    "conditions": "Typed statements about the object.",
    "observedGeneration": "The generation this status speaks of.",
    "apiVersion": "The group and version of this kind.",
    "kind": "The kind of this object.",
    "resourceVersion": "What is to be sent back to change just this version.",
}


def meaning(record: Any, name: str, encoded: str) -> str:
    """Of one field, by its name in the record and on the wire; empty: nobody wrote it down."""
    return descriptions(record).get(name) or ALIKE.get(encoded, "")


@functools.cache
def descriptions(record: Any) -> dict[str, str]:
    """The comments beside a record's fields, as sentences."""
    try:
        source = inspect.getsource(record)
    except (OSError, TypeError):
        return {}
    found = {}
    for line in source.splitlines():
        match = _COMMENT.match(line)
        if match is not None and match[2]:
            text = match[2].strip()
            found[match[1]] = text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
    return found
