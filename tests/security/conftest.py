"""Real planes for the tests here, started once for all that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.two_planes import NODE, TwoPlanes


@pytest.fixture(scope="session")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPlanes]:
    made = TwoPlanes(tmp_path_factory.mktemp("two-planes"))
    try:
        made.start()
    except BaseException:
        made.end_all()
        raise
    yield made
    made.stop()


@pytest.fixture(scope="session")
def node(planes: TwoPlanes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that joined with a token; where it keeps its own."""
    state = tmp_path_factory.mktemp(NODE) / "state"
    planes.join(NODE, state)
    return state
