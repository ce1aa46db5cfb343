"""Configs, Secrets and mounts: what is refused, and that a secret is never shown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.decide.admission import faults
from fairlead.model.commands import Caller, Command, Put
from fairlead.model.kinds.intent import Config, ConfigSpec, FileMount, Secret, SecretSpec, Template
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
from tests.model.examples import workload


def _found(*files: FileMount) -> list[tuple[str, str]]:
    template = Template(command=("/bin/api",), files=files)
    new = replace(workload(), spec=replace(workload().spec, template=template))
    return [(fault.path, fault.message) for fault in faults(BY_KIND["Workload"], new, None)]


def test_a_mount_names_one_source_and_a_path_below_the_instance() -> None:
    assert _found(FileMount(path="etc/app", config="app"), FileMount(path="keys", secret="app")) == []


@pytest.mark.parametrize("path", ["", "/etc", "../up", "a/../b", "a//b", "a/./b", "a b", "x" * 300])
def test_a_path_that_could_leave_the_instances_directory_is_refused(path: str) -> None:
    found = _found(FileMount(path=path, config="app"))
    assert [where for where, _ in found] == ["spec.template.files[0].path"]


def test_two_sources_or_none_are_refused() -> None:
    assert _found(FileMount(path="a"))[0][0] == "spec.template.files[0]"
    assert _found(FileMount(path="a", config="x", secret="y"))[0][0] == "spec.template.files[0]"


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a b", "\0"])
def test_a_key_that_is_no_file_name_is_refused(key: str) -> None:
    new = Config(metadata=Metadata(name="app", namespace="risk"), spec=ConfigSpec(data={key: "x"}))
    assert faults(BY_KIND["Config"], new, None)


def test_a_secret_is_not_shown_by_repr_wherever_it_is() -> None:
    secret = Secret(metadata=Metadata(name="app", namespace="risk"), spec=SecretSpec(data={"key": "hush"}))
    assert faults(BY_KIND["Secret"], secret, None) == ()
    command = Command(Caller("ada", Role.USER), Put("Secret", secret))
    assert "hush" not in repr(command) + str(secret) + f"{secret.spec}"
