"""`fairlead get` from the outside: every format, every flag, and what a watch shows."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import sys
import textwrap
from datetime import datetime

import pytest
from rich.console import Console

from fairlead.cli import frame, tables
from fairlead.wire.yaml_codec import parse_yaml
from tests.cli.talks import talk, workload
from tests.client.fake_api import FakeApi


@pytest.fixture
def filled(api: FakeApi) -> FakeApi:
    api.put("workloads", "risk-api", "risk", labels={"tier": "critical"}, **workload(6))
    api.put("workloads", "batch", "risk", labels={"tier": "low"}, **workload(2))
    api.put("workloads", "other", "ads", **workload(1))
    api.put("nodes", "n1", spec={"allocatable": {"cpu": "4"}})
    return api


def text(block: str) -> str:
    return textwrap.dedent(block).lstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        (["get", "workloads"], """
            NAME       TENANT   DESIRED
            batch      risk     2
            risk-api   risk     6
        """),
        (["get", "wl", "-o", "wide"], """
            NAME       TENANT   DESIRED   GEN
            batch      risk     2         1
            risk-api   risk     6         1
        """),
        (["get", "Workload/risk-api"], """
            NAME       TENANT   DESIRED
            risk-api   risk     6
        """),
        (["get", "wl", "batch", "risk-api", "--no-headers"], """
            batch      risk   2
            risk-api   risk   6
        """),
        (["get", "wl", "-l", "tier=critical", "--show-labels"], """
            NAME       TENANT   DESIRED   LABELS
            risk-api   risk     6         tier=critical
        """),
        (["get", "wl", "-L", "tier"], """
            NAME       TENANT   DESIRED   TIER
            batch      risk     2         low
            risk-api   risk     6         critical
        """),
        (["get", "wl", "-n", "ads"], """
            NAME    TENANT   DESIRED
            other   ads      1
        """),
        (["get", "wl", "-A", "--sort-by", ".spec.replicas"], """
            NAME       TENANT   DESIRED
            other      ads      1
            batch      risk     2
            risk-api   risk     6
        """),
        (["get", "wl,nodes"], """
            NAME                TENANT   DESIRED
            workload/batch      risk     2
            workload/risk-api   risk     6

            NAME      AGE
            node/n1   3d
        """),
        (["get", "wl/batch", "no/n1", "-o", "name"], """
            workload/batch
            node/n1
        """),
        (["get", "wl", "-o", "jsonpath={.items[*].metadata.name}"], "batch risk-api"),
        (["get", "wl/batch", "-o", "jsonpath=.spec.replicas"], "2"),
        (["get", "wl", "-o", 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}'], """
            batch
            risk-api
        """),
        (["get", "wl", "-o", "custom-columns=NAME:.metadata.name,N:.spec.replicas,X:.spec.nothing"], """
            NAME       N   X
            batch      2   <none>
            risk-api   6   <none>
        """),
        (["get", "wl", "--field-selector", "metadata.name=batch", "-o", "name"], """
            workload/batch
        """),
        (["get", "wl/nobody", "--ignore-not-found"], ""),
        (["get", "gadgets", "-o", "name"], ""),
    ],
)  # fmt: skip
def test_what_get_writes(filled: FakeApi, arguments: list[str], out: str) -> None:
    ran = talk(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == text(out)


def test_json_and_yaml_are_the_servers_object_without_its_bookkeeping(filled: FakeApi) -> None:
    stored = filled.objects["workloads", "risk", "batch"]
    stored["metadata"]["managedFields"] = [{"manager": "x"}]
    shown = talk("get", "wl/batch", "-o", "json").json
    assert "managedFields" not in shown["metadata"]
    assert shown["spec"] == stored["spec"]
    assert parse_yaml(talk("get", "wl/batch", "-o", "yaml").out.encode()) == [shown]
    listed = talk("get", "wl", "-o", "json").json
    assert (listed["kind"], len(listed["items"])) == ("List", 2)


def test_a_name_that_is_not_there_hides_none_that_is(filled: FakeApi) -> None:
    names = [name for plural, _, name in filled.objects if plural == "nodes"]
    filled.put("nodes", "n-there", spec={})
    for form in ("table", "json"):
        ran = talk("get", "nodes", "n-there", "nope", *names, "-o", form)
        assert ran.code == frame.NOT_FOUND
        assert "n-there" in ran.out
        assert "nope" in ran.err
    assert talk("get", "nodes", "nope", "n-there", "--ignore-not-found").code == 0
    assert talk("get", "nodes", "nope", "-o", "json").out == ""


def test_a_read_of_the_past_asks_for_it(filled: FakeApi) -> None:
    assert talk("get", "wl", "--at", "2026-01-31T12:00:00Z", "--region", "eu").code == 0
    assert talk("get", "wl/batch", "-o", "yaml", "--at", "123").code == 0
    queries = [query for _, query, _ in filled.sent("GET")]
    assert (queries[-2]["at"], queries[-2]["region"]) == ("2026-01-31T12:00:00Z", "eu")
    assert queries[-1]["at"] == "123"


def test_the_past_may_be_so_long_ago(filled: FakeApi) -> None:
    for text, ago_s in (("5m", 300.0), ("1h30m", 5400.0)):
        assert talk("get", "wl", "--at", text).code == 0
        asked = datetime.fromisoformat(filled.sent("GET")[-1][1]["at"])
        assert asked.timestamp() == 1_800_000_000.0 - ago_s


def test_nothing_found_is_no_error_and_says_so_beside_the_data(filled: FakeApi) -> None:
    ran = talk("get", "wl", "-n", "empty")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "no workloads found in tenant empty\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get"], "name a kind"),
        (["get", "wrkloads"], "did you mean 'workloads'?"),
        (["get", "wl/a/b"], "is not KIND/NAME"),
        (["get", "wl/a", "b"], "is not KIND/NAME"),
        (["get", "wl", "-o", "jason"], "did you mean 'json'?"),
        (["get", "wl", "-o", "jsonpath={.a"], "expected }, at character 4"),
        (["get", "wl", "-o", "jsonpath="], "jsonpath= of what? Write jsonpath={.metadata.name}"),
        (["get", "wl", "-o", "custom-columns="], "custom-columns= of what? Write custom-columns=NAME:.metadata.name"),
        (["get", "wl", "-o", "custom-columns=NAME"], "is not HEADING:PATH"),
        (["get", "wl", "-l", "a in (b"], "parentheses"),
        (["get", "wl", "--field-selector", "metadata.name"], "is not FIELD=VALUE"),
        (["get", "wl/a", "-A"], "-A and a name exclude each other"),
        (["get", "wl", "a", "-l", "x=y"], "a selector and a name exclude each other"),
        (["get", "wl,nodes", "-w"], "-w follows one kind at a time"),
        (["get", "wl", "-w", "--at", "1"], "the past does not change"),
        (["get", "wl", "--timeout", "soon"], "is not a duration"),
        (["get", "wl", "--timeout", "-"], "is not a duration"),
        (["get", "wl", "--timeout", "0"], "'0' is no time at all"),
        (["get", "wl", "--timeout", "99999999999h"], "more than a hundred years"),
        (["get", "wl", "--timeout", "9" * 400 + "h"], "is not a duration"),
        (["get", "wl", "--at", "99999999999h"], "nothing is known of then"),
        (["get", "wl", "--at", "-5m"], "nothing is known of then"),
    ],
)
def test_a_slip_is_told_with_what_would_be_right(filled: FakeApi, arguments: list[str], said: str) -> None:
    ran = talk(*arguments)
    assert (ran.code, ran.out) == (frame.ERROR, "")
    assert said in ran.err


# --- watching


def test_off_a_terminal_a_watch_appends_a_line_for_every_change(filled: FakeApi) -> None:
    filled.watches_allowed = 2
    filled.end_after = [1]
    filled.on_watch = {1: lambda: filled.put("workloads", "batch", "risk", **workload(20)),
                       2: lambda: filled.put("workloads", "risk-api", "risk", **workload(7))}  # fmt: skip
    ran = talk("get", "wl", "-w")
    assert ran.code == frame.DENIED, "how the test ends it"
    assert ran.out == text("""
        NAME       TENANT   DESIRED
        batch      risk     2
        risk-api   risk     6
        batch      risk     20
        risk-api   risk     7
    """)


def test_a_watch_of_one_object_as_data_writes_each_version(filled: FakeApi) -> None:
    filled.watches_allowed = 1
    filled.on_watch = {1: lambda: filled.put("workloads", "batch", "risk", **workload(20))}
    ran = talk("get", "wl/batch", "-w", "-o", "jsonpath={.spec.replicas} ")
    assert ran.out == "2 20 "
    assert filled.sent("GET")[-1][1]["fieldSelector"] == "metadata.name=batch"


async def test_on_a_terminal_the_table_is_redrawn_and_never_longer_than_the_screen() -> None:
    columns = [{"name": "Name"}]
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=40, height=5)
    rows = [{"cells": [f"w{number}"], "object": {}} for number in range(9)]
    with tables.Redrawn(tables.Look(), console) as picture:
        picture.show(columns, rows[:1], [])
        picture.show(columns, rows[:2], [])
        picture.draw()
        picture.draw()
        before = screen.getvalue()
        assert before.count("NAME") == 1, "a burst is drawn once, and nothing is drawn when nothing changed"
        picture.show(columns, rows, [])
    after = screen.getvalue().removeprefix(before)
    assert "\x1b[1A\x1b[2K" in after, "drawn over the lines before"
    assert {line for line in after.splitlines() if line.startswith("w")} == {"w0", "w1"}
    assert "... and 7 more" in after


@pytest.mark.parametrize("colourless", ["", "1"])
def test_a_real_terminal_shows_one_table_and_an_interrupt_ends_it(filled: FakeApi, colourless: str) -> None:
    settings = os.environ | {"TERM": "xterm", "NO_COLOR": colourless, "COLUMNS": "80", "LINES": "24"}
    filled.on_watch = {1: lambda: filled.put("workloads", "batch", "risk", **workload(20))}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "fairlead.main", "get", "wl", "-w"], settings)
    drawn = b""
    while b"batch      risk     20" not in drawn:
        drawn += os.read(terminal, 65536)
    os.kill(pid, signal.SIGINT)
    with contextlib.suppress(OSError):  # how a terminal says that its last writer has gone
        while piece := os.read(terminal, 65536):
            drawn += piece
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == frame.INTERRUPTED
    assert drawn.count(b"NAME       TENANT   DESIRED") in (2, 3), "once for each change, no more"
    assert (b"\x1b[31m" in drawn) == (not colourless)
