"""`fairlead certs` on a folder, and what `fairlead auth` sends to a server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cli import access_work as work
from fairlead.model.commands import Fault
from fairlead.model.kinds.access import Token
from fairlead.model.registry import BY_KIND
from fairlead.ports import SystemClock, SystemIds
from fairlead.security import certificates, tokens
from fairlead.security.certificates import Named
from fairlead.security.folder import CertificateFolder
from fairlead.security.tls import ServerTls, TlsFiles, client_context
from fairlead.wire.manifest import Decoded, decode_object
from tests.cli.runs import fairlead
from tests.security.rules import NOW

Folder = Callable[[], Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "pki"
    assert fairlead("certs", "init", path).code == 0
    return path


def test_a_folder_begins_with_an_authority_and_a_key_for_secrets_that_only_their_owner_reads(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["ca.key", "ca.pem", "secrets.keys"]
    assert [(folder / name).stat().st_mode & 0o777 for name in ("ca.key", "secrets.keys", "ca.pem")] == [0o600, 0o600, 0o644]
    again = fairlead("certs", "init", folder)
    assert (again.code, "rotate it instead" in again.err) == (4, True)


def test_what_is_issued_can_be_served_with_and_dialled_with(folder: Path) -> None:
    assert fairlead("certs", "issue", folder, "server", "global-0").code == 0
    made = fairlead(
        "certs", "issue", folder, "component", "eu-0", "--role", "mirror", "--role", "scheduler", "--region", "eu-west"
    )
    assert made.out.strip() == str(folder / "eu-0.pem")
    assert fairlead("certs", "issue", folder, "agent", "node-1", "--region", "eu-west", "--days", "2").code == 0
    assert fairlead("certs", "issue", folder, "user", "ada", "--file", "ada-laptop").code == 0
    ServerTls(TlsFiles(folder / "global-0.pem", folder / "global-0.key", folder / "ca.pem"))
    for name in ("eu-0", "node-1", "ada-laptop"):
        client_context(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
    read = certificates.read(certificates.load((folder / "eu-0.pem").read_bytes()))
    assert read.named == Named("component", "eu-0", ("mirror", "scheduler"), "eu-west")
    shown = fairlead("certs", "show", folder, "--json")
    assert shown.code == 0
    rows = {row["file"]: row for row in shown.json["certificates"]}
    assert {file: (row["purpose"], row["name"], row["state"]) for file, row in rows.items()} == {
        "ca": ("authority", "-", "Good"),
        "global-0": ("server", "global-0", "Good"),
        "eu-0": ("component", "eu-0", "Good"),
        "node-1": ("agent", "node-1", "Good"),
        "ada-laptop": ("user", "ada", "Good"),
    }
    assert rows["global-0"]["hosts"] == ["localhost", "127.0.0.1", "::1"]
    assert "BEGIN" not in shown.out + fairlead("certs", "show", folder).out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("issue", "component", "x", "--role", "operator"), 1, "operator"),
        (("issue", "component", "x"), 1, "roles"),
        (("issue", "agent", "x"), 1, "region"),
        (("issue", "user", "../x"), 1, "no name"),
        (("issue", "user", "x", "--file", "../x"), 1, "no name for a file"),
        (("issue", "user", "ca"), 1, "authority"),
        (("issue", "user", "x", "--host", "localhost"), 1, "hosts"),
        (("rotate", "nobody"), 3, "no certificate nobody"),
        (("rotate",), 1, "say which"),
        (("rotate", "ca", "x", "--finish"), 1, "--finish"),
    ],
)
def test_what_cannot_be_issued_is_told_in_a_line(folder: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    got = fairlead("certs", arguments[0], folder, *arguments[1:])
    assert (got.code, got.out) == (code, "")
    assert says in got.err
    assert "Traceback" not in got.err


def test_a_key_that_others_may_read_signs_nothing(folder: Path) -> None:
    (folder / "ca.key").chmod(0o644)
    got = fairlead("certs", "issue", folder, "user", "ada")
    assert (got.code, "chmod 600" in got.err, (folder / "ada.pem").exists()) == (1, True, False)
    assert fairlead("certs", "issue", folder / "nowhere", "user", "ada").code == 3


def test_a_rotated_certificate_says_the_same_with_another_key(folder: Path) -> None:
    fairlead("certs", "issue", folder, "server", "s", "--host", "plane.example.org", "--days", "5")
    before = certificates.load((folder / "s.pem").read_bytes())
    assert fairlead("certs", "issue", folder, "server", "s").code == 4, "not by accident"
    assert fairlead("certs", "rotate", folder, "s").code == 0
    after = certificates.load((folder / "s.pem").read_bytes())
    one, two = certificates.read(before), certificates.read(after)
    assert one.named == two.named
    assert certificates.hosts_of(before) == certificates.hosts_of(after) == ["plane.example.org"]
    assert two.not_after - two.not_before == one.not_after - one.not_before
    assert before.public_key() != after.public_key()
    assert fairlead("certs", "rotate", folder, "--due").out == "", "nothing is due yet"


class LaterClock(SystemClock):
    def wall(self) -> float:
        return super().wall() + 25 * 86_400


def test_what_is_due_is_found_and_what_expired_is_told_with_the_exit_code(folder: Path) -> None:
    now = CertificateFolder(folder, SystemClock())
    now.issue(Named("user", "ada"), lifetime=timedelta(days=30))
    now.issue(Named("user", "eve"), lifetime=timedelta(days=5))
    later = {entry.file: entry.due for entry in CertificateFolder(folder, LaterClock()).entries()}
    assert later == {"ca": False, "ada": True, "eve": True}
    from tests.cli.runs import world

    got = fairlead("certs", "show", folder, "--json", within=world()._replace(clock=LaterClock))
    assert got.code == 8
    assert {row["file"]: row["state"] for row in got.json["certificates"]} == {"ca": "Good", "ada": "Due", "eve": "Expired"}


def test_the_authority_is_rotated_in_steps_and_not_finished_while_something_hangs_on_the_old_one(folder: Path) -> None:
    fairlead("certs", "issue", folder, "user", "ada")
    old = (folder / "ca.pem").read_bytes()
    assert fairlead("certs", "rotate", folder, "ca").code == 0
    both = (folder / "ca.pem").read_bytes()
    assert both.endswith(old)
    assert fairlead("certs", "rotate", folder, "ca").code == 4
    assert {row["state"] for row in fairlead("certs", "show", folder, "--json").json["certificates"]} == {"Good"}
    refused = fairlead("certs", "rotate", folder, "ca", "--finish")
    assert (refused.code, "ada" in refused.err) == (4, True)
    assert (folder / "ca.pem").read_bytes() == both, "nothing was cut off"
    assert fairlead("certs", "rotate", folder, "--all").code == 0
    asked = fairlead("certs", "rotate", folder, "ca", "--finish")
    assert (asked.code, "joined with a token" in asked.err, "--yes" in asked.err) == (5, True, True)
    assert (folder / "ca.pem").read_bytes() == both, "nobody said so"
    assert fairlead("certs", "rotate", folder, "ca", "--finish", "--yes").code == 0
    assert (folder / "ca.pem").read_bytes() == both[: -len(old)]
    assert fairlead("certs", "show", folder).code == 0


def test_a_rotation_of_the_authority_that_was_cut_off_leaves_one_that_signs(folder: Path) -> None:
    key = (folder / "ca.key").read_bytes()
    fairlead("certs", "rotate", folder, "ca")
    (folder / "ca.key").write_bytes(key)  # as if the power had gone before the new key was written
    assert fairlead("certs", "issue", folder, "user", "ada").code == 0
    assert fairlead("certs", "show", folder).code == 0


def test_the_key_for_secrets_is_rotated_with_the_old_one_kept(folder: Path) -> None:
    before = (folder / "secrets.keys").read_text()
    assert fairlead("certs", "rotate-secrets-key", folder).code == 0
    after = (folder / "secrets.keys").read_text()
    assert after.endswith(before)
    assert len(after.splitlines()) == 2


# --- auth ----------------------------------------------------------------------------------------------------------------------


class Fake:
    """Remembers what it was sent, and takes only what the real server's decoder and admission would."""

    def __init__(self, allowed: bool = True) -> None:
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.allowed = allowed

    async def read(self, plural: str, tenant: str, name: str) -> dict[str, Any]:
        return self.stored[tenant, name]

    async def listed(self, plural: str, tenant: str) -> list[dict[str, Any]]:
        return [value for (home, _), value in self.stored.items() if tenant in ("", home)]

    async def create(self, plural: str, tenant: str, body: dict[str, Any]) -> dict[str, Any]:
        assert plural == "tokens"
        self.check(body)
        body["metadata"]["creationTimestamp"] = work.instant(NOW)
        self.stored[tenant, body["metadata"]["name"]] = body
        return body

    async def merge(self, plural: str, tenant: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        old = self.stored[tenant, name]
        self.stored[tenant, name] = {**old, "spec": {**old["spec"], **body["spec"]}}
        return self.stored[tenant, name]

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((path, body))
        rules = [{"verbs": ["get"], "resources": ["workloads"]}]
        status = {"allowed": self.allowed, "reason": "said so", "userInfo": {"username": "user:ada"}, "resourceRules": rules}
        return {**body, "status": status}

    def check(self, body: dict[str, Any]) -> Token:
        from fairlead.decide.admission import faults

        got = decode_object(msgspec.json.encode(body), media="json")
        assert isinstance(got, Decoded), [f"{f.path}: {f.message}" for f in got if isinstance(f, Fault)]
        assert isinstance(got.record, Token)
        assert faults(BY_KIND["Token"], got.record, None) == ()
        return got.record


async def test_a_new_token_s_secret_stays_with_its_owner() -> None:
    client = Fake()
    issued = await work.create_token(client, SystemIds(), NOW, work.Wanted("ci", "risk", ("risk",), timedelta(days=30)))
    stored = client.stored["risk", issued.name]
    text = issued.text.reveal()
    presented = tokens.parse(text)
    assert presented is not None
    assert tokens.matches(presented, stored["spec"]["hash"])
    assert presented.secret.reveal() not in repr(stored)
    assert stored["spec"]["subject"] == {"kind": "ServiceAccount", "name": "ci", "tenant": "risk"}
    assert stored["spec"]["expiryTime"] == "2026-03-31T12:00:00Z"
    person = await work.create_token(client, SystemIds(), NOW, work.Wanted("ada"))
    assert person.tenant == "fairlead-system"
    assert client.stored[person.tenant, person.name]["spec"]["subject"] == {"kind": "User", "name": "ada"}


async def test_a_join_token_says_the_most_a_node_may_be() -> None:
    client = Fake()
    profile = {
        "node": "eu-west-node-7",
        "region": "eu-west",
        "capacity": {"cpu": "8", "memory": "16Gi"},
        "labels": {"disk": "ssd"},
    }
    issued = await work.create_join_token(client, SystemIds(), NOW, profile | {"devices": {"gpu": 2}, "maxSlots": 50})
    assert issued.text.reveal().startswith("flj_fairlead-system.")
    token = client.check(client.stored["fairlead-system", issued.name])
    assert token.spec.profile is not None
    assert (token.spec.profile.capacity.cpu, token.spec.profile.devices) == (8000, {"gpu": 2})


async def test_rotation_issues_the_new_token_before_the_old_one_ends() -> None:
    client = Fake()
    old = await work.create_token(client, SystemIds(), NOW, work.Wanted("ci", "risk", ("risk",), timedelta(days=30)))
    new = await work.rotate(client, SystemIds(), NOW, "risk", old.name, timedelta(hours=1))
    specs = {name: value["spec"] for (_, name), value in client.stored.items()}
    assert specs[old.name]["expiryTime"] == "2026-03-01T13:00:00Z"
    assert specs[new.name]["expiryTime"] == "2026-03-31T12:00:00Z"
    for field in ("subject", "tenants"):
        assert specs[new.name][field] == specs[old.name][field]
    assert specs[new.name]["hash"] != specs[old.name]["hash"]
    last = await work.rotate(client, SystemIds(), NOW, "risk", new.name, timedelta(0))
    assert client.stored["risk", new.name]["spec"]["revoked"] is True
    await work.revoke(client, "risk", last.name, "lost")
    states = {row["name"]: row["state"] for row in (work.row_of(t, NOW) for t in await client.listed("tokens", "risk"))}
    assert states == {old.name: "Good", new.name: "Revoked", last.name: "Revoked"}
    join = await work.create_join_token(
        client, SystemIds(), NOW, {"node": "r-n", "region": "r", "capacity": {"cpu": "1", "memory": "1Gi"}}
    )
    with pytest.raises(ValueError, match="join tokens are used once"):
        await work.rotate(client, SystemIds(), NOW, join.tenant, join.name, timedelta(0))


async def test_a_certificate_is_refused_by_its_fingerprint(folder: Path) -> None:
    client = Fake()
    fairlead("certs", "issue", folder, "user", "ada")
    pem = (folder / "ada.pem").read_bytes()
    name = await work.revoke_certificate(client, SystemIds(), pem, "lost")
    spec = client.stored["fairlead-system", name]["spec"]
    assert spec["hash"] == certificates.read(certificates.load(pem)).fingerprint
    assert (spec["purpose"], spec["revoked"]) == ("Certificate", True)


async def test_questions_about_oneself_are_asked_as_kubernetes_asks_them() -> None:
    client = Fake(allowed=False)
    assert await work.can_i(client, "get", "secrets", "risk", "db", "") == (False, "said so")
    path, body = client.asked[0]
    assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    wanted = {
        "verb": "get",
        "group": "fairlead.dev",
        "version": "v1alpha1",
        "resource": "secrets",
        "namespace": "risk",
        "name": "db",
    }
    assert body["spec"]["resourceAttributes"] == wanted
    assert await work.who_am_i(client) == {"username": "user:ada"}
    assert await work.rules(client, "risk") == [{"verbs": ["get"], "resources": ["workloads"]}]


def test_the_commands_explain_themselves() -> None:
    for words in (
        ("auth",),
        ("auth", "token"),
        ("auth", "token", "create"),
        ("auth", "join-token"),
        ("auth", "can-i"),
        ("certs", "rotate"),
    ):
        got = fairlead(*words, "--help")
        assert (got.code, got.err) == (0, ""), words
        assert "Usage" in got.out
