"""Production code reaches time, chance and tasks through the ports only."""

from __future__ import annotations

import pytest

from tests.house.banned import ALLOWED, ROOT, find_banned, not_allowed, production_files


def test_no_production_file_uses_a_banned_name() -> None:
    findings = [
        finding
        for path in production_files()
        for finding in not_allowed(find_banned(path.read_text(), path.relative_to(ROOT).as_posix()))
    ]
    assert not findings, "\n".join(map(str, findings))


def test_every_named_exception_is_still_needed() -> None:
    unused = []
    for path, entries in ALLOWED.items():
        file = ROOT / path
        names = {finding.name for finding in find_banned(file.read_text(), path)} if file.exists() else None
        for entry in entries:
            if names is None or entry == "*":
                continue
            if not any(name == entry or name.startswith(entry + ".") for name in names):
                unused.append(f"{path}: {entry}")
    assert not unused


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import time\ntime.time()", "time.time"),
        ("from time import monotonic as now\nnow()", "time.monotonic"),
        ("import datetime as dt\ndt.datetime.now()", "datetime.datetime.now"),
        ("from datetime import datetime\ndatetime.utcnow()", "datetime.datetime.utcnow"),
        ("import random\nrandom.Random(1)", "random.Random"),
        ("import numpy as np\nnp.random.default_rng()", "numpy.random.default_rng"),
        ("import uuid", "uuid"),
        ("from secrets import token_hex", "secrets.token_hex"),
        ("import os\nos.urandom(8)", "os.urandom"),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(1)", "asyncio.sleep"),
        ("from asyncio import wait_for", "asyncio.wait_for"),
        ("import asyncio\nasync def f(ts):\n    await asyncio.wait(ts)", "asyncio.wait"),
        ("import asyncio\nasyncio.create_task(f())", "asyncio.create_task"),
        ("def f(loop):\n    loop.create_task(g())", "asyncio.create_task"),
    ],
)
def test_a_banned_name_is_seen_however_it_is_imported(source: str, name: str) -> None:
    assert name in {finding.name for finding in find_banned(source, "fairlead/x.py")}


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(g())",
        "import asyncio\ndef f(tasks: asyncio.TaskGroup):\n    tasks.create_task(g())",
        "import asyncio\nasync def f():\n    async with asyncio.timeout(1):\n        pass",
        "from datetime import datetime\ndef f(moment: datetime) -> str:\n    return moment.isoformat()",
        "def wait(time: float) -> float:\n    return time",
    ],
)
def test_what_the_house_wants_instead_is_let_through(source: str) -> None:
    assert find_banned(source, "fairlead/x.py") == []


def test_an_exception_covers_its_own_file_only() -> None:
    source = "import random\nrandom.Random(1)"
    assert not_allowed(find_banned(source, "fairlead/sim/loop.py")) == []
    assert not_allowed(find_banned(source, "fairlead/sim/network.py")) != []
