"""A global plane and one region, each a real `fairlead server` process behind TLS on SQLite, with people, a service and nodes.

Owns the processes and their files; asserts nothing about what they answer. Used by the tests that ask real servers.
"""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from fairlead.compose.config import Peer, PlaneConfig, TlsFiles
from fairlead.decide.access_roles import FRONT_DOOR, PLANE_SERVER
from fairlead.model.kinds.access import SYSTEM_TENANT
from fairlead.ports import SystemClock, SystemIds
from fairlead.security import tokens
from fairlead.security.certificates import Named, instant
from fairlead.security.folder import LOCAL_HOSTS, CertificateFolder
from fairlead.security.sealing import Keyring
from fairlead.security.tls import client_context
from fairlead.wire import json_codec
from fairlead.wire.yaml_codec import encode_yaml
from tests.servers.ports import free_ports

REGION = "eu-west"
NODE = f"{REGION}-node-7"  # which joins with a token
TENANTS = ("risk", "search")
WAIT_S = 60.0  # nothing takes so long but on a machine that is busy with something else
GROUP = "/apis/fairlead.dev/v1alpha1"
# name, role, tenants
PEOPLE = (
    ("admin", "admin", "*"),
    ("anna", "approver", "*"),
    ("olga", "operator", "*"),
    ("rita", "tenant-admin", "risk"),
    ("vera", "tenant-viewer", "risk"),
    ("sam", "tenant-admin", "search"),
)


