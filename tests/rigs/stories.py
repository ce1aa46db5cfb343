"""What a rig's clients saw, command by command: an append-only log each, and the stories read back from it.

Owns the lines and how they fold into one story per command. It judges nothing; verify.py does. Times are CLOCK_MONOTONIC in
nanoseconds, one clock for every process of the host, so that logs of different clients can be compared (S14).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Event = Literal["sent", "accepted", "refused", "unknown", "left"]
How = Literal["answer", "receipt", "resend"]  # where a settling answer came from


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    event: Event
    ns: int
    what: str = ""  # of a sent one: create, bind, ...
    expects: str = ""  # of a sent one: "accepted", or the only reason it may be refused for
    actor: str = ""  # with `key`: where its receipt can be asked for
    key: str = ""
    how: How = "answer"
    revision: int = 0
    uid: str = ""
    replayed: bool = False
    reason: str = ""


class Story(msgspec.Struct):
    """One command from its first sending to its end."""

    sent: Line
    unknown: Line | None = None  # the first time nobody could say
    end: Line | None = None  # accepted, refused or left


class ClientLog:
    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=1 << 16)

    def write(self, line: Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()


def now_ns() -> int:
    return time.monotonic_ns()


def read_stories(folder: Path) -> dict[str, Story]:
    decode = msgspec.json.Decoder(Line).decode
    lines = (decode(raw) for path in sorted(folder.glob("client-*.log")) for raw in path.read_bytes().splitlines())
    return fold(lines)


def fold(lines: Iterable[Line]) -> dict[str, Story]:
    stories: dict[str, Story] = {}
    for line in lines:
        if line.event == "sent":
            assert line.id not in stories, f"{line.id} was sent twice as new"
            stories[line.id] = Story(line)
        elif line.event == "unknown":
            story = stories[line.id]
            story.unknown = story.unknown or line
        else:
            assert stories[line.id].end is None, f"{line.id} ended twice"
            stories[line.id].end = line
    return stories
