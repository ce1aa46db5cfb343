"""deploy/: its own files, started as real processes on one machine, by the address that others reach it by, with certificates of
its own script. Nothing here is a copy: what differs from a deployment on several hosts is hosts.env, as from site to site."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fairlead.agent.drivers import cgroups
from fairlead.agent.drivers.capabilities import NEEDED
from fairlead.agent.settings import detect_address
from fairlead.compose.agent import AgentConfig
from fairlead.compose.config import PlaneConfig, read_config
from fairlead.compose.endpoints import EndpointsConfig
from fairlead.ports import SystemClock
from fairlead.security.certificates import Named
from fairlead.security.folder import CertificateFolder
from fairlead.security.tls import client_context
from fairlead.serving.dns_client import find
from tests.platform.fleets import GROUP, WAIT_S, Program, call, end_instances, good
from tests.servers.etcd import shared_cluster
from tests.servers.ports import free_ports
from tests.servers.postgres import shared_server

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
EXAMPLE = DEPLOY / "example"
OWN = detect_address(["https://192.0.2.1:7443"])  # beyond loopback, where this machine has such an address
SERVERS = ("GLOBAL_A", "GLOBAL_B", "GLOBAL_C", "US_EAST_A", "US_EAST_B")


def hosts_env() -> dict[str, str]:
    lines = [line for line in (EXAMPLE / "hosts.env").read_text().splitlines() if line and not line.startswith("#")]
    return {name: value.strip('"') for name, value in (line.split("=", 1) for line in lines)}


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    return found


class Site:
    """One machine that is all hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.killed: set[str] = set()
        name = uuid.uuid4().hex[:8]
        self.environment = hosts_env() | {
            "FAIRLEAD_PKI": str(folder / "pki"), "FAIRLEAD_STATE": str(folder / "state"), "FAIRLEAD_SEED": str(EXAMPLE / "seed"),
            "STORE_GLOBAL": f"etcd://{','.join(shared_cluster().endpoints)}/deploy{name}",
            "STORE_US_EAST": f"{shared_server().dsn()}?plane=deploy{name}",
        }  # fmt: skip
        *ports, dns = free_ports(len(SERVERS) + 1)
        for server, port in zip(SERVERS, ports, strict=True):
            self.environment[server] = self.environment[f"{server}_LISTEN"] = f"{OWN}:{port}"
        self.environment |= {
            "ENDPOINTS_DNS": f"127.0.0.1:{dns}",
            "FAIRLEAD_ENDPOINTS": str(folder / "endpoints"),
            "FAIRLEAD_AGENT": str(folder / "agent"),
        }
        self.programs = {
            service: Program(self._words(about["command"]), folder / f"{service}.log", self.environment)
            for service, about in services().items()
        }

    @staticmethod
    def _words(command: list[str]) -> list[str]:
        """As compose.yaml has it; where the files lie is what a volume would say."""
        assert command[0] == "fairlead"
        return [word.replace("/etc/fairlead/", f"{EXAMPLE}/") for word in command[1:]]

    def make_certificates(self) -> None:
        (self.folder / "bin").mkdir()
        tool = self.folder / "bin" / "fairlead"
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m fairlead.main "$@"\n')
        tool.chmod(0o755)
        environment = {**os.environ, **self.environment, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        made = subprocess.run(
            ["sh", str(EXAMPLE / "certificates.sh"), str(self.folder / "pki")], env=environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr

    def at(self, server: str) -> str:
        return f"https://{self.environment[server]}"

    def session(self, name: str = "admin") -> aiohttp.ClientSession:
        pki = self.folder / "pki"
        files = (pki / f"{name}.pem", pki / f"{name}.key") if name else ()
        context = client_context(pki / "ca.pem", *files)
        timeout = aiohttp.ClientTimeout(total=20)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0), timeout=timeout)

    def start(self) -> None:
        for program in self.programs.values():
            program.start()

    def said(self) -> str:
        return "\n".join(f"--- {name}\n{program.said()[-1500:]}" for name, program in self.programs.items())

    def end(self) -> None:
        for name, program in sorted(self.programs.items()):  # agents first, with what they run
            program.end()
            if name.startswith("agent-"):
                end_instances(self.folder)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="fairlead-deploy-"))
    folder.chmod(0o755)  # instances have users of their own, who must be able to reach their folders
    made = Site(folder)
    try:
        made.make_certificates()
        made.start()
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


async def wait(site: Site, condition: Callable[[], Any], what: str) -> Any:
    deadline = SystemClock().monotonic() + WAIT_S
    while True:
        found = await condition()
        if found:
            return found
        assert SystemClock().monotonic() < deadline, f"{what}\n{site.said()}"
        assert all(program.running or name in site.killed for name, program in site.programs.items()), site.said()
        await asyncio.sleep(0.1)


