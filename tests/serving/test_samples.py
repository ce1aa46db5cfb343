"""The sample programs as real processes: they answer, obey their switches, and end well when they are asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.serving.http_get import Got, get

IDENTITY = {
    "FAIRLEAD_WORKLOAD": "risk-api", "FAIRLEAD_TENANT": "risk", "FAIRLEAD_SLOT": "3", "FAIRLEAD_GENERATION": "7",
    "FAIRLEAD_REGION": "us-east", "FAIRLEAD_ZONE": "us-east-a", "FAIRLEAD_NODE": "us-east-general-a", "FAIRLEAD_TOKEN": "1.2.4",
}  # fmt: skip


@asynccontextmanager
async def started(name: str, home: Path, **env: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process and its first line. Nothing of our own environment reaches it, as under an agent."""
    given = {"FAIRLEAD_DIR": str(home), **IDENTITY, **env}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"fairlead.samples.{name}", cwd=home, env=given, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            yield process, (await process.stdout.readline()).decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def port_of(line: str) -> int:
    return int(line.rpartition(":")[2])


async def ask(port: int, path: str) -> Got:
    return await get("127.0.0.1", port, path, 10.0)


@pytest.mark.parametrize(("name", "word"), [("risk_api", "score="), ("billing_api", "invoices=1")])
async def test_a_service_says_who_it_is_and_ends_well(name: str, word: str, tmp_path: Path) -> None:
    async with started(name, tmp_path, PORT="0") as (process, line):
        port = port_of(line)
        assert "slot 3 generation 7 on us-east-general-a (us-east)" in line
        assert [(await ask(port, path)).status for path in ("/ready", "/health", "/nothing")] == [200, 200, 404]
        text = (await ask(port, "/?account=ada")).body.decode()
        told = dict(row.split("=") for row in text.splitlines())
        assert (told["region"], told["node"], told["slot"], told["generation"]) == ("us-east", "us-east-general-a", "3", "7")
        assert word in text
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_service_is_healthy_before_it_is_ready(tmp_path: Path) -> None:
    async with started("billing_api", tmp_path, START_DELAY_S="600") as (process, line):
        assert [(await ask(port_of(line), path)).status for path in ("/health", "/ready")] == [200, 503]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_the_switch_file_makes_it_fail_as_it_says_and_recover(tmp_path: Path) -> None:
    switch = tmp_path / "fail"
    async with started("risk_api", tmp_path) as (process, line):
        port = port_of(line)
        for content, statuses in (("", [503, 200]), ("ready", [503, 200]), ("health", [503, 500])):
            switch.write_text(content)
            assert [(await ask(port, path)).status for path in ("/ready", "/health")] == statuses
        switch.unlink()
        assert [(await ask(port, path)).status for path in ("/ready", "/health")] == [200, 200]
        switch.write_text("crash")
        assert (await ask(port, "/")).error == "Broken"
        assert await process.wait() == 1


async def test_a_request_under_way_is_answered_after_sigterm_and_new_ones_while_it_lingers(tmp_path: Path) -> None:
    async with started("risk_api", tmp_path, LINGER_S="600") as (process, line):
        assert (await ask(port_of(line), "/")).status == 200
        process.send_signal(signal.SIGTERM)
        while (await ask(port_of(line), "/ready")).status != 503:
            pass
        assert (await ask(port_of(line), "/")).status == 200
    async with started("risk_api", tmp_path, REQUEST_S="60") as (process, line):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(line))
        writer.write(b"GET / HTTP/1.1\r\n")
        while (await ask(port_of(line), "/ready")).status != 200:  # answered after our half request was accepted
            pass
        process.send_signal(signal.SIGTERM)
        # Until it takes no new ones. One that was connected just before is never answered, and is not waited for.
        while not (await get("127.0.0.1", port_of(line), "/", 1.0)).error:
            pass
        writer.write(b"\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert await process.wait() == 0


async def test_nonsense_is_refused_and_the_service_goes_on(tmp_path: Path) -> None:
    async with started("risk_api", tmp_path) as (_, line):
        for junk in (b"\0\1\2\r\n\r\n", b"x" * 40_000, b"POST / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(line))
            writer.write(junk)
            assert (await reader.read())[9:12] in (b"", b"405")
            writer.close()
        assert (await ask(port_of(line), "/")).status == 200


@pytest.mark.parametrize(
    ("env", "code"),
    [({}, 0), ({"EXIT_CODE": "9"}, 9), ({"FAIL_ATTEMPTS": "4"}, 3), ({"FAIL_ATTEMPTS": "3"}, 0)],
)
async def test_the_job_ends_with_the_code_it_was_told(env: dict[str, str], code: int, tmp_path: Path) -> None:
    async with started("fraud_batch", tmp_path, DURATION_S="0.01", **env) as (process, line):
        assert "slot 3 attempt 4 in us-east" in line
        assert await process.wait() == code


async def test_a_job_that_is_stopped_does_not_look_done(tmp_path: Path) -> None:
    async with started("fraud_batch", tmp_path, DURATION_S="6000") as (process, _):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143


async def test_the_index_swells_and_lets_go(tmp_path: Path) -> None:
    async with started("search_index", tmp_path, BURST_MIB="8", BURST_S="0.01", REST_S="0.01") as (process, line):
        assert "8 MiB" in line
        assert process.stdout is not None
        assert [(await process.stdout.readline()).decode().strip() for _ in range(2)] == ["burst 1: 8 MiB", "burst 2: 8 MiB"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_best_effort_work_leaves_at_once(tmp_path: Path) -> None:
    async with started("analytics", tmp_path, STEP_S="0.001") as (process, _):
        assert process.stdout is not None
        assert "60 slices" in (await process.stdout.readline()).decode()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_wrong_setting_is_told(tmp_path: Path) -> None:
    async with started("fraud_batch", tmp_path, DURATION_S="soon") as (process, line):
        assert line == ""
        assert await process.wait() == 1


@pytest.mark.parametrize("name", ["risk_api", "billing_api", "search_index", "fraud_batch", "analytics"])
def test_a_sample_knows_nothing_of_the_control_plane_and_loads_little(name: str) -> None:
    """What it imports is what its start costs, times the instances of a whole platform."""
    code = f"import sys, fairlead.samples.{name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    loaded = done.stdout.split()
    assert {word for word in loaded if word.startswith("fairlead")} == {
        "fairlead", "fairlead.samples", "fairlead.samples.program", f"fairlead.samples.{name}",
    }  # fmt: skip
    assert not {"msgspec", "json", "http", "urllib.request", "random", "pathlib", "numpy"} & set(loaded)
