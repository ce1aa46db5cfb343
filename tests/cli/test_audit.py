"""`fairlead audit verify` over an archive that a plane wrote: clean where it is clean, exit code 8 where a promise is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, World, answer
from fairlead.main import archived_batches
from fairlead.model.commands import Caller, Delete, Put
from fairlead.model.journal import Header, chain_hash, decode_blob, encode_blob
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.store.archive import Archive
from fairlead.store.contract import Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, ok, running_plane


def world() -> World:
    nothing: Any = None
    return World(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, archived=archived_batches)


async def history(directory: Path, change: Callable[[list[Batch]], list[Batch]] = lambda batches: batches) -> None:
    """What a real authority committed, in an archive."""
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        for number in range(3):
            await plane.add_node(f"n{number}")
    archive = Archive(directory)
    for batch in change([entry.batch for entry in disk.journal]):
        archive.append(batch)
    archive.sync()
    archive.close()


def under_an_older_term(batches: list[Batch]) -> list[Batch]:
    """The last batch as a deposed leader would have written it."""
    last = batches[-1]
    blob = decode_blob(last.blob)
    header = msgspec.structs.replace(blob.header, epoch=0)
    assert isinstance(header, Header)
    raw = encode_blob(header, [msgspec.msgpack.encode(entry) for entry in blob.entries])
    return [*batches[:-1], Batch(last.first, last.last, last.previous, chain_hash(last.previous, raw), raw)]


async def test_a_clean_history_is_said_to_be_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path / "history")
    assert answer(world(), ["audit", "verify", str(tmp_path / "history"), "--json"]) == OK
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["name"] == "audit verify"
    assert told["results"]["revisions"] > 3
    assert told["results"]["invariants"]["S18"]["checked"] > 0
    assert not any(row["violations"] for row in told["results"]["invariants"].values())


async def test_every_change_of_an_override_is_listed_with_who_made_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = MemoryDisk()
    scope = OverrideScope(workloads=("api",))
    spec = OverrideSpec(kind="hold", reason="incident 7", ttl_seconds=60, requester="ada", scope=scope)
    made = Override(metadata=Metadata(name="o", namespace="risk"), spec=spec)
    async with running_plane(MemoryStore(disk)) as plane:
        for changed in (spec, replace(spec, ttl_seconds=90), replace(spec, ttl_seconds=90, approver="bob")):
            ok(await plane.send(OPERATOR, Put("Override", replace(made, spec=changed))))
        ok(await plane.send(Caller("eve", Role.OPERATOR), Delete("Override", "risk", "o")))
    archive = Archive(tmp_path / "history")
    for entry in disk.journal:
        archive.append(entry.batch)
    archive.sync()
    archive.close()
    assert answer(world(), ["audit", "overrides", str(tmp_path / "history"), "--json"]) == OK
    told = msgspec.json.decode(capsys.readouterr().out)["results"]["overrides"]
    assert [(each["what"], each["who"]) for each in told] == [
        ("created", "ada"), ("extended", "ada"), ("approved", "ada"), ("revoked", "eve"),
    ]  # fmt: skip
    assert answer(world(), ["audit", "overrides", str(tmp_path / "history")]) == OK
    assert "incident 7" in capsys.readouterr().out
    assert answer(world(), ["audit", "overrides", str(tmp_path / "nowhere")]) == NOT_FOUND


async def test_a_broken_promise_is_named_with_its_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path / "history", under_an_older_term)
    assert answer(world(), ["audit", "verify", str(tmp_path / "history"), "--json"]) == CHECK_FAILED
    told = msgspec.json.decode(capsys.readouterr().out)
    (violation,) = told["results"]["invariants"]["S9"]["violations"]
    assert "term" in violation["detail"]
    assert violation["position"] > 0


def test_a_directory_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert answer(world(), ["audit", "verify", str(tmp_path / "none")]) == NOT_FOUND


async def test_without_a_directory_the_local_platform_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for plane in ("global", "us-east"):
        await history(tmp_path / "data" / plane / "history")
    state = ["--state", str(tmp_path)]
    assert answer(world(), ["audit", "verify", *state, "--json"]) == OK
    planes = msgspec.json.decode(capsys.readouterr().out)["results"]["planes"]
    assert [Path(path).parent.name for path in planes] == ["global", "us-east"]
    assert answer(world(), ["audit", "verify", *state]) == OK
    assert capsys.readouterr().out.count("INVARIANT") == 2
    for what in ("budgets", "overrides"):
        assert answer(world(), ["audit", what, *state, "--json"]) == OK
        assert msgspec.json.decode(capsys.readouterr().out)["params"]["directory"] == str(tmp_path / "data/global/history")
        assert answer(world(), ["audit", what, "--state", str(tmp_path / "none")]) == NOT_FOUND
    assert answer(world(), ["audit", "verify", "--state", str(tmp_path / "none")]) == NOT_FOUND
