"""Evidence: what a drill, a campaign, an audit, a benchmark or a run of tests came to, kept as one small dated file each.

Owns the files' place, names, form and number. Judges nothing: review.py does. Called by the command line, which keeps a record
after such a command, and by `fairlead review`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairlead.wire import json_codec

PLACE: Final = "FAIRLEAD_EVIDENCE"
KEPT_MAX: Final = 20  # of each name: five audits of four planes; of those that failed as many again
BYTES_MAX: Final = 32 * 1024  # of one record; a whole campaign's counts take three
CHANGED: Final = "changed"  # no build's: the source was edited while it ran, or a part was run before, by who knows which


class Record(NamedTuple):
    name: str  # what was run: `drill region-loss`, `sim run`, `audit verify`, `bench recovery`, `test runbooks`
    key: str  # tells runs of one name apart that add up: which seeds, which plane
    command: str
    time_s: float  # the wall clock's, when it began
    build: str
    passed: bool
    figures: dict[str, Any]


class Begun(NamedTuple):
    time_s: float
    build: str


class Evidence:
    """What this command line leaves, and what others left."""

    def __init__(self, folder: Path, command: str, wall: Callable[[], float], build: Callable[[], str]) -> None:
        self.folder = folder
        self._command = command
        self._wall = wall
        self._build = build

    def begin(self) -> Begun:
        return Begun(self._wall(), self._build())

    def keep(self, begun: Begun, name: str, passed: bool, figures: dict[str, Any], key: str = "") -> Path:
        build = begun.build if self._build() == begun.build and not figures.get("resumed") else CHANGED
        return keep(self.folder, Record(name, key, self._command, begun.time_s, build, passed, figures))

    def now_s(self) -> float:
        return self._wall()

    def build(self) -> str:
        return self._build()


def default_folder() -> Path:
    """$FAIRLEAD_EVIDENCE, or `fairlead/evidence` where programs of this user keep their state."""
    named = os.environ.get(PLACE)
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fairlead" / "evidence"


def keep(folder: Path, record: Record) -> Path:
    """Writes a record and drops the oldest of its name: beyond KEPT_MAX of those that passed, and of those that did not. Figures
    that are too large are left out, which counts as not having them."""
    when = datetime.fromtimestamp(record.time_s, tz=UTC)
    tree = {**record._asdict(), "time": when.isoformat(timespec="seconds")}
    del tree["time_s"]
    data = json_codec.encode(tree)
    if len(data) > BYTES_MAX:
        data = json_codec.encode({**tree, "figures": {}})
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = record.name.replace(" ", "-").replace(os.sep, "-")
    path = _written(folder, f"{stem}.{when:%Y%m%dT%H%M%S}", data)
    for old in _beyond(sorted(folder.glob(f"{stem}.2*.json"))):
        old.unlink(missing_ok=True)
    return path


def _beyond(paths: list[Path]) -> list[Path]:
    """Counted apart: twenty short runs that pass must not take away what a long one found."""
    failed = [path for path in paths if (record := _at(path)) is not None and not record.passed]
    others = [path for path in paths if path not in failed]
    return [*others[:-KEPT_MAX], *failed[:-KEPT_MAX]]


def _written(folder: Path, name: str, data: bytes) -> Path:
    """Under a name that nobody else has: four audits may begin in one second. Readers see all of it or nothing."""
    for number in range(1_000):
        path = folder / f"{name}.{number:03}.json"
        try:
            descriptor = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        try:
            os.link(path.with_suffix(".new"), path)
        except FileExistsError:
            continue
        finally:
            path.with_suffix(".new").unlink(missing_ok=True)
        return path
    raise FileExistsError(f"{folder} has a thousand records of one second")


def kept(folder: Path) -> list[Record]:
    """The oldest first. What cannot be read is left out: it counts as missing, and so turns its claims red."""
    found = [record for path in sorted(folder.glob("*.json")) if (record := _at(path)) is not None]
    return sorted(found, key=lambda record: (record.time_s, record.name, record.key))


def _at(path: Path) -> Record | None:
    try:
        return _read(json_codec.parse_json(path.read_bytes()))
    except OSError:
        return None


def _read(tree: object) -> Record | None:
    if not isinstance(tree, dict):
        return None
    texts = [tree.get(name) for name in ("name", "key", "command", "build", "time")]
    passed, figures = tree.get("passed"), tree.get("figures")
    if not all(isinstance(text, str) for text in texts) or not isinstance(passed, bool) or not isinstance(figures, dict):
        return None
    name, key, command, build, time = (str(text) for text in texts)
    try:
        time_s = datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None
    return Record(name, key, command, time_s, build, passed, figures)
