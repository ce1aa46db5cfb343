"""An agent that is root in a container: it gives users away only where it is let, and says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.agent.drivers.capabilities import NEEDED, lacking
from tests.agent.processes import as_root

ROOT = Path(__file__).resolve().parents[2]
STARTS_ONE = """
import asyncio, sys
from pathlib import Path
from tests.agent.processes import driven, instance, sh, until

async def main():
    async with driven(Path(sys.argv[1])) as made:
        print(made.driver.in_force()["user"])
        print(await made.driver.start(sh("mkdir -m 700 own; touch own/file; (setsid sleep 300 &); sleep 300")))
        await until((made.work() / "own" / "file").exists)
        await made.driver.kill(instance(), "stopped")
        await until(lambda: made.driver.status(instance()) == "gone")
        await made.driver.forget(instance())
        await until(lambda: not list((Path(sys.argv[1]) / "instances").iterdir()))

asyncio.run(main())
"""


def with_capabilities(folder: Path, kept: str) -> tuple[str, str]:
    """(which user is in force, what a start gives) of a root that has only these. It ends with everything killed and cleared."""
    tool = shutil.which("setpriv")
    if tool is None or not as_root():
        pytest.skip("needs root and setpriv")
    dropped = [tool, f"--bounding-set={kept}", "--inh-caps=-all", "--no-new-privs", sys.executable, "-c", STARTS_ONE, str(folder)]
    here = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(dropped, cwd=ROOT, env=here, capture_output=True, text=True, check=True, timeout=60)
    user, got = done.stdout.splitlines()
    return user, got


@pytest.mark.parametrize(("bits", "missing"), [("0", (*NEEDED,)), ("eb", ()), ("cb", ("KILL",)), ("1fffeffffff", ())])
def test_what_is_lacking_is_named(bits: str, missing: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "status").write_text(f"Name:\tpython\nCapPrm:\t000001fffeffffff\nCapEff:\t{bits:0>16}\n")
    assert lacking(tmp_path / "status") == missing


def test_a_root_without_rights_starts_instances_as_itself_and_says_why(tmp_path: Path) -> None:
    user, got = with_capabilities(tmp_path, "-all")
    assert user == f"the agent's own user 0: a user each needs the capabilities {', '.join(NEEDED)}"
    assert got.startswith("Started")


def test_a_root_that_could_not_end_what_it_gave_away_gives_nothing_away(tmp_path: Path) -> None:
    user, got = with_capabilities(tmp_path, "-all,+chown,+dac_override,+fowner,+setgid,+setuid")
    assert user == "the agent's own user 0: a user each needs the capabilities KILL"
    assert got.startswith("Started")


def test_with_the_rights_of_the_example_each_instance_has_a_user_and_is_ended_and_cleared_away(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    user, got = with_capabilities(tmp_path, "-all," + ",".join(f"+{name.lower()}" for name in (*NEEDED, "SYS_PTRACE")))
    assert user.startswith("a user each")
    assert got.startswith("Started")
