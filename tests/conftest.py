"""Which tests share a worker, and in which order they start, when they run beside each other (`make test`). Changes nothing else.

Tests that share something started once run on one worker, so that it is started once. What takes longest starts first, so that
no worker is left alone with it at the end; the order of the rest is pytest's own.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from fairlead.observe.evidence import PLACE
from tests.sim import fresh

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; programs under test would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT: Final = Path(__file__).parents[1]

# How long an example takes, and how long it takes to think of one, says how busy the machine is and nothing of the code. The
# examples are the same for everybody who runs these tests; `make soak` looks for new ones.
settings.register_profile(
    "at any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="FAIRLEAD_SOAK" not in os.environ
)
settings.load_profile("at any speed")

# Files whose tests share a fixture of their folder. Those of one file that has a fixture for all of it stay together anyway.
SHARED: Final = {
    "tests/platform/test_local.py": "the local platform",
    "tests/platform/test_scenarios.py": "the local platform",
    "tests/security/test_platform.py": "two planes",
    "tests/security/test_walls.py": "two planes",
}

# What takes longest, as `make test ARGS=--durations=100` says. Those that start many processes are not all neighbours, because
# they would start them all at once. What is not here comes after these.
LONGEST: Final = (
    "tests/platform/test_local.py",
    "tests/platform/test_scenarios.py",
    "tests/sim/test_commit_model.py",
    "tests/platform/test_tour.py",
    "tests/store/test_differential.py",
    "tests/platform/test_ha.py",
    "tests/controllers/test_meddling.py",
    "tests/rigs/test_kill.py",
    "tests/platform/test_deploy.py",
    "tests/store/test_postgres_faults.py",
    "tests/bench/test_api.py",
    "tests/security/test_platform.py",
    "tests/security/test_walls.py",
    "tests/store/test_etcd_faults.py",
    "tests/rigs/test_scheduler_race.py",
    "tests/platform/test_over_http.py",
    "tests/sim/test_fresh.py",
    "tests/sim/test_regressions.py",
)


@pytest.fixture(scope="session", autouse=True)
def _evidence_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs under test leave evidence, as programs do; it must not become the review of whoever runs the tests."""
    before = os.environ.get(PLACE)
    os.environ[PLACE] = str(tmp_path_factory.mktemp("evidence"))
    yield
    if before is None:
        del os.environ[PLACE]
    else:
        os.environ[PLACE] = before


def pytest_configure() -> None:
    fresh.choose()


def pytest_report_header() -> str:
    return fresh.header()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Seeds of the day are said however the tests end: another day has others."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, ())]
    for said in sorted(str(value) for each in reports for name, value in each.user_properties if name == fresh.RAN):
        terminalreporter.write_line(f"{fresh.RAN}: {said}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))


def pytest_collection_finish() -> None:
    """A server that begins to lead looks for garbage among all that its process holds. Here that would be every test there is,
    a third of a second each time, so they are set apart once, and nobody takes them back."""
    gc.collect()
    gc.freeze()
    for name in ("freeze", "unfreeze"):
        setattr(gc, name, lambda: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return Together(config, log) if config.getoption("dist") == "loadscope" else None


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker the next unit when it has done with its last one. A unit is one test, or all that share something."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SHARED.get(file) or (file if _shares(file) else nodeid)


@functools.cache
def _shares(file: str) -> bool:
    return 'scope="module"' in (ROOT / file).read_text()
