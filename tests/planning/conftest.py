"""One platform for all tests here, and a config file by which the command line finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client import contexts
from tests.cli.conftest import config_file as config_file
from tests.planning.platform import Platform, on_a_thread


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with on_a_thread(tmp_path_factory.mktemp("platform")) as made:

        async def fill() -> None:
            await made.add_tenant("risk")
            await made.add_tenant("billing")
            for region in ("east", "west"):
                for number, zone in enumerate("abc"):
                    await made.add_node(region, f"{region}-n{number}", zone=zone)
            await made.until(
                lambda: all(made.get("grants", r, t, r) is not None for r in ("east", "west") for t in ("risk", "billing"))
            )

        made.run(fill())
        yield made


@pytest.fixture
def here(shared: Platform, config_file: Path) -> Platform:
    made = [
        contexts.Context(name=name, server=shared.url, namespace="risk", certificate_authority=str(shared.ca), token=token)
        for name, token in (("ada", "ada-token"), ("eve", "eve-token"))
    ]
    contexts.save(contexts.ClientConfig(current_context="ada", contexts=tuple(made)), config_file)
    return shared
