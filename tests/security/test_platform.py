"""What guards the real thing: two planes and an agent as processes, behind TLS, on files.

One pair of planes for all: it takes seconds to start, and no test here needs it untouched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead.ports import SystemIds
from fairlead.security import certificates
from fairlead.security.sealing import PREFIX, Keyring, key_id
from tests.security.two_planes import GROUP, REGION, TwoPlanes, manifest, path_of

WORD = "correct-horse-battery-staple-4711"
# What the process says it was given: the mode of its file, a hash of what is in it, and all of its environment.
SHOW = "stat -c %a keys/password; sha256sum < keys/password; env; echo end; exec sleep 600"


def secret(name: str, **data: str) -> dict[str, Any]:
    return manifest("Secret", "risk", name, {"data": data})


def files_with(directory: Path, text: str) -> list[str]:
    found = []
    for path in sorted(directory.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # servers write anew, beside the old file, and then rename
            if path.is_file() and not path.is_symlink() and text.encode() in path.read_bytes():
                found.append(path.relative_to(directory).as_posix())
    return found


def stored(planes: TwoPlanes, text: str) -> bool:
    """In both engines, and in the history beside each."""
    found = files_with(planes.directory, text)
    parts = ("global.db", f"{REGION}.db", "data/global/history/", f"data/{REGION}/history/")
    return all(any(name.startswith(part) for name in found) for part in parts)


def test_a_secret_is_nowhere_in_the_clear_but_in_the_file_of_the_process_that_needs_it(planes: TwoPlanes, node: Path) -> None:
    assert planes.ask("rita", "POST", path_of("secrets", "risk"), secret("db", password=WORD)).status == 201
    spec = {
        "replicas": 1,
        "template": {"command": ["/bin/sh", "-c", SHOW], "files": [{"path": "keys", "secret": "db"}]},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    assert planes.ask("rita", "POST", path_of("workloads", "risk"), manifest("Workload", "risk", "reader", spec)).status == 201
    log = path_of("workloads", "risk", "reader") + "/log"
    planes.wait(lambda: planes.ask("rita", "GET", log).body.endswith(b"end\n"), "the process says what it was given")
    mode, hashed, *environment = planes.ask("rita", "GET", log).body.decode().splitlines()
    assert (mode, hashed.split()[0]) == ("400", hashlib.sha256(WORD.encode()).hexdigest())
    assert WORD not in "".join(environment)

    shown = planes.ask("rita", "GET", path_of("secrets", "risk", "db"))
    assert shown.json["spec"]["data"] == {"password": WORD}, "whoever may get it sees it"
    sealed = Keyring.load(planes.keys, SystemIds()).sealed(WORD, "risk", "db", "password")
    planes.wait(lambda: stored(planes, sealed), "the sealed secret is in both planes and in their histories")
    backup, again = planes.directory / "global.backup", planes.directory / "restored.db"
    for words in (("backup", f"sqlite:{planes.directory}/global.db", str(backup)), ("restore", str(backup), f"sqlite:{again}")):
        done = planes.fairlead("admin", "store", *words)
        assert done.returncode == 0, done.stderr
    assert files_with(again.parent, sealed).count("restored.db") == 1
    assert files_with(planes.directory, WORD) == []
    on_node = files_with(node, WORD)
    assert len(on_node) == 1, on_node
    assert on_node[0].endswith("work/keys/password"), on_node
    assert (node / on_node[0]).stat().st_mode & 0o777 == 0o400


def kubeconfig(planes: TwoPlanes, folder: Path, person: str) -> Path:
    config = folder / "kubeconfig"
    config.touch(0o600)
    cluster = f"{{server: '{planes.address('global')}', certificate-authority: '{planes.folder.authorities}'}}"
    config.write_text(
        f"apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {cluster}}}]\n"
        f"users: [{{name: {person}, user: {{token: {planes.tokens[person]}}}}}]\n"
        f"contexts: [{{name: c, context: {{cluster: c, user: {person}, namespace: risk}}}}]\n"
    )
    return config


def test_kubectl_is_told_that_nobody_acts_as_somebody_else(planes: TwoPlanes, tmp_path: Path) -> None:
    config = kubeconfig(planes, tmp_path, "admin")
    assert planes.kubectl(config, "auth", "can-i", "create", "workloads.fairlead.dev") == (0, "yes\n")
    for words in (
        ("auth", "can-i", "create", "workloads.fairlead.dev", "--as=nobody"),
        ("get", "workloads.fairlead.dev", "--as=nobody", "--as-group=nobodies"),
        ("get", "--raw", "/metrics", "--as=nobody"),
        ("get", "--raw", path_of("workloads", "risk", "api") + "/log", "--as=nobody"),
    ):
        code, said = planes.kubectl(config, *words)
        assert code != 0, said
        assert "nobody acts as somebody else here (impersonate-" in said, said


@pytest.mark.parametrize("header", ["Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-scopes"])
def test_a_request_as_somebody_else_is_refused_on_every_plane_and_a_stranger_is_told_nothing(
    planes: TwoPlanes, header: str
) -> None:
    for plane in ("global", REGION):
        for path in (path_of("workloads", "risk"), f"{GROUP}/plans", "/metrics", path_of("workloads", "risk", "api") + "/log"):
            got = planes.ask("admin", "GET", path, plane=plane, headers={header: "root"})
            assert (got.status, header.lower().encode() in got.body) == (403, True), got.body
            assert planes.ask("", "GET", path, plane=plane, headers={header: "root"}).status == 401


def test_health_is_told_under_every_name_that_kubectl_and_load_balancers_ask(planes: TwoPlanes, tmp_path: Path) -> None:
    for path in ("/livez", "/healthz", "/readyz"):
        assert planes.kubectl(kubeconfig(planes, tmp_path, "sam"), "get", "--raw", path) == (0, "ok\n")
        assert planes.ask("", "GET", path).status == 200


def test_kubectl_finds_a_secret_as_it_was_applied_and_changes_nothing_the_second_time(planes: TwoPlanes, tmp_path: Path) -> None:
    config = kubeconfig(planes, tmp_path, "rita")
    file = tmp_path / "secret.yaml"
    file.write_text(
        f"apiVersion: fairlead.dev/v1alpha1\nkind: Secret\nmetadata: {{name: applied}}\nspec: {{data: {{key: {WORD}}}}}\n"
    )

    def kubectl(*words: str) -> tuple[int, str]:
        return planes.kubectl(config, *words)

    kind = "secrets.fairlead.dev"
    assert "created" in kubectl("apply", "-f", str(file))[1]
    before = kubectl("get", kind, "applied", "-o", "jsonpath={.metadata.resourceVersion} {.spec.data.key}")[1]
    assert before.endswith(f" {WORD}")
    assert "unchanged" in kubectl("apply", "-f", str(file))[1]
    assert kubectl("diff", "-f", str(file))[0] == 0
    assert f"key: {WORD}" in kubectl("get", kind, "-o", "yaml")[1]
    version = before.split()[0]
    assert kubectl("get", kind, "applied", "-o", "jsonpath={.metadata.resourceVersion}")[1] == version, "nothing was written"
    for _ in range(2):
        code, said = kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
        assert (code, "serverside-applied" in said) == (0, True), said
        version, previous = kubectl("get", kind, "applied", "-o", "jsonpath={.metadata.resourceVersion}")[1], version
    assert version == previous, "a second server-side apply writes nothing either"
    file.write_text(file.read_text().replace(WORD, WORD + "-2"))
    assert "configured" in kubectl("apply", "-f", str(file))[1]
    assert kubectl("get", kind, "applied", "-o", "jsonpath={.spec.data.key}")[1] == WORD + "-2"
    assert files_with(planes.directory, WORD) == [], "the copy that apply keeps in an annotation is sealed too"


def test_a_new_key_seals_everything_anew_without_a_restart(planes: TwoPlanes) -> None:
    assert planes.ask("rita", "POST", path_of("secrets", "risk"), secret("old", k=WORD)).status == 201
    ring = Keyring.load(planes.keys, SystemIds())
    before = ring.sealed(WORD, "risk", "old", "k")
    new = ring.rotated()
    new.save(planes.keys)
    after = new.sealed(WORD, "risk", "old", "k")
    assert key_id(after) == new.current != key_id(before)
    assert after.startswith(PREFIX)
    planes.wait(lambda: stored_in(planes, after), "the secret is sealed under the new key")
    assert planes.ask("rita", "GET", path_of("secrets", "risk", "old")).json["spec"]["data"] == {"k": WORD}


def stored_in(planes: TwoPlanes, text: str) -> bool:
    return any(name.startswith("global.db") for name in files_with(planes.directory, text))


def presented(planes: TwoPlanes, plane: str) -> str:
    where = urlsplit(planes.address(plane))
    pem = ssl.get_server_certificate((where.hostname or "", where.port or 0), ca_certs=str(planes.folder.authorities))
    return certificates.fingerprint_of(certificates.load(pem.encode()))


@pytest.mark.parametrize("plane", ["global", REGION])
def test_a_rotated_certificate_is_presented_to_the_next_connection_without_a_restart(planes: TwoPlanes, plane: str) -> None:
    before, pid = presented(planes, plane), planes.processes[plane].pid
    planes.folder.rotate(f"{plane}-server")
    after = presented(planes, plane)
    assert after != before
    assert after == certificates.fingerprint_of(certificates.load(planes.folder.files_of(f"{plane}-server")[0].read_bytes()))
    os.kill(pid, 0)
    assert planes.processes[plane].poll() is None
