"""When the certificates end that a server and an agent use, as both tell it for /metrics."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

from starlette.applications import Starlette

from fairlead.client.channel import Channel
from fairlead.compose.agent import AgentConfig, AgentProgram
from fairlead.compose.config import PlaneConfig, TlsFiles
from fairlead.compose.outside import Here
from fairlead.decide.access import Identity
from fairlead.observe.sums import CERTIFICATE_END
from fairlead.security.certificates import Named, instant
from tests.security.places import Place


def written(place: Place, named: Named, days: int) -> TlsFiles:
    place.client(named, lifetime=timedelta(days=days))
    folder = place.directory
    return TlsFiles(str(folder / f"{named.name}.pem"), str(folder / f"{named.name}.key"), str(place.authorities))


async def nobody(channel: Channel, identity: Identity) -> None:
    raise AssertionError("nobody is served here")


def days_left(place: Place, end_s: float) -> int:
    return round((instant(end_s) - instant(place.clock.wall())) / timedelta(days=1))


async def test_a_server_tells_of_what_it_shows_and_of_what_it_dials_with(tmp_path: Path) -> None:
    place = Place(tmp_path / "pki")
    identity = written(place, Named("component", "server-0", ("mirror",)), 20)
    shown = TlsFiles(*map(str, place.files))
    place.write_server("server-0")
    here = Here(PlaneConfig(plane="global", store="memory:", data=str(tmp_path / "data"), tls=shown, identity=identity))
    assert here.certificates() == {}
    dialler = here.dialler()
    here.serving(Starlette(), nobody)
    told = here.certificates()
    assert {purpose: days_left(place, ends.certificate_s) for purpose, ends in told.items()} == {"server": 90, "component": 20}
    assert {days_left(place, ends.authority_s) for ends in told.values()} == {3650}
    await dialler.close()


async def test_a_server_without_tls_has_nothing_to_tell(tmp_path: Path) -> None:
    here = Here(PlaneConfig(plane="global", store="memory:", data=str(tmp_path)))
    await here.dialler().close()
    here.serving(Starlette(), nobody)
    assert here.certificates() == {}


async def test_an_agent_tells_when_its_certificate_ends_after_a_renewal_too(tmp_path: Path) -> None:
    place = Place(tmp_path / "pki")
    named = Named("agent", "node-1", ("agent",), "eu-west")
    files = written(place, named, 3)
    config = AgentConfig("node-1", "eu-west", ("https://127.0.0.1:1",), str(tmp_path / "state"), cpu="1", memory="1Gi", tls=files)
    program = AgentProgram(config, place.clock, random.Random(1))
    assert days_left(place, program.figures()[CERTIFICATE_END]) == 3
    written(place, named, 30)
    assert days_left(place, program.figures()[CERTIFICATE_END]) == 30
