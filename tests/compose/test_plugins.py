"""Who gets the plug-ins that a server was given, and who gets none. A real process that finds its own: tests/platform."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.compose.config import PlaneConfig
from fairlead.compose.controllers import controllers_of
from fairlead.compose.health import loading
from fairlead.decide.plugins import BUILT_INS
from fairlead.decide.scores import Tier
from fairlead.model.kinds.intent import ResourceSpec, Template, Workload, WorkloadSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec, WorkloadClass
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.plugins import NO_PLUGINS, Loaded, Plugin
from tests.observe.servers import served
from tests.platform.packages import MODULE, install

GATE = SimpleNamespace(
    name="example.x", tier=Tier.INVARIANT, text="nothing anywhere", check=lambda *_: False, why=lambda *_: "no"
)
REGISTRY, _ = BUILT_INS.with_plugins([("gates", GATE.name, GATE)])


def test_every_controller_that_reads_policies_knows_what_they_may_name() -> None:
    config = PlaneConfig(plane="global", store="", data="")
    readers: list[Any] = [
        each for each, _, _ in controllers_of(config, "here", "here", {}, None, REGISTRY) if hasattr(each, "_policies")
    ]
    assert sorted(each.name for each in readers) == ["recovery", "workload"]
    assert all(each._policies._registry is REGISTRY for each in readers)


async def test_the_workload_controller_of_a_server_goes_by_a_revision_that_names_a_plug_in(tmp_path: Path) -> None:
    async with served(tmp_path, plane="global", plugins=Loaded(REGISTRY)) as s:
        classes = (WorkloadClass(name="odd", priority_class_name="standard"),)
        spec = SchedulerPolicySpec(revision=1, gates=(GATE.name,), workload_classes=classes)
        await s.put("SchedulerPolicy", SchedulerPolicy(Metadata(name="r1"), spec))
        await s.put("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1)))
        asked = WorkloadSpec(
            workload_class="odd", template=Template(command=("serve",)), resources=ResourceSpec(Resources(1000, 1 << 30))
        )
        await s.put("Workload", Workload(Metadata(name="api", namespace="risk"), asked))
        await s.until(
            lambda: s.server.authority.view().get("revisions", "risk", "api.g1"), "a revision of a class that only r1 has"
        )


async def test_a_server_that_is_given_none_looks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the simulator makes them: a seed must mean the same on every machine."""
    install(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    importlib.invalidate_caches()
    async with served(tmp_path / "data") as s:
        assert "\n[+]plug-ins none are installed\n" in (await s.get("/readyz?verbose"))[2]
    assert MODULE not in sys.modules


@pytest.mark.parametrize(
    ("plugins", "line"),
    [
        (NO_PLUGINS, (True, "none are installed")),
        (Loaded(taken=(Plugin("example.b", "b 1"), Plugin("example.a", "a 1"))), (True, "example.a, example.b")),
        (Loaded(left_out=(Plugin("example.c", "c 1"),)), (False, "left out: example.c; why is in this server's log")),
        (
            Loaded(taken=(Plugin("example.a", "a 1"),), left_out=(Plugin("example.c", "c 1"),)),
            (False, "example.a; left out: example.c; why is in this server's log"),
        ),
    ],
)  # fmt: skip
def test_plug_ins_are_told_by_name_to_whoever_asks_and_nothing_else_of_them(plugins: Loaded, line: tuple[bool, str]) -> None:
    assert loading(plugins) == ("plug-ins", *line)


async def test_how_many_were_loaded_and_left_out_is_counted_and_none_is_named(tmp_path: Path) -> None:
    taken, left_out = (Plugin("example.a", "a 1"), Plugin("example.b", "b 1")), (Plugin("example.c", "c 1"),)
    async with served(tmp_path, plugins=Loaded(taken=taken, left_out=left_out)) as s:
        _, _, text = await s.get("/metrics", await s.token("metrics-reader"))
    told = [line for line in text.splitlines() if line.startswith("fairlead_plugins{")]
    assert [line.rpartition(" ")[2] for line in told if 'state="loaded"' in line] == ["2.0"]
    assert [line.rpartition(" ")[2] for line in told if 'state="failed"' in line] == ["1.0"]
    assert "example." not in text
