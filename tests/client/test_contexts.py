"""What a context stands for: TLS by its CA, a client certificate, and never a secret in the open."""

from __future__ import annotations

import ssl
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
