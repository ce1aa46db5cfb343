"""A server for the command line to talk to, and a config file that names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client import contexts
from tests.client.fake_api import FakeApi, running


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "config.json"
    monkeypatch.setenv(contexts.PLACE, str(path))
    for name in (contexts.CURRENT, contexts.TOKEN):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def api(config_file: Path) -> Iterator[FakeApi]:
    with running() as api:
        local = contexts.Context(name="local", server=api.url, namespace="risk")
        contexts.save(contexts.ClientConfig(current_context="local", contexts=(local,)), config_file)
        yield api
