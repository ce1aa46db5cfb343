"""Access over real sockets: certificates, tokens and the channel, each as a caller elsewhere would use it."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.api.identity import Authenticator, Unauthenticated
from fairlead.api.identity_routes import AUTHORITIES_PATH, JOIN_PATH, RENEW_PATH, joining_routes
from fairlead.api.socket import channel_route
from fairlead.authority.service import PlaneService
from fairlead.client.channel import Channel, Closed
from fairlead.client.dial import Dialer
from fairlead.client.remote import RemotePlane
from fairlead.compose.agent import AgentConfig
from fairlead.compose.enrol import enrol
from fairlead.compose.layout import read_config
from fairlead.decide.access_agent import refuse_own_node
from fairlead.model.commands import Accepted, Caller, Command, Delete, Refused
from fairlead.model.kinds.access import SYSTEM_TENANT, Subject, Token, TokenSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, Resources
from fairlead.ports import Tasks
from fairlead.security import certificates
from fairlead.security.certificates import Named, Pair, new_request
from fairlead.security.hidden import Hidden
from fairlead.security.tls import ServerTls
from tests.api.guarded import Guarded, guarded, placed
from tests.authority.planes import OPERATOR, REGION, FakeClock, ok, report_of
from tests.security.places import Place, serving


def app_of(world: Guarded) -> Starlette:
    async def whoami(request: Request) -> Response:
        shown = world.authenticator(request)
        return Response(shown.name if shown else "", 200 if shown else 401)

    service = PlaneService(world.plane.authority, world.plane.clock)

    async def serve(channel: Channel, socket: Any) -> None:
        await service.serve(channel, world.access.gate(socket.state.identity))

    routes = [Route("/whoami", whoami), channel_route(serve, world.authenticator.admit)]
    return Starlette(routes=[*routes, *joining_routes(world.joining, world.authenticator.identify)])


async def test_an_agent_joins_over_tls_connects_with_its_certificate_renews_it_and_is_cut_off_when_it_is_revoked(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        text, stored = await world.join_token(f"{REGION}-node-7")
        request, key = new_request()
        async with aiohttp.ClientSession() as session:
            body = {"token": text, "request": request.decode()}
            async with session.post(address + JOIN_PATH, json=body, ssl=world.place.client()) as answer:
                assert answer.status == 200, await answer.text()
                got = await answer.json()
            async with session.post(
                address + JOIN_PATH, json=body | {"request": new_request()[0].decode()}, ssl=world.place.client()
            ) as answer:
                assert (answer.status, (await answer.json())["reason"]) == (403, "Forbidden")
        assert got["authorities"].encode() == world.place.pair.certificate
        mine = world.place.client_with(Pair(got["certificate"].encode(), key), f"{REGION}-node-7")
        dialer = Dialer(mine)
        channel = await dialer.dial(address)
        await channel.close()
        again, new_key = new_request()
        async with aiohttp.ClientSession() as session:
            async with session.get(address + "/whoami", ssl=mine) as answer:
                assert await answer.text() == f"{REGION}-node-7"
            async with session.post(address + RENEW_PATH, json={"request": again.decode()}, ssl=mine) as answer:
                assert answer.status == 200
                renewed = await answer.json()
            async with session.post(address + RENEW_PATH, json={"request": again.decode()}, ssl=world.place.client()) as answer:
                assert answer.status == 401
            async with session.get(address + AUTHORITIES_PATH, ssl=mine) as answer:
                known = world.place.pair.certificate.decode()
                assert await answer.json() == {"authorities": known, "signer": known}
            async with session.post(address + JOIN_PATH, data=b"x" * 20_000, ssl=mine) as answer:
                assert answer.status == 413
            async with session.post(address + JOIN_PATH, data=b"{", ssl=mine) as answer:
                assert answer.status == 400
        fresh = Dialer(world.place.client_with(Pair(renewed["certificate"].encode(), new_key), f"{REGION}-node-7b"))
        await (await fresh.dial(address)).close()
        await world.revoke(stored)
        for one in (dialer, fresh):
            with pytest.raises(Closed, match="403"):
                await one.dial(address)
            await one.close()


async def test_a_node_that_joins_offers_the_devices_and_other_resources_it_was_approved_for(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        approved = Resources(100, 64 << 20, [("licence", 3)])
        text, stored = await world.join_token(f"{REGION}-7", capacity=approved, devices={"gpu": 2, "fpga": 1})
        path = await enrol(tmp_path / "state", Hidden(text), [address], world.place.files.authorities)
        config: AgentConfig = read_config(path, AgentConfig)
        declared = config.declaration()
        assert [(one.id, one.resource) for one in declared.devices] == [("fpga-0", "fpga"), ("gpu-0", "gpu"), ("gpu-1", "gpu")]
        assert declared.allocatable == approved
        node = world.get("nodes", "", f"{REGION}-7").hot
        assert (node.spec.devices, node.spec.allocatable) == (declared.devices, approved)
        more = replace(node, spec=replace(node.spec, devices=(*declared.devices, Device(id="gpu-2"))))
        assert refuse_own_node(node, node, stored.spec.profile) == ""
        assert "2 devices gpu; it says 3" in refuse_own_node(more, node, stored.spec.profile)


@pytest.mark.parametrize(
    ("named", "welcome"),
    [
        (Named("component", "server-1", ("scheduler",), REGION), True),
        (Named("component", "global-0", ("front-door", "plane-server")), True),
        (Named("component", "us-0", ("mirror", "plane-server"), "us-east"), False),
        (Named("agent", "n1", ("agent",), REGION), True),
        (Named("agent", "n1", ("agent",), "us-east"), False),
        (Named("user", "ada"), False),
        (None, False),
    ],
)
async def test_the_channel_is_for_this_region_s_and_the_world_s_components_and_this_region_s_agents(
    tmp_path: Path, named: Named | None, welcome: bool
) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        await world.bind_role("admin", "*", Subject(name="ada"))
        dialer = Dialer(world.place.client(named))
        if welcome:
            await (await dialer.dial(address)).close()
        else:
            with pytest.raises(Closed, match="403"):
                await dialer.dial(address)
        await dialer.close()


def test_the_global_plane_knows_every_region_s_servers(tmp_path: Path) -> None:
    authority = Place(tmp_path).authority
    pair = authority.issue(Named("component", "us-0", ("mirror",), "us-east"), certificates.instant(FakeClock().wall()))
    shown = certificates.load(pair.certificate).public_bytes(Encoding.DER)
    directory: Any = None
    assert Authenticator(directory)._by_certificate(shown, "here").region == "us-east"
    with pytest.raises(Unauthenticated, match="us-east"):
        Authenticator(directory, region=REGION)._by_certificate(shown, "here")


async def test_a_wrong_token_is_not_made_good_by_the_certificate_beside_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        await world.bind_role("admin", "*", Subject(name="ada"))
        tls = world.place.client(Named("user", "ada"))
        text, stored = await world.token(Subject(name="eve"))
        async with aiohttp.ClientSession() as session:
            for headers, wanted in (({}, (200, "user:ada")), ({"Authorization": f"Bearer {text}"}, (200, "user:eve"))):
                async with session.get(address + "/whoami", ssl=tls, headers=headers) as answer:
                    assert (answer.status, await answer.text()) == wanted
            await world.revoke(stored)
            async with session.get(address + "/whoami", ssl=tls, headers={"Authorization": f"Bearer {text}"}) as answer:
                assert answer.status == 401


async def test_a_revoked_certificate_and_one_that_ended_meanwhile_are_refused_on_a_connection_that_stands(tmp_path: Path) -> None:
    clock = FakeClock()
    async with guarded(tmp_path, clock) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        pair = world.place.authority.issue(
            Named("user", "ada"), certificates.instant(world.plane.clock.wall()), lifetime=timedelta(minutes=5)
        )
        tls = world.place.client_with(pair, "ada")

        async def status(session: aiohttp.ClientSession) -> int:
            async with session.get(address + "/whoami", ssl=tls) as answer:
                return answer.status

        async with aiohttp.ClientSession() as session:
            assert await status(session) == 200
            print_of = certificates.read(certificates.load(pair.certificate)).fingerprint
            spec = TokenSpec(purpose="Certificate", hash=print_of, revoked=True, reason="lost")
            token = Token(metadata=Metadata(name="lost", namespace=SYSTEM_TENANT), spec=spec)
            await world.put("Token", token)
            assert await status(session) == 401
            ok(await world.plane.send(OPERATOR, Delete("Token", SYSTEM_TENANT, "lost")))
            assert await status(session) == 200
        who = world.authenticator._by_certificate(certificates.load(pair.certificate).public_bytes(Encoding.DER), "here")
        assert world.directory.why_not_valid(who) == ""
        ends = who.expiry_ms / 1000 + certificates.SKEW.total_seconds()
        wall = clock.wall
        clock.wall = lambda: ends - 1  # type: ignore[method-assign]
        assert world.directory.why_not_valid(who) == ""
        clock.wall = lambda: ends + 1  # type: ignore[method-assign]
        assert "expired" in world.directory.why_not_valid(who)
        clock.wall = wall  # type: ignore[method-assign]


async def test_over_a_real_channel_an_agent_sees_and_says_what_is_its_own_node_s(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address, Tasks() as tasks:
        await placed(world)
        dialer = Dialer(world.place.client(Named("agent", "n1", ("agent",), REGION)))
        remote = RemotePlane([address], dialer.dial, world.plane.clock, random.Random(1))
        tasks.start(remote.run(), "remote")
        async with asyncio.timeout(60):
            await remote.wait_connected()
        shown = {
            plural: [row.name for row in await remote.list(plural)] for plural in ("nodes", "bindings", "secrets", "revisions")
        }
        assert shown == {"nodes": ["n1"], "bindings": ["api-0"], "secrets": ["db"], "revisions": ["api.g1"]}
        assert await remote.get("secrets", "risk", "other") is None
        with pytest.raises(Exception, match="tokens"):
            await remote.list("tokens")
        own, other = Caller("n1", Role.AGENT, node="n1"), Caller("n2", Role.AGENT, node="n2")
        outcomes = await remote.submit([Command(own, report_of("risk", "api-0", SlotState.STARTING))])
        assert isinstance(outcomes[0], Accepted)
        for caller, body in ((own, report_of("risk", "api-1", SlotState.STARTING)), (other, report_of("risk", "api-1", None))):
            outcomes = await remote.submit([Command(caller, body)])
            assert isinstance(outcomes[0], Refused), outcomes
        assert world.get("bindings", "risk", "api-1").hot.state is SlotState.BOUND
        tasks.cancel()
        await dialer.close()
