"""An agent with real processes on a region in this process: probes, crash loops, adoption after a kill, fencing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from fairlead.agent.drivers.contract import InstanceId
from fairlead.agent.port_range import PortRange
from fairlead.agent.probes import Target, ask
from fairlead.decide.admission.workload import template_of
from fairlead.model.commands import Put
from fairlead.model.kinds.intent import (
    Exec,
    FileMount,
    HttpGet,
    JobRule,
    Port,
    Probe,
    Probes,
    Secret,
    SecretSpec,
    TcpSocket,
    Template,
    WorkloadSpec,
)
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.agent.processes import alive, instance, until
from tests.agent.regions import Rig, files_in, process_driver, rig, simulated
from tests.authority.planes import OPERATOR, FakeClock, ok

# Answers /NAME with 200 while the file NAME lies in its working directory, else with 503.
SERVER = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(self.path[1:]) else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
open("live", "w").close()
HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


def probe(path: str, **fields: float) -> Probe:
    return Probe(http_get=HttpGet(path=path), period_seconds=0.1, timeout_seconds=5.0, **fields)  # type: ignore[arg-type]


def work_of(folder: Path, id: InstanceId) -> Path:
    return folder / "instances" / id.text / "work"


async def started(made: Rig, folder: Path, **settings: float) -> None:
    made.start(made.agent({"process": process_driver(folder, uids=None)}, **files_in(folder), **settings))  # type: ignore[arg-type]
    await made.schedulable()


async def ended(made: Rig, *names: str) -> None:
    for name in names:
        await made.move(name, SlotState.DRAINING, Role.DISRUPTION, deadline_s=0.1)
        await made.reaches(name, "Released")


async def test_probes_make_a_server_ready_unready_and_restart_it(tmp_path: Path) -> None:
    async with rig() as made:
        await started(made, tmp_path)
        probes = Probes(startup=probe("/live", failure_threshold=100), readiness=probe("/ready"), liveness=probe("/live"))
        template = Template(command=(sys.executable, "-c", SERVER), ports=(Port(name="http"),), probes=probes)
        name = await made.place("web", template)
        await made.reaches(name, "Starting")
        work = work_of(tmp_path, instance(name))
        await until(work.joinpath("live").exists)
        (work / "ready").touch()
        await made.reaches(name, "Ready")
        (work / "ready").unlink()
        await made.reaches(name, "Starting")
        await until(lambda: (found := made.instance(name)) is not None and "503" in found.status.message)
        (work / "ready").touch()
        await made.reaches(name, "Ready")
        (work / "live").unlink()
        await until(lambda: (found := made.instance(name)) is not None and found.status.restarts == 1)
        await made.reaches(name, "Ready")
        assert "Failed" not in made.steps(name)
        await ended(made, name)


async def test_each_way_of_asking_says_yes_no_and_nothing() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readline()
        if b"/hang" in request:
            await asyncio.Event().wait()
        writer.write(b"HTTP/1.0 204 No Content\r\n\r\n" if b"/yes" in request else b"SSH-2.0-nonsense\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    target = Target(InstanceId("risk", "web-0", Token(1, 1, 1)), "127.0.0.1", {"http": port})
    driver = simulated()

    async def asked(timeout_s: float = 60.0, **fields: object) -> tuple[bool, str]:
        return await ask(Probe(timeout_seconds=timeout_s, **fields), target, driver)  # type: ignore[arg-type]

    assert (await asked(http_get=HttpGet(path="/yes")))[0]
    assert await asked(http_get=HttpGet(path="/no")) == (False, "no HTTP answer")
    assert await asked(0.2, http_get=HttpGet(path="/hang")) == (False, "no answer within 0.2 s")
    assert (await asked(tcp_socket=TcpSocket(port="http")))[0]
    server.close()
    assert not (await asked(tcp_socket=TcpSocket()))[0]
    assert not (await asked(exec=Exec(command=("x",))))[0]  # it does not run


async def test_a_program_as_probe_decides_readiness(tmp_path: Path) -> None:
    async with rig() as made:
        await started(made, tmp_path)
        readiness = Probe(exec=Exec(command=("/bin/sh", "-c", "test -e ready")), period_seconds=0.1, timeout_seconds=10.0)
        template = Template(command=("/bin/sleep", "300"), probes=Probes(readiness=readiness))
        name = await made.place("tool", template)
        await made.reaches(name, "Starting")
        (work_of(tmp_path, instance(name)) / "ready").touch()
        await made.reaches(name, "Ready")
        await ended(made, name)


async def test_a_crash_loop_backs_off_and_fails_with_its_exit_code(tmp_path: Path) -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        await started(made, tmp_path)
        name = await made.place("loop", Template(command=("/bin/sh", "-c", "echo run; exit 9"), max_restarts=2))
        for restarts in (1, 2):
            await until(partial(restarted, made, name, restarts))
            clock.offset += 5.0
        await made.reaches(name, "Failed")
        found = made.instance(name)
        assert found is not None
        assert found.status.exit_code == 9
        log = await process_logs(made, tmp_path, name)
        assert log == b"run\n" * 3


def restarted(made: Rig, name: str, times: int) -> bool:
    found = made.instance(name)
    return found is not None and found.status.restarts == times


async def test_a_finished_jobs_secrets_are_gone(tmp_path: Path) -> None:
    async with rig() as made:
        await started(made, tmp_path)
        metadata = Metadata(name="app", namespace="risk")
        ok(await made.plane.send(OPERATOR, Put("Secret", Secret(metadata=metadata, spec=SecretSpec(data={"key": "hush"})))))
        template = Template(
            command=("/bin/sh", "-c", "test $(cat keys/key) = hush"),
            restart_policy="Never",
            files=(FileMount(path="keys", secret="app"),),
        )
        name = await made.place("job", template)
        await made.reaches(name, "Succeeded")
        folder = work_of(tmp_path, instance(name)) / "keys"
        await until(lambda: list(folder.iterdir()) == [])


async def process_logs(made: Rig, folder: Path, name: str) -> bytes:
    parts = sorted((folder / "instances" / instance(name).text / "logs").glob("stdout.*"))
    return b"".join(part.read_bytes() for part in parts)


async def test_a_job_of_real_work_succeeds(tmp_path: Path) -> None:
    async with rig() as made:
        await started(made, tmp_path)
        job = WorkloadSpec(job=JobRule(), template=Template(command=("/bin/sh", "-c", "exit 0")))  # it says no restartPolicy
        name = await made.place("job", template_of(job))
        await made.reaches(name, "Succeeded")
        found = made.instance(name)
        assert found is not None
        assert found.status.exit_code == 0


FIRST_AGENT = """
import asyncio, sys
from pathlib import Path
from tests.agent.processes import instance, settings_of, sh
from fairlead.agent.drivers.process import ProcessDriver
from fairlead.ports import SystemClock
async def main():
    driver = ProcessDriver(settings_of(Path(sys.argv[1]), uids=None), SystemClock())
    await driver.adopt(lambda *_: None)
    got = await driver.start(sh("trap 'exit 0' TERM; while :; do sleep 0.1; done", id=instance("web-0")))
    print(got.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_an_agent_killed_outright_leaves_its_instances_to_the_next(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    first = subprocess.Popen([sys.executable, "-c", FIRST_AGENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=root)  # noqa: ASYNC220
    assert first.stdout is not None
    shim = int(await asyncio.to_thread(first.stdout.readline))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    assert alive(shim)
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))  # so that the node is there to be bound to
        await made.schedulable()
        name = await made.place("web", Template(command=("/bin/sleep", "300")))
        await started_after(made, tmp_path)
        await made.reaches(name, "Ready")
        assert alive(shim)
        assert len(list((tmp_path / "instances" / instance(name).text).glob("run.*"))) == 1  # it was never started again
        await ended(made, name)
        await until(lambda: not alive(shim))


async def started_after(made: Rig, folder: Path) -> None:
    made.start(made.agent({"process": process_driver(folder, uids=None)}, **files_in(folder)))  # type: ignore[arg-type]
    await until(lambda: made.sessions() == 2 and made.node_status().schedulable)


async def test_two_agents_cannot_use_one_directory(tmp_path: Path) -> None:
    first, second = process_driver(tmp_path), process_driver(tmp_path)
    await first.adopt(lambda *_: None)
    try:
        await second.adopt(lambda *_: None)
        raise AssertionError("it was let in")
    except BlockingIOError:
        pass
    await second.close()
    await first.close()


async def test_a_stopped_agents_exclusive_instance_ends_in_time_and_is_started_again_after_contact(tmp_path: Path) -> None:
    """The lease is short here, so that real time decides; the agent's own loops are cut off as if the process were stopped."""
    async with rig() as made:
        settings = {"node_lease_s": 4.0, "kill_s": 1.0}
        await started(made, tmp_path, **settings)
        name = await made.place("alone", Template(command=("/bin/sh", "-c", "echo $$; exec sleep 300")), execution="Exclusive")
        await made.reaches(name, "Ready")
        pid = int((await until(lambda: logs_of(tmp_path, name))).split()[0])
        fence = float((tmp_path / "fence").read_text().split()[0])
        made.region.cut()
        assert alive(pid)
        await until(lambda: not alive(pid))
        assert made.plane.clock.monotonic() >= fence - 0.1
        made.region.heal()
        await until(lambda: len(logs_of(tmp_path, name).split()) == 2)
        await made.reaches(name, "Ready")
        await ended(made, name)


async def test_an_agent_restarted_within_its_lease_leaves_exclusive_work_alone(tmp_path: Path) -> None:
    async with rig() as made:
        first = made.start(made.agent({"process": process_driver(tmp_path, uids=None)}, **files_in(tmp_path)))  # type: ignore[arg-type]
        await made.schedulable()
        name = await made.place("alone", Template(command=("/bin/sleep", "300")), execution="Exclusive")
        await made.reaches(name, "Ready")
        first.cancel()
        await until(first.done)
        made.region.mutate_ack = lambda ack: None  # nobody answers the new session yet
        await started_after(made, tmp_path)
        beats = made.region.heartbeats
        await until(lambda: made.region.heartbeats > beats + 5)
        assert made.state(name) == "Ready"
        home = tmp_path / "instances" / instance(name).text
        assert [path.name for path in home.glob("run.*")] == ["run.1"]
        assert not (home / "run.1" / "exit").exists()
        await ended(made, name)


async def test_a_job_stopped_with_its_node_is_run_again_and_not_taken_for_done(tmp_path: Path) -> None:
    job = Template(command=("/bin/sh", "-c", "trap 'exit 0' TERM; echo run; sleep 300 & wait"), restart_policy="OnFailure")
    async with rig() as made:
        host = made.agent({"process": process_driver(tmp_path, uids=None)}, **files_in(tmp_path))  # type: ignore[arg-type]
        first = made.start(host)
        await made.schedulable()
        name = await made.place("job", job)
        await made.reaches(name, "Ready")
        await until(lambda: logs_of(tmp_path, name))
        await host.stop_instances()
        assert "Succeeded" not in made.steps(name)
        first.cancel()
        await until(first.done)
        await started_after(made, tmp_path)
        await until(lambda: logs_of(tmp_path, name) == b"run\n" * 2)
        await made.reaches(name, "Ready")
        await ended(made, name)


async def test_a_job_lost_with_its_machine_is_run_again_and_has_not_failed(tmp_path: Path) -> None:
    job = Template(command=("/bin/sh", "-c", "echo run; exec sleep 300"), restart_policy="Never")
    async with rig() as made:
        first = made.start(made.agent({"process": process_driver(tmp_path, uids=None)}, **files_in(tmp_path)))  # type: ignore[arg-type]
        await made.schedulable()
        name = await made.place("job", job)
        await made.reaches(name, "Ready")
        await until(lambda: logs_of(tmp_path, name))
        first.cancel()
        await until(first.done)
        run = tmp_path / "instances" / instance(name).text / "run.1"
        shim = int((run / "started").read_text().split()[0])
        os.kill(shim, signal.SIGKILL)  # as power does: without a word
        await until(lambda: not alive(shim))
        await started_after(made, tmp_path)
        await until(lambda: logs_of(tmp_path, name) == b"run\n" * 2)
        await made.reaches(name, "Ready")
        assert "Failed" not in made.steps(name)
        await ended(made, name)


async def test_a_shim_that_ends_under_a_living_agent_counts_as_a_failure(tmp_path: Path) -> None:
    async with rig() as made:
        await started(made, tmp_path)
        name = await made.place("job", Template(command=("/bin/sleep", "300"), restart_policy="Never"))
        await made.reaches(name, "Ready")
        run = tmp_path / "instances" / instance(name).text / "run.1"
        os.kill(int((run / "started").read_text().split()[0]), signal.SIGKILL)
        await made.reaches(name, "Failed")


def logs_of(folder: Path, name: str) -> bytes:
    return b"".join(p.read_bytes() for p in sorted((folder / "instances" / instance(name).text / "logs").glob("stdout.*")))


def two_free_ports() -> tuple[int, int]:
    """Beside each other, below those that the agents of local platforms give out: other tests run some."""
    ports = PortRange(12_000, 19_999, 12_000 + os.getpid() * 2 % 8_000)
    first = ports.take()
    while (second := ports.take()) != first + 1:
        first = second
    return first, second


async def test_ports_come_from_the_range_and_are_free_again_afterwards(tmp_path: Path) -> None:
    async with rig() as made:
        ports = two_free_ports()
        made.start(made.agent({"process": process_driver(tmp_path, uids=None)}, ports=ports, **files_in(tmp_path)))  # type: ignore[arg-type]
        await made.schedulable()
        template = Template(command=("/bin/sleep", "300"), ports=(Port(name="http"),))
        names = [await made.place(f"p{n}", template) for n in range(2)]
        for name in names:
            await made.reaches(name, "Ready")
        taken = {(found.status.ports["http"]) for name in names if (found := made.instance(name)) is not None}
        assert taken == {*ports}
        third = await made.place("p2", template)
        await until(lambda: (found := made.instance(third)) is not None and "taken" in found.status.message)
        await ended(made, names[0])
        await made.reaches(third, "Ready")
        await ended(made, names[1], third)