async def apply(site: Site, session: aiohttp.ClientSession, server: str) -> None:
    for one in yaml.safe_load_all((EXAMPLE / "hello.yaml").read_text()):
        plural = {"Tenant": "tenants", "Quota": "quotas", "Grant": "grants", "Workload": "workloads"}[one["kind"]]
        tenant = one["metadata"].get("namespace")
        path = f"{GROUP}/namespaces/{tenant}/{plural}" if tenant else f"{GROUP}/{plural}"
        good(await call(session, "POST", site.at(server) + path, one, key=f"{one['kind']}-{one['metadata']['name']}"))


async def serving(site: Site, session: aiohttp.ClientSession, server: str) -> int:
    answer = await call(session, "GET", f"{site.at(server)}{GROUP}/namespaces/demo/workloads/hello")
    return int(answer.body.get("status", {}).get("replicas", {}).get("serving", 0)) if answer.status == 200 else -1


async def leads(site: Site, session: aiohttp.ClientSession, *servers: str) -> str:
    for server in servers:
        try:
            async with session.get(f"{site.at(server)}/readyz?verbose") as answer:
                if "[+]leader leads" in await answer.text():
                    return server
        except (aiohttp.ClientError, TimeoutError):
            continue
    return ""


async def reached(site: Site, session: aiohttp.ClientSession) -> dict[str, int]:
    """Which slots answer over HTTP where their endpoints say, and on what port."""
    answer = await call(session, "GET", f"{site.at('GLOBAL_A')}{GROUP}/namespaces/demo/endpoints")
    found: dict[str, int] = {}
    for one in answer.body["items"] if answer.status == 200 else ():
        for slot in one["spec"].get("endpoints", ()):
            port = next(iter(slot["ports"].values()))
            if slot["address"] != OWN:  # the seed knows a node before its agent has said where it is
                continue
            try:
                async with aiohttp.ClientSession() as plain, plain.get(f"http://{slot['address']}:{port}/") as page:
                    if page.status == 200:
                        found[slot["slot"]] = port
            except aiohttp.ClientError:
                continue
    return found


async def told_by_dns(site: Site) -> list[tuple[str, int]]:
    host, _, port = site.environment["ENDPOINTS_DNS"].rpartition(":")
    found = await find((host, int(port)), "demo", "hello", "http", random.Random(1))
    return sorted((one.address, one.port) for one in found)


def told_by_documents(site: Site) -> list[tuple[str, int]]:
    path = site.folder / "endpoints" / "documents" / "demo" / "hello.json"
    return sorted((one["address"], one["ports"]["http"]) for one in json.loads(path.read_text())["endpoints"])


async def test_the_example_runs_work_and_goes_on_when_a_regions_leader_dies(site: Site) -> None:
    async with site.session() as session:

        async def known() -> bool:
            answers = [await call(session, "GET", f"{site.at(server)}{GROUP}/tenants") for server in SERVERS]
            return all(answer.status == 200 for answer in answers)

        await wait(site, known, "every server knows who may do what")
        await apply(site, session, "GLOBAL_B")

        async def both() -> bool:
            return await serving(site, session, "GLOBAL_C") == 2

        await wait(site, both, "two replicas serving")
        before: dict[str, int] = {}

        async def both_answer() -> bool:
            nonlocal before
            before = await reached(site, session)
            return len(before) == 2

        await wait(site, both_answer, "two replicas answering")
        leader = await wait(site, lambda: leads(site, session, "US_EAST_A", "US_EAST_B"), "a leader of us-east")
        killed = leader.lower().replace("_", "-")
        site.killed.add(killed)
        site.programs[killed].kill()
        other = "US_EAST_B" if leader == "US_EAST_A" else "US_EAST_A"
        await wait(site, lambda: leads(site, session, other), "the other server of us-east leads")
        scale = {"spec": {"replicas": 3}}
        url = f"{site.at('GLOBAL_A')}{GROUP}/namespaces/demo/workloads/hello"
        good(await call(session, "PATCH", url, scale, media="application/merge-patch+json"))

        async def three() -> bool:
            return await serving(site, session, "GLOBAL_B") == 3

        await wait(site, three, "three replicas serving under the new leader")
        after: dict[str, int] = {}

        async def three_answer() -> bool:
            nonlocal after
            after = await reached(site, session)
            return len(after) == 3

        await wait(site, three_answer, "three replicas answering")
        assert before.items() <= after.items()  # the agents came over, and what they ran was not touched

        async def told() -> bool:
            return await told_by_dns(site) == told_by_documents(site) == sorted((OWN, port) for port in after.values())

        await wait(site, told, "DNS and documents that tell the same")


