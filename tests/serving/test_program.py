"""The program that runs DNS and documents: what its certificate shows it, and what it refuses to start with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fairlead.compose.config import Peer
from fairlead.compose.endpoints import EndpointsConfig, EndpointsProgram
from fairlead.decide.access import Identity, statements_for
from fairlead.decide.access_roles import ENDPOINT_READER
from fairlead.ports import SystemClock
from tests.servers.ports import free_ports

REGION = Peer("eu", ("https://127.0.0.1:1",))


def test_an_endpoint_reader_sees_endpoints_and_nothing_else() -> None:
    reader = Identity(name="endpoints", kind="component", roles=(ENDPOINT_READER,))
    (statement,) = statements_for(reader, (), {})
    assert statement.kinds == {"endpoints"}
    assert statement.verbs == {"get", "list", "watch"}


@pytest.mark.parametrize(("dns", "words"), [("nowhere", "is not HOST:PORT"), ("0.0.0.0:5300", "needs `networks`")])
async def test_a_dns_address_that_cannot_be_or_is_open_to_all_is_refused(dns: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EndpointsProgram(EndpointsConfig((REGION,), dns=dns), SystemClock(), random.Random(1))


async def test_a_dns_port_that_is_taken_ends_the_program(tmp_path: Path) -> None:
    config = EndpointsConfig((REGION,), dns=f"127.0.0.1:{free_ports(1)[0]}", files=str(tmp_path))
    first, second = (EndpointsProgram(config, SystemClock(), random.Random(1)) for _ in range(2))
    await first.dns.start()
    try:
        with pytest.raises(OSError, match="in use"):
            await second.run()
    finally:
        await first.dns.close()
