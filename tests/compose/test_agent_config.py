"""What an agent's configuration says of its node."""

from __future__ import annotations

import pytest

from fairlead.compose.agent import AgentConfig


def config(address: str = "") -> AgentConfig:
    return AgentConfig("n1", "us-east", ("https://127.0.0.1:7443",), "state", cpu="1", memory="1Gi", address=address)


def test_the_address_is_as_configured_or_the_one_towards_the_servers() -> None:
    assert config("10.1.2.3").declaration().address == "10.1.2.3"
    assert config("fd00::7").declaration().address == "fd00::7"
    assert config().declaration().address == "127.0.0.1"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "node-1.example.org", "10.1.2.3:80"])
def test_an_address_that_no_client_could_use_is_refused_by_name(address: str) -> None:
    with pytest.raises(ValueError, match=r"^address: "):
        config(address).declaration()