async def test_without_a_certificate_of_its_own_authority_nobody_is_let_in(site: Site, tmp_path: Path) -> None:
    stranger = CertificateFolder(tmp_path, SystemClock())
    stranger.create("another authority")
    stranger.issue(Named("user", "admin"))
    stranger.issue(Named("agent", "us-east-node-1", region="us-east"))
    url = site.at("GLOBAL_A")
    async with site.session("") as nobody:
        for path in (f"{GROUP}/workloads", "/version", "/api", "/openapi/v3", "/metrics"):
            async with nobody.get(url + path) as answer:
                assert answer.status == 401, path
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await nobody.ws_connect(f"{url}/fairlead/v1/channel", protocols=("fairlead.v1",))
    for name in ("admin", "us-east-node-1"):
        trust = client_context(site.folder / "pki" / "ca.pem", *stranger.files_of(name))
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as session:
            assert (await call(session, "GET", f"{url}{GROUP}/workloads")).status == 0  # the handshake fails
    async with aiohttp.ClientSession() as plain:
        assert (await call(plain, "GET", url.replace("https", "http") + "/version")).status == 0
    with pytest.raises(ssl.SSLError), socket.create_connection(tuple(site.environment["GLOBAL_A"].split(":"))) as connection:  # type: ignore[arg-type]
        client_context(stranger.authorities).wrap_socket(connection, server_hostname=OWN)


async def test_an_agent_of_one_node_cannot_come_as_a_server_or_as_another_node(site: Site) -> None:
    async with site.session("us-east-node-1") as agent:
        region = site.at("US_EAST_A") if site.programs["us-east-a"].running else site.at("US_EAST_B")
        assert good(await call(agent, "GET", f"{region}{GROUP}/secrets"))["items"] == []  # those of its own work, if any
        assert (await call(agent, "GET", f"{region}{GROUP}/nodes/us-east-node-2")).status in (403, 404)
        assert (await call(agent, "GET", f"{site.at('GLOBAL_A')}{GROUP}/tenants")).status in (401, 403)


# --- files -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(EXAMPLE.glob("*.json")), ids=lambda path: path.name)
def test_every_file_is_used_and_none_has_a_fault(path: Path) -> None:
    assert any(f"/etc/fairlead/{path.name}" in about["command"] for about in services().values())
    program = (
        path.name.partition("-")[0] if path.name.startswith("agent-") else path.stem if path.stem == "endpoints" else "server"
    )
    config = read_config(path, CONFIGS[program], hosts_env())
    if isinstance(config, EndpointsConfig):
        assert config.settings().host == "127.0.0.1"
        assert config.identity is not None
    elif isinstance(config, PlaneConfig):
        assert config.faults() == []
        assert config.tls is not None
        assert config.identity is not None
        assert config.name == path.stem  # systemd names it by its file
    else:
        assert config.tls is not None
    for about in services().values():
        if f"/etc/fairlead/{path.name}" in about["command"]:
            assert about["command"][:2] == ["fairlead", program]
            assert about["security_opt"] == ["no-new-privileges:true"]
            assert about["cap_drop"] == ["ALL"]
            assert set(about.get("cap_add", [])) == ({*NEEDED, "SYS_PTRACE"} if program == "agent" else set())


