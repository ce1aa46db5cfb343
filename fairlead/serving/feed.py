"""The endpoints document: one JSON object per workload, for load balancers and scripts, in a file that is replaced whole.

Owns its form (docs/endpoints.md), which only grows. Never holds anything the directory does not. Started by the root (`Files`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fairlead.model.commands import Fault
from fairlead.ports import Clock
from fairlead.serving.directory import Directory, Listener, Member, Name, Picture, Source, State
from fairlead.wire.json_codec import encode, parse_json

log = logging.getLogger(__name__)

FORMAT: Final = 1
INDEX: Final = "directory.json"
GATHER_S: Final = 0.1  # changes of a rollout come in bursts; one write for each
REFRESH_S: Final = 5.0  # ages of silent regions, and the proof that somebody still writes here
SLICE: Final = 64  # files written between two yields to the loop

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def document(picture: Picture, wall_s: float) -> dict[str, Any]:
    """Every field is always there."""
    return {
        "format": FORMAT,
        "tenant": picture.tenant,
        "workload": picture.workload,
        "version": picture.version,
        "time": _instant(wall_s),
        "regions": {source.region: _source(source) | {"version": source.version} for source in picture.sources},
        "endpoints": [
            {"region": m.region, "slot": m.slot, "node": m.node, "address": m.address, "ports": dict(m.ports)}
            for m in picture.members
        ],
    }


def _source(source: Source) -> dict[str, Any]:
    age_s = None if source.age_s is None else round(source.age_s, 1)
    return {"state": source.state, "ageSeconds": age_s}


def _instant(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def members_in(text: bytes) -> list[Member]:
    """Back from a document. Raises ValueError for whatever is none."""
    tree = parse_json(text)
    if isinstance(tree, Fault) or not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise ValueError(f"is no endpoints document of format {FORMAT}")
    try:
        return [_member(row) for row in tree["endpoints"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"is a broken endpoints document: {error}") from error


def _member(row: dict[str, Any]) -> Member:
    ports = tuple((str(name), int(number)) for name, number in row["ports"].items())
    return Member(str(row["region"]), int(row["slot"]), str(row["node"]), str(row["address"]), ports)


def index(directory: Directory, names: Iterable[Name], wall_s: float) -> dict[str, Any]:
    """How well each region is known, and which workloads there are."""
    regions = {source.region: _source(source) for source in directory.regions()}
    listed = [f"{tenant}/{workload}" for tenant, workload in sorted(names)]
    return {"format": FORMAT, "time": _instant(wall_s), "regions": regions, "workloads": listed}


class Files:
    """Keeps ROOT/TENANT/WORKLOAD.json and ROOT/directory.json true. A reader never sees half a document."""

    def __init__(self, directory: Directory, root: Path, clock: Clock) -> None:
        self._directory = directory
        self._root = root
        self._clock = clock
        self._written: dict[Name, tuple[State, ...]] = {}  # with what each says of the regions, in order of name
        self._owed: set[Name] = set()  # could not be written; tried again
        self.writes_total = 0

    async def run(self) -> None:
        """Until cancelled. What lies here from an earlier run and is gone since is removed once every region was heard."""
        self._root.mkdir(parents=True, exist_ok=True)
        listener, swept, due_s = self._directory.listen(), False, self._clock.monotonic()
        while True:
            await self._write(listener.take_nowait())
            if self._clock.monotonic() >= due_s:
                await self._write(sorted(self._owed.union(self._outdated())))
                swept = swept or self._sweep()
                with self._told():
                    self._replace(self._root / INDEX, encode(index(self._directory, self._written, self._clock.wall())))
                due_s = self._clock.monotonic() + REFRESH_S
            await self._wait(listener, due_s)
            await self._clock.sleep(GATHER_S)

    async def _wait(self, listener: Listener, due_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due_s - self._clock.monotonic())):
                await listener.wait()

    def _outdated(self) -> list[Name]:
        """Those that name a silent region, whose age grows, or that say something else of a region than is true now: a region
        that is heard again has no change to tell."""
        now = tuple(source.state for source in self._directory.regions())
        return [name for name, told in self._written.items() if told != now or "Stale" in now]

    async def _write(self, names: list[Name]) -> None:
        for number, name in enumerate(names):
            if number and not number % SLICE:
                await self._clock.sleep(0)
            self._owed.add(name)
            with self._told():
                self._one(name)
                self._owed.discard(name)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """A full disk must not end what could go on as soon as there is room."""
        try:
            yield
        except OSError as error:
            log.warning("an endpoints document could not be written: %s", error)

    def _one(self, name: Name) -> None:
        tenant, workload = name
        if not (_LABEL.fullmatch(tenant) and _LABEL.fullmatch(workload)):
            return  # admission lets no such name in; a path is not the place to find out that it did
        path, picture = self._root / tenant / f"{workload}.json", self._directory.picture(tenant, workload)
        if picture is None:
            path.unlink(missing_ok=True)
            self._written.pop(name, None)
            return
        path.parent.mkdir(exist_ok=True)
        self._replace(path, encode(document(picture, self._clock.wall())))
        self._written[name] = tuple(source.state for source in picture.sources)

    def _replace(self, path: Path, text: bytes) -> None:
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(text)
        os.replace(beside, path)
        self.writes_total += 1

    def _sweep(self) -> bool:
        """Removes what an earlier run left and no region knows any more. False: too early to say."""
        if any(source.state != "Current" for source in self._directory.regions()):
            return False
        for path in sorted(self._root.glob("*/*.json")):
            if (path.parent.name, path.stem) not in self._written:
                path.unlink(missing_ok=True)
        return True
