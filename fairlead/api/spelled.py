"""An object in the words in which kubectl applied it, where they mean what is stored.

kubectl's client-side apply compares its file with what it is shown, text by text: where we write a default into a list, leave an
empty field out or say 500m for 0.5, it finds a change that is none, each time anew. It leaves the file in an annotation, so the
spelling is known. Owns which parts are shown so; what is stored and compared here is never touched. Called by calls.py for
answers with one object; lists and watches, which hold many, are in the server's spelling.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fairlead.api import served
from fairlead.api.catalogue import LAST_APPLIED
from fairlead.wire.json_codec import encode
from fairlead.wire.manifest import Decoded, decode_plain

_MARK: Final = LAST_APPLIED.encode()


def as_applied(body: bytes) -> bytes:
    """The text of one object, or of anything else, which is left as it is."""
    if _MARK not in body:
        return body
    tree = msgspec.json.decode(body)
    applied = _applied(tree)
    if applied is None or not isinstance(tree.get("spec"), dict):
        return body
    meant = decode_plain(applied, field_validation="warn")
    if not isinstance(meant, Decoded) or meant.warnings:  # words that nobody understood are nobody's spelling
        return body
    whole = served.tree_of(meant.record)
    return encode({**tree, "spec": _respelled(tree["spec"], whole.get("spec", {}), applied.get("spec", {}))})


def _applied(tree: dict[str, Any]) -> dict[str, Any] | None:
    metadata = tree.get("metadata") or {}
    try:
        found = msgspec.json.decode((metadata.get("annotations") or {}).get(LAST_APPLIED, ""))
    except (msgspec.DecodeError, RecursionError):  # anybody may write one
        return None
    of_this = isinstance(found, dict) and all(found.get(name) == tree.get(name) for name in ("kind", "apiVersion"))
    return found if of_this else None


def _respelled(shown: Any, meant: Any, said: Any) -> Any:
    """`meant` is what was said in our spelling: where that is what is shown, it may as well be shown as it was said."""
    if isinstance(said, dict) and isinstance(shown, dict) and isinstance(meant, dict):
        out = dict(shown)
        for key, value in said.items():
            here = None if value is None else _respelled(shown.get(key), meant.get(key), value)
            if here is not None:
                out[key] = here
        return out
    return said if shown == meant else shown