def test_a_setting_that_does_not_exist_and_a_variable_that_is_not_set_are_told(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    path.write_text(json.dumps({"plane": "global", "store": "memory:", "data": "x", "tsl": None}))
    with pytest.raises(ValueError, match="there is no setting 'tsl'"):
        read_config(path, PlaneConfig)
    path.write_text(json.dumps({"plane": "global", "store": "memory:", "data": "${WHERE}/x"}))
    with pytest.raises(ValueError, match=re.escape("${WHERE} is not set")):
        read_config(path, PlaneConfig, {})
    said = {"WHERE": 'a"b\\c${WHERE}'}
    assert read_config(path, PlaneConfig, said).data == said["WHERE"] + "/x"  # taken as it is, and not looked at again


@pytest.mark.parametrize("listen", ["0.0.0.0:7443", "[::]:7443", "192.0.2.1:7443", "example.internal:7443"])
def test_a_server_refuses_to_start_where_others_could_reach_it_in_the_open(tmp_path: Path, listen: str) -> None:
    path = tmp_path / "server.json"
    path.write_text(json.dumps({"plane": "global", "store": "memory:", "data": str(tmp_path / "d"), "listen": listen}))
    assert any("TLS" in fault for fault in read_config(path, PlaneConfig).faults())
    if listen.startswith("0.0.0.0"):
        program = Program(["server", "--config", str(path)], tmp_path / "log")
        program.start()
        assert asyncio.run(program.wait_ended()) != 0
        assert "needs TLS" in program.said()


CONFIGS = {"server": PlaneConfig, "agent": AgentConfig, "endpoints": EndpointsConfig}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EVERY = {"NoNewPrivileges": "yes", "ProtectHome": "yes", "ProtectKernelModules": "yes", "ProtectKernelTunables": "yes",
         "RestrictSUIDSGID": "yes", "LockPersonality": "yes", "Restart": "always", "Type": "exec"}  # fmt: skip
CONFINED = {
    "ProtectSystem": "strict",
    "CapabilityBoundingSet": "",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "SystemCallFilter": "@system-service\n~@privileged @resources",
}
BY_PROGRAM = {
    "server": {**CONFINED, "User": "fairlead"},
    "endpoints": {**CONFINED, "User": "fairlead-endpoints"},
    "agent": {"KillMode": "process", "Delegate": "yes", "DelegateSubgroup": cgroups._ASIDE, "ProtectSystem": "full"},
}


class Many(dict[str, str]):
    """A key that is there twice, as systemd allows it, keeps both lines."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self and isinstance(value, list):
            self[key].extend(value)  # type: ignore[attr-defined]
        else:
            super().__setitem__(key, value)


def service_of(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, dict_type=Many)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text())
    return dict(parser["Service"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_start_what_there_is(path: Path) -> None:
    service = service_of(path)
    words = service["ExecStart"].split()
    assert words[0].endswith("/fairlead")
    assert path.name == f"fairlead-{words[1]}@.service"
    wanted = EVERY | BY_PROGRAM[words[1]]
    assert {key: service.get(key) for key in wanted} == wanted
    users = (DEPLOY / "systemd" / "fairlead.sysusers").read_text()
    assert "User" not in service or f"\nu {service['User']} - " in users
    assert words[2:] == ["--config", "/etc/fairlead/%i.json"]
    done = subprocess.run([sys.executable, "-m", "fairlead.main", words[1], "--help"], capture_output=True, text=True, check=True)
    assert "--config" in done.stdout


def test_no_two_units_of_different_users_share_a_directory() -> None:
    """systemd gives a unit's directory, and all that lies in it, to the user of whichever starts."""
    owners: dict[str, set[tuple[str, str]]] = {}
    for path in UNITS:
        service = service_of(path)
        about = service.get("User", "root"), service.get("StateDirectoryMode", "0755")
        owners.setdefault(service["StateDirectory"], set()).add(about)
    assert all(len(found) == 1 for found in owners.values()), owners
    used = {str(Path(config.state).parent) for config in agents()}
    assert used == {"/var/lib/fairlead-agent"}
    volumes = {about["command"][1]: about["volumes"] for about in services().values()}
    assert all(f"/var/lib/{name}:/var/lib/{name}" in volumes[program] for program, name in
               (("server", "fairlead"), ("agent", "fairlead-agent"), ("endpoints", "fairlead-endpoints")))  # fmt: skip


def test_passwords_of_stores_are_for_servers_alone() -> None:
    for path in UNITS:
        assert ("stores.env" in path.read_text()) == ("server" in path.name), path.name
    for name, about in services().items():
        assert ("stores.env" in str(about["env_file"])) == (about["command"][1] == "server"), name


def agents() -> list[AgentConfig]:
    return [read_config(path, AgentConfig, hosts_env()) for path in sorted(EXAMPLE.glob("agent-*.json"))]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units_as_they_are(path: Path, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("there is no systemd-analyze here; the test above reads the units")
    unit = tmp_path / path.name.replace("@", "@global-a")
    unit.write_text(path.read_text().replace("/opt/fairlead/bin/fairlead", "/bin/true"))  # it looks for the program
    done = subprocess.run([tool, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    # One that is older than the key passes over it, as the unit says.
    told = [line for line in done.stderr.splitlines() if "Unknown key 'DelegateSubgroup'" not in line]
    assert not [line for line in told if unit.name in line], done.stderr


def test_the_hosts_file_says_the_same_to_a_shell() -> None:
    """docs/operations/deploy.md has operators read it with `.`; a store's URL has characters that mean something there."""
    wanted = hosts_env()
    said = subprocess.run(["sh", "-c", f"set -a; . {EXAMPLE}/hosts.env; env"], capture_output=True, text=True, check=True).stdout
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    assert {name: found.get(name) for name in wanted} == wanted
