"""What drills came to, kept: one file a run under `drills` in the platform's state directory, for `fairlead drill list` and the
readiness review.

Owns the files' names and form. Judges nothing. Called by program.py and by whoever reviews.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fairlead.security.files import write_private
from fairlead.wire import json_codec

FOLDER: Final = "drills"
KEPT_MAX: Final = 50  # of each drill


def keep(state: Path, name: str, at_s: float, result: dict[str, Any]) -> Path:
    """`at_s`: the wall clock's, when it began."""
    folder = state / FOLDER
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    when = datetime.fromtimestamp(at_s, tz=UTC)
    path = folder / f"{name}.{when:%Y%m%dT%H%M%S}.json"
    write_private(path, json_codec.encode({"time": when.isoformat(timespec="seconds"), **result}))
    for old in sorted(folder.glob(f"{name}.2*.json"))[:-KEPT_MAX]:
        old.unlink(missing_ok=True)
    return path


def kept(state: Path, name: str) -> list[dict[str, Any]]:
    """Of one drill, the oldest first. What cannot be read is left out."""
    out = []
    for path in sorted((state / FOLDER).glob(f"{name}.2*.json")):
        tree = json_codec.parse_json(path.read_bytes())
        if isinstance(tree, dict) and isinstance(tree.get("results"), dict):
            out.append(tree)
    return out
