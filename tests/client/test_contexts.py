"""What a context stands for: TLS by its CA, a client certificate, and never a secret in the open."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest

from fairlead.client import contexts
from fairlead.client.contexts import BadConfig, Context
from tests.api.doors import write_certificates


def test_a_context_with_a_client_certificate_makes_mutual_tls_from_files_beside_the_config(tmp_path: Path) -> None:
    ca, certificate, key = write_certificates(tmp_path)
    made = Context(
        name="a", server="https://h:1", certificate_authority=ca.name, client_certificate=certificate.name, client_key=key.name
    )
    tls = contexts.tls_of(made, tmp_path)
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
    assert len(tls.get_ca_certs()) == 1, "only the CA that is named is trusted"
    text = Context(name="a", server="https://h:1", certificate_authority_data=ca.read_text())
    inline = contexts.tls_of(text, tmp_path)
    assert inline is not None
    assert len(inline.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"client_certificate": "no.pem", "client_key": "no.key"}, "its certificates cannot be used"),
        ({"certificate_authority_data": "nonsense"}, "its certificates cannot be used"),
        ({"certificate_authority": "no.pem"}, "certificateAuthority: "),
    ],
)
def test_certificates_that_cannot_be_used_are_named_with_the_way_to_mend_it(
    tmp_path: Path, fields: dict[str, str], said: str
) -> None:
    with pytest.raises(BadConfig) as raised:
        contexts.tls_of(Context(name="a", server="https://h:1", **fields), tmp_path)
    assert said in str(raised.value)
    assert "fairlead config set-context a" in raised.value.hint


@pytest.mark.parametrize(
    ("host", "local"), [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("10.0.0.1", False), ("h", False)]
)
def test_plain_http_is_for_this_machine_only(tmp_path: Path, host: str, local: bool) -> None:
    made = Context(name="a", server=f"http://{host}:80")
    if local:
        assert contexts.tls_of(made, tmp_path) is None
    else:
        with pytest.raises(BadConfig, match="this machine only"):
            contexts.tls_of(made, tmp_path)


def test_a_config_is_replaced_whole_and_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.json"
    config = (
        contexts.ClientConfig()
        .with_context(Context(name="b", server="https://b", token="t"))
        .with_context(Context(name="a", server="https://a"))
    )
    contexts.save(config, path)
    contexts.save(config, path)
    assert contexts.load(path) == config
    assert config.current_context == "b", "the first one made is the current one"
    assert [each.name for each in path.parent.iterdir()] == ["config.json"]
    assert "t" not in repr(config.contexts[1]).replace("Context", "").replace("https", "")


# --- one that lies in the current directory ------------------------------------------------------------------------------


def laid_out(folder: Path, monkeypatch: pytest.MonkeyPatch, token_file: str = "run/a.token") -> Path:
    """As `fairlead up` leaves it where it is started."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv(contexts.PLACE, raising=False)
    monkeypatch.delenv(contexts.TOKEN, raising=False)
    here = contexts.LOCAL.parent
    (here / "run").mkdir(parents=True)
    (here / "run" / "a.token").write_text("secret")
    made = Context(name="a", server="https://h:1", token_file=token_file)
    return contexts.save(contexts.ClientConfig(contexts=(made,), current_context="a"), contexts.LOCAL)


def test_the_config_of_a_platform_started_here_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out(tmp_path, monkeypatch)
    contexts.LOCAL.parent.chmod(0o775)  # by the umask of many systems
    chosen = contexts.load().context()
    assert contexts.token_of(chosen, contexts.place().parent) == "secret"


@pytest.mark.parametrize(("what", "mode"), [("client.json", 0o622), ("client.json", 0o620), (".", 0o777)])
def test_a_config_that_others_can_write_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, mode: int
) -> None:
    path = laid_out(tmp_path, monkeypatch)
    (path.parent / what).chmod(mode)
    with pytest.raises(BadConfig, match="others can write it") as raised:
        contexts.load()
    assert f"{contexts.PLACE}={contexts.LOCAL}" in raised.value.hint
    monkeypatch.setenv(contexts.PLACE, str(contexts.LOCAL))
    assert contexts.load().current_context == "a", "named by its reader, it is meant"


def test_a_config_of_somebody_else_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out(tmp_path, monkeypatch)
    monkeypatch.setattr(contexts, "_is_own", lambda found: stat.S_ISDIR(found.st_mode))
    with pytest.raises(BadConfig, match="others can write it"):
        contexts.load()


def test_what_is_somebody_s_own_is_so_by_owner_and_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(uid: int, mode: int) -> os.stat_result:
        return os.stat_result((mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    file = stat.S_IFREG | 0o600
    assert [contexts._is_own(found(uid, file)) for uid in (1000, 0, 1001)] == [True, True, False]


def test_a_token_from_elsewhere_must_be_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("other")
    laid_out(tmp_path, monkeypatch, str(elsewhere))
    base, chosen = contexts.place().parent, contexts.load().context()
    assert contexts.token_of(chosen, base) == "other"
    elsewhere.chmod(0o666)
    with pytest.raises(BadConfig, match="neither beside the config nor yours"):
        contexts.token_of(chosen, base)