class Answer(NamedTuple):
    status: int
    body: bytes
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class TwoPlanes:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = CertificateFolder(directory / "pki", SystemClock())
        self.folder.create()
        self.keys = directory / "pki" / "secrets.keys"
        Keyring.create(self.keys, SystemIds())
        self.ports = dict(zip(("global", REGION), free_ports(2), strict=True))
        self.tokens: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._kept = threading.local()
        self._write_seed()
        for plane in self.ports:
            self._write_config(plane)

    # --- files ------------------------------------------------------------------------------------------------------------

    def _write_seed(self) -> None:
        now = instant(SystemClock().wall())
        objects: list[tuple[str, str, str, Any]] = [("Region", "", REGION, {"zones": ["a"], "areas": ["eu"]})]
        room = {"cpu": "4", "memory": "4Gi"}
        for tenant in TENANTS:
            objects.append(("Tenant", "", tenant, {}))
            objects.append(("Quota", tenant, "default", {"limits": dict(room)}))
        objects.append(("SchedulerPolicy", "", "r1", {"revision": 1}))
        objects.append(("PolicyChannel", "", "default", {"current": 1}))
        for name, role, reach in PEOPLE:
            minted = tokens.mint(SystemIds(), SYSTEM_TENANT)
            self.tokens[name] = minted.text.reveal()
            subject = {"kind": "User", "name": name}
            expiry = (now + timedelta(days=1)).isoformat()
            token = {"hash": minted.hash, "subject": subject, "expiryTime": expiry}
            objects.append(("Token", SYSTEM_TENANT, minted.name, token))
            objects.append(("AccessBinding", "", name, {"role": role, "subjects": [subject], "tenants": [reach]}))
        text = "---\n".join(encode_yaml(manifest(*each)) for each in objects)
        for plane in self.ports:
            (self.directory / "seed" / plane).mkdir(parents=True)
        (self.directory / "seed" / "global" / "all.yaml").write_text(text)

    def _files(self, name: str) -> TlsFiles:
        certificate, key = self.folder.files_of(name)
        return TlsFiles(str(certificate), str(key), str(self.folder.authorities))

    def _write_config(self, plane: str) -> None:
        here = "" if plane == "global" else plane
        self.folder.issue(Named("server", f"{plane}-server"), hosts=LOCAL_HOSTS)
        role = "mirror" if here else FRONT_DOOR
        self.folder.issue(Named("component", f"{plane}-component", (role, PLANE_SERVER), here))
        other = "global" if here else REGION
        config = PlaneConfig(
            plane="region" if here else "global",
            region=here,
            name=f"{plane}-component",  # as its certificate says: the region reports upward under it
            store=f"sqlite:{self.directory / plane}.db",
            data=str(self.directory / "data" / plane),
            listen=f"127.0.0.1:{self.ports[plane]}",
            tls=self._files(f"{plane}-server"),
            identity=self._files(f"{plane}-component"),
            seed=str(self.directory / "seed" / plane),
            peers=(Peer("" if here else REGION, (self.address(other),)),),
            join_key=str(self.directory / "pki" / "ca.key") if here else "",
        )
        (self.directory / f"{plane}.json").write_bytes(json_codec.encode(config))

    def address(self, plane: str) -> str:
        return f"https://127.0.0.1:{self.ports[plane]}"

    # --- processes --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for plane in self.ports:
            self.run(plane, "server", "--config", str(self.directory / f"{plane}.json"), "--seal-key", str(self.keys))
        for plane in self.ports:
            self.wait(lambda plane=plane: self._ready(plane), f"{plane} is ready")  # type: ignore[misc]
        self.wait(lambda: self.ask("admin", "GET", f"{GROUP}/nodes", plane=REGION).status == 200, "the region knows people")

    def run(self, name: str, *words: str) -> None:
        before = self.processes.get(name)
        assert before is None or before.poll() is not None, f"{name} runs already"
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fairlead.main", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "HOME": str(self.directory)}, start_new_session=True,
            )  # fmt: skip

    def _ready(self, plane: str) -> bool:
        try:
            return self.ask("", "GET", "/readyz", plane=plane).status == 200
        except OSError:
            return False

    def stop(self) -> None:
        """Everything, and first what agents run: it would outlive them."""
        try:
            for tenant in TENANTS:
                self.ask("admin", "DELETE", path_of("workloads", tenant))
            self.wait(lambda: not self.ask("admin", "GET", path_of("bindings")).json["items"], "nothing runs any more")
        finally:
            self.end_all()

    def end_all(self) -> None:
        for name in reversed(self.processes):
            self.end(name)

    def end(self, name: str) -> None:
        process = self.processes[name]
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + WAIT_S
        while not condition():
            dead = [name for name, process in self.processes.items() if process.poll() not in (None, 0)]
            assert not dead, f"{dead}\n{self.said()}"
            assert time.monotonic() < until, f"{what}: not so\n{self.said()}"
            time.sleep(0.1)

    def said(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in self.directory.glob("*.log"))

    def join(self, node: str, state: Path) -> None:
        """A node as an operator lets one in: a token from the command line, an agent that joins with it."""
        made = self.fairlead(
            "admin", "auth", "join-token", node, "--in-region", REGION, "--cpu", "2", "--memory", "2Gi", "--zone", "a",
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        token = self.directory / f"{node}.token"
        token.touch(0o600)
        token.write_text(made.stdout)
        self.wait(lambda: self._token_is_known(made.stdout.strip()), "the region knows the join token")
        self.run(node, "agent", *self.join_words(token, state))

    def join_words(self, token: Path, state: Path) -> tuple[str, ...]:
        authorities = str(self.folder.authorities)
        return ("--join", f"@{token}", "--server", self.address(REGION), "--ca", authorities, "--state", str(state))

    def _token_is_known(self, text: str) -> bool:
        parsed = tokens.parse(text)
        assert parsed is not None, text
        return self.ask("admin", "GET", path_of("tokens", parsed.tenant, parsed.name), plane=REGION).status == 200

    # --- asking -----------------------------------------------------------------------------------------------------------

    def fairlead(self, person: str, *words: str, plane: str = "global") -> subprocess.CompletedProcess[str]:
        config = self.directory / f"{person}-{plane}.client.json"
        context = {
            "name": person, "server": self.address(plane), "token": self.tokens[person],
            "certificateAuthority": str(self.folder.authorities),
        }  # fmt: skip
        made = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "ClientConfig", "currentContext": person, "contexts": [context]}
        config.touch(0o600)
        config.write_bytes(msgspec.json.encode(made))
        return subprocess.run(
            [sys.executable, "-m", "fairlead.main", *words], env={**os.environ, "FAIRLEAD_CONFIG": str(config)},
            capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip

    def kubectl(self, config: Path, *words: str) -> tuple[int, str]:
        """(exit code, all that it said)"""
        environment = {**os.environ, "HOME": str(config.parent), "KUBECONFIG": str(config), "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(
            ["kubectl", *words], env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def ask(
        self, person: str, method: str, path: str, body: Any = None, *, plane: str = "global", media: str = "application/json",
        tls: ssl.SSLContext | None = None, token: str = "", headers: dict[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """As a person with a token, or by a certificate; an empty name shows nothing."""
        headers = {"content-type": media, **(headers or {})}
        text = token or self.tokens.get(person, "")
        if text:
            headers["authorization"] = f"Bearer {text}"
        sent = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        for last in (False, True):
            connection = self._connection(plane, tls)
            try:
                connection.request(method, path, sent, headers)
                answer = connection.getresponse()
                return Answer(answer.status, answer.read(), tuple(answer.headers.get_all("warning") or ()))
            except (OSError, http.client.HTTPException) as error:
                connection.close()  # and is opened again by the next request
                # A server closes what has been idle for a while, and may do so just now.
                if last or not isinstance(error, http.client.RemoteDisconnected | BrokenPipeError | ConnectionResetError):
                    raise
            finally:
                if tls is not None:
                    connection.close()
        raise AssertionError("not reached")

    @contextmanager
    def watching(self, path: str, token: str) -> Iterator[http.client.HTTPResponse]:
        """A watch of the global plane that stands: its head has come."""
        connection = self._connection("global", client_context(self.folder.authorities))
        try:
            joint = "&" if "?" in path else "?"
            connection.request("GET", f"{path}{joint}watch=true", headers={"authorization": f"Bearer {token}"})
            yield connection.getresponse()
        finally:
            connection.close()

    def _connection(self, plane: str, tls: ssl.SSLContext | None) -> http.client.HTTPSConnection:
        """One for each thread and plane, kept; a certificate has a connection of its own."""
        kept: dict[str, http.client.HTTPSConnection] = self._kept.__dict__
        where = urlsplit(self.address(plane))
        if tls is not None or plane not in kept:
            context = tls or client_context(self.folder.authorities)
            made = http.client.HTTPSConnection(where.hostname or "", where.port, context=context, timeout=WAIT_S)
            if tls is not None:
                return made
            kept[plane] = made
        return kept[plane]

    def client(self, named: Named) -> ssl.SSLContext:
        """With a certificate of one's own, in the name of a component or an agent."""
        file = f"as-{named.purpose}-{named.name}"
        if not self.folder.files_of(file)[0].exists():
            self.folder.issue(named, file=file)
        return client_context(self.folder.authorities, *self.folder.files_of(file))


def manifest(kind: str, tenant: str, name: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": tenant} if tenant else {})}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def path_of(plural: str, tenant: str = "", name: str = "") -> str:
    return f"{GROUP}/{f'namespaces/{tenant}/' if tenant else ''}{plural}{f'/{name}' if name else ''}"
