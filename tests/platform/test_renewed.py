"""A platform that was left alone until its certificates, authority or tokens ended starts again, and says what it renewed."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fairlead.compose.config import PlaneConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.processes import Processes
from fairlead.compose.renewing import Renewing
from fairlead.compose.wiring import LINKS, PLANES
from fairlead.ports import SystemClock, SystemIds
from fairlead.security import certificates, enrolment
from fairlead.security.certificates import signed_by
from fairlead.security.files import write_private
from fairlead.security.folder import CertificateFolder
from fairlead.security.tls import ServerTls, TlsFiles, client_context
from tests.platform.platforms import PYTHON, Platform

NODE = "agent-us-east-general-a"
DECADE = timedelta(days=3651)  # longer than an authority lives


class State:
    """A state directory as it was written some time ago."""

    def __init__(self, folder: Path, age: timedelta) -> None:
        self.layout = Layout(folder, PYTHON)
        self.pki = folder / "pki"
        self.layout.write(datetime.now(UTC) - age, SystemIds(), {}, 15.0)

    def start(self) -> list[str]:
        return Renewing(self.layout, SystemClock()).at_start(SystemIds())

    def look(self) -> list[str]:
        return Renewing(self.layout, SystemClock()).look()

    def certificate(self, file: str) -> x509.Certificate:
        return certificates.load((self.pki / f"{file}.pem").read_bytes())

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.pki.iterdir() if path.is_file()}

    def tokens(self) -> dict[str, str]:
        return {path.stem: path.read_text() for path in self.layout.path("run").glob("*.token")}


def handshake(state: State, plane: str, client: str) -> None:
    """Raises ssl.SSLError where one of the two does not believe the other."""
    config: PlaneConfig = read_config(state.layout.config_of(plane), PlaneConfig)
    assert config.tls is not None
    server = ServerTls(TlsFiles(*map(Path, (config.tls.certificate, config.tls.key, config.tls.authority)))).context
    dialled = client_context(state.pki / "ca.pem", state.pki / f"{client}.pem", state.pki / f"{client}.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    far = server.wrap_bio(up, down, server_side=True)
    near = dialled.wrap_bio(down, up, server_hostname="127.0.0.1")
    for _ in range(3):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert near.version() == "TLSv1.3"
    assert far.getpeercert()


def test_what_was_written_just_now_is_left_as_it_is(tmp_path: Path) -> None:
    state = State(tmp_path / "state", timedelta(0))
    before = state.files()
    assert state.start() == []
    assert state.look() == []
    assert state.files() == before


def test_ended_certificates_are_renewed_under_the_same_authority(tmp_path: Path) -> None:
    state = State(tmp_path / "state", timedelta(days=40))
    before = state.files()
    with pytest.raises(ssl.SSLError, match="expired"):
        handshake(state, "us-east", NODE)
    (said,) = state.start()
    assert "renewed certificates that have ended or end soon: agent-" in said
    after = state.files()
    kept = {name for name in before if before[name] == after[name]}
    servers = {f"{plane}-server{end}" for plane in PLANES for end in (".pem", ".key")}
    assert kept == {"ca.pem", "ca.key", "secrets.keys", *servers}, "servers' live 90 days"
    handshake(state, "us-east", NODE)
    handshake(state, "global", "us-east-component")
    assert state.start() == [], "once"


def test_who_somebody_is_stays_the_same(tmp_path: Path) -> None:
    state = State(tmp_path / "state", timedelta(days=95))
    files = [path.stem for path in sorted(state.pki.glob("*.pem")) if path.stem != "ca"]
    before = {
        file: (certificates.read(state.certificate(file)).named, certificates.hosts_of(state.certificate(file))) for file in files
    }
    state.start()
    after = {
        file: (certificates.read(state.certificate(file)).named, certificates.hosts_of(state.certificate(file))) for file in files
    }
    assert after == before
    assert all((state.pki / f"{file}.key").stat().st_mode & 0o077 == 0 for file in [*files, "ca"])


def test_an_authority_that_has_ended_makes_way_for_a_new_chain(tmp_path: Path) -> None:
    state = State(tmp_path / "state", DECADE)
    before = state.files()
    said = state.start()
    assert said[0] == "the certificate authority has ended or ends soon: made a new one"
    after = state.files()
    assert {name for name in before if before[name] == after[name]} == {"secrets.keys"}
    (authority,) = x509.load_pem_x509_certificates(after["ca.pem"])
    assert authority.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3000)
    for path in state.pki.glob("*.pem"):
        assert signed_by(certificates.load(path.read_bytes()), authority)
    handshake(state, "us-east", NODE)
    assert state.start() == []


def test_an_authority_that_would_end_before_what_it_signs_is_replaced_too(tmp_path: Path) -> None:
    state = State(tmp_path / "state", timedelta(days=3650 - 80))
    assert "made a new one" in state.start()[0]
    assert State(tmp_path / "younger", timedelta(days=3650 - 100)).start()[0].startswith("renewed certificates")


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 8, 20, 40])
def test_a_new_chain_that_was_cut_off_anywhere_is_completed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    class PowerCut(BaseException):
        pass

    state = State(tmp_path / "state", DECADE)
    real, done = os.replace, 0

    def replace(*words: object, **more: object) -> None:
        nonlocal done
        done += 1
        if done > steps:
            raise PowerCut
        real(*words, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(PowerCut):
            state.start()
    state.start()
    for file in ("global-component", NODE):
        handshake(state, "us-east", file)
    assert state.start() == []
    assert all(certificates.load(path.read_bytes()).not_valid_after_utc > datetime.now(UTC) for path in state.pki.glob("*.pem"))


def test_a_renewal_that_an_agent_did_not_finish_does_not_come_back_over_the_new_chain(tmp_path: Path) -> None:
    state = State(tmp_path / "state", DECADE)
    waiting = state.pki / f".{NODE}.next"
    for name, file in (("certificate", f"{NODE}.pem"), ("key", f"{NODE}.key"), ("authorities", "ca.pem")):
        write_private(waiting / name, (state.pki / file).read_bytes())
    state.start()
    certificate, key = CertificateFolder(state.pki, SystemClock()).files_of(NODE)
    enrolment.identity(TlsFiles(certificate, key, state.pki / "ca.pem"))  # the agent starts
    handshake(state, "us-east", NODE)


def test_tokens_that_have_ended_or_end_soon_are_made_anew_for_everybody(tmp_path: Path) -> None:
    state = State(tmp_path / "state", timedelta(days=61))
    before = state.tokens()
    assert any(line.startswith("renewed tokens that have ended or end soon: admin, approver") for line in state.start())
    after = state.tokens()
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    seed = state.layout.path("seed", "global", "05-access.yaml").read_text()
    assert all(text.split(".")[1] in seed for text in after.values()), "the plane takes them from there"
    younger = State(tmp_path / "younger", timedelta(days=59))
    before = younger.tokens()
    younger.start()
    assert younger.tokens() == before


def test_while_it_runs_agents_renew_their_own_until_they_cannot(tmp_path: Path) -> None:
    due = State(tmp_path / "due", timedelta(days=25))
    (said,) = due.look()
    assert "global-component" in said
    assert "agent-" not in said
    ended = State(tmp_path / "ended", timedelta(days=31))
    (said,) = ended.look()
    assert NODE in said
    handshake(ended, "us-east", NODE)


def test_the_process_that_is_there_as_long_as_the_platform_renews_whoever_stands_by(tmp_path: Path) -> None:
    """As `fairlead up --detach` starts it."""
    state = State(tmp_path / "state", timedelta(days=25))
    before = state.certificate("global-component").not_valid_after_utc
    processes = Processes(state.layout, SystemClock())
    processes.start(LINKS)
    try:
        until = time.monotonic() + 60.0
        while state.certificate("global-component").not_valid_after_utc == before:
            assert processes.pid(LINKS) is not None, processes.log_of(LINKS).read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        asyncio.run(processes.stop_all())
    assert "renewed certificates that have ended or end soon: " in processes.log_of(LINKS).read_text()
    assert "error" not in processes.log_of(LINKS).read_text().lower()


def test_what_cannot_be_renewed_is_said_in_words(tmp_path: Path) -> None:
    state = State(tmp_path / "state", timedelta(days=40))
    (state.pki / "ca.key").chmod(0o644)
    with pytest.raises(ValueError, match=r"certificates cannot be renewed: .*ca.key can be read or written by others"):
        state.start()
    assert "tried again" in state.look()[0]
    (state.pki / "ca.key").chmod(0o600)
    (state.pki / "notes.pem").write_text("hello\n")
    with pytest.raises(ValueError, match=r"notes.pem: this is no certificate; put that right"):
        state.start()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Platform]:
    State(tmp_path / "state", DECADE)
    made = Platform(tmp_path / "state")
    yield made
    made.stop()
    assert made.processes.running() == []


def test_up_starts_a_platform_on_which_everything_has_ended(old: Platform) -> None:
    said = old.call(PYTHON, "-m", "fairlead.main", "up", "--state", str(old.state), "--detach")
    assert said.returncode == 0, said.stderr
    assert "made a new one\nrenewed certificates that have ended or end soon: agent-" in said.stderr
    assert "renewed tokens that have ended or end soon: admin" in said.stderr
    old.wait(lambda: all(old.takes_work(node) for node in old.nodes()), "every node open for work")
    assert "us-east-general-a" in old.run("kubectl", "get", "nodes")
