"""A plane's server: one authority over one store, its schedulers and controllers, and the HTTP server that others reach it by.

Every part talks to the authority through the client interface, so that each could run elsewhere. A server that does not lead
keeps its memory warm, answers reads, and passes what it is sent on to the leader. Started by `fairlead server` and by the local
platform.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace
from starlette.websockets import WebSocket

from fairlead.api.app import make_app
from fairlead.api.authz import Access
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.identity import Authenticator
from fairlead.api.socket import channel_route
from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.authority.service import PlaneService
from fairlead.client.channel import Channel
from fairlead.client.decisions import DecisionQuery, DecisionSource, ExplainedPage
from fairlead.client.leased import Leased
from fairlead.client.plane import Change, Plane
from fairlead.client.providing import Providing
from fairlead.client.remote import RemotePlane
from fairlead.client.reporting import Reporting
from fairlead.client.resources import ChangePage, ResourcePlane
from fairlead.compose.config import PlaneConfig, read_config
from fairlead.compose.controllers import Placed, controllers_of, tried_on
from fairlead.compose.forwarding import ForwardingPlane
from fairlead.compose.guards import LastUses, Resealing, joining_of, oidc_of, strongbox_of
from fairlead.compose.health import health_routes, loading, standing, writing
from fairlead.compose.log_slots import LogSource
from fairlead.compose.logs import log_route
from fairlead.compose.metrics import ServerMetrics, metrics_route
from fairlead.compose.outside import Here, Outside
from fairlead.compose.patrolling import LedgerPatrol, Patrolling, leftovers_of
from fairlead.compose.program import log_to_stderr, stop_on_signals
from fairlead.compose.seeding import SeedPutOff
from fairlead.controllers.narrator import Narrator
from fairlead.controllers.picture import Picture
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.controllers.slot_lease import SlotLease
from fairlead.decide.access import Identity
from fairlead.model.registry import GLOBAL
from fairlead.observe.patrol import Patrol
from fairlead.planning.planner import TrialPlanner
from fairlead.plugins import NO_PLUGINS, Loaded, load_plugins
from fairlead.ports import Clock, Ids, Random, Tasks, system_random
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from fairlead.security.directory import AccessDirectory
from fairlead.security.holdings import PlaneHoldings
from fairlead.serving.scraping import Scraper
from fairlead.store.contract import Store

log = logging.getLogger(__name__)

_AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # before a part that failed begins again


class Endless(Protocol):
    async def run(self) -> None: ...


class Part(Endless, Protocol):
    """Something that works while this server leads."""

    def stop(self) -> None: ...


class PlaneServer:
    def __init__(
        self, config: PlaneConfig, store: Store, clock: Clock, ids: Ids, random: Random, *, outside: Outside | None = None,
        timing: Timing | None = None, plugins: Loaded = NO_PLUGINS,
    ) -> None:  # fmt: skip
        faults = config.faults()
        if faults:
            raise ValueError("; ".join(faults))
        self.config = config
        self._store = store
        self._clock = clock
        self._ids = ids
        self._random = random
        self._plugins = plugins
        self._stop = asyncio.Event()
        self._outside = outside or Here(config)
        self.address = config.address or self._outside.address
        settings = Settings(
            plane=config.plane, region=config.region or GLOBAL, address=self.address, node_lease_s=config.node_lease_s,
            plugins=plugins.registry,
        )  # fmt: skip
        timing = timing or Timing(lease_ttl_s=config.lease_ttl_s, renew_s=config.lease_ttl_s * 0.3, poll_s=0.1)
        history = self._outside.history(store, clock)
        self._strongbox = strongbox_of(config, ids)
        timing = replace(timing, journal=replace(timing.journal, anchor_key=self._strongbox.anchor_key))
        self.authority = Authority(
            store, clock, ids, settings, name=config.name, timing=timing, history=history, door=self._strongbox.seal,
            kept=self._outside.seen(),
        )  # fmt: skip
        self.decisions = self._outside.decisions()
        self._dialer = self._outside.dialler()
        self.peers = {
            peer.region or GLOBAL: RemotePlane(
                peer.addresses, self._dialer.dial, clock, random, f"{config.name} to {peer.region}"
            )
            for peer in config.peers
        }
        self._forget_slot_lease()
        self.local = ForwardingPlane(self.authority, clock, self._dialer.dial, random, self.address)
        explains = self.decisions if isinstance(self.decisions, DecisionSource) else None
        self._service = PlaneService(self.authority, clock, explains)
        self.local.explains = explains
        self._directory = AccessDirectory(self.local, clock)
        self.authenticator = Authenticator(self._directory, region=config.region, oidc=oidc_of(config))
        self._metering = ServerMetrics(self, self._service, clock, self._outside, plugins)
        self._parts: list[Part] = []
        self.patrol = Patrol()
        self.ledger = LedgerPatrol(self.authority, clock)
        self._seeded = False

    def stop(self) -> None:
        self._stop.set()

    # --- the life of a server --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until stopped. Parts run while this server leads, and stop before it hands over."""
        http = self._outside.serving(self._metering.around(self._app()), self._serve)
        try:
            async with Tasks() as tasks:
                authority = tasks.start(self.authority.run(), "authority")
                for name, peer in self.peers.items():
                    tasks.start(self._keep(peer), f"peer {name}")
                tasks.start(self.local.run(), "leader")
                tasks.start(self._directory.run(), "access")
                tasks.start(self._metering.run(), "stalls")
                tasks.start(LastUses(self._directory, self.local, self._clock).run(), "last uses")
                while not self.authority.ready and not self._stop.is_set():
                    await self._clock.sleep(0.02)
                serving = tasks.start(http.serve(), "http")
                leading = tasks.start(self._while_leading(), "parts")
                log.info("%s of %s serves at %s", self.config.name, self.config.region or GLOBAL, self.address)
                await self._stop.wait()
                http.stop()
                leading.cancel()
                self.authority.stop()
                await authority
                await serving
                tasks.cancel()
        finally:
            self.decisions.close()
            await self._dialer.close()
            await self._store.close()

    async def _while_leading(self) -> None:
        while True:
            await self.authority.wait_leading()
            put_off = await self._seed()
            if put_off is not None:
                log.warning("%s: the seed is tried again later: %s", self.config.name, put_off)
            self._parts = self._new_parts()
            async with Tasks() as tasks:
                if put_off is not None:
                    tasks.start(self._seed_after(put_off), "seed")
                for part in self._parts:
                    tasks.start(self._keep(part), type(part).__name__)
                await self.authority.wait_not_leading()
                for part in self._parts:
                    part.stop()
                tasks.cancel()
            self._parts = []
            self._forget_slot_lease()
            self._service.hang_up()

    async def _seed(self) -> SeedPutOff | None:
        try:
            made = await self._outside.seed(self.local)
        except SeedPutOff as error:
            return error
        if made:
            log.info("%s: %d objects from the seed", self.config.name, made)
        self._seeded = True
        return None

    async def _seed_after(self, first: SeedPutOff) -> None:
        """Beside the parts, which do not wait for it: where a store is full, it is they who make room."""
        put_off: SeedPutOff | None = first
        while put_off is not None:
            await self._clock.sleep(put_off.retry_after_s)
            put_off = await self._seed()

    async def _keep(self, part: Endless) -> None:
        """Whatever one part raises ends nobody else: it is logged, and the part begins again, later each time."""
        for pause_s in itertools.chain(_AGAIN_S, itertools.repeat(_AGAIN_S[-1])):
            try:
                await part.run()
                break
            except Exception:
                log.exception("%s of %s failed and begins again", type(part).__name__, self.config.name)
            await self._clock.sleep(pause_s)

    def _new_parts(self) -> list[Part]:
        # Those that write here have the leader's lease, those that write elsewhere one of their own there.
        own, elsewhere = (RuntimeSettings(holder=self.config.name, of_term=here) for here in (True, False))
        plane, early = LocalPlane(self.authority, self._clock), LocalPlane(self.authority, self._clock, early=True)
        parts: list[Part] = [Resealing(plane, self._strongbox, self._clock)]
        pictures: dict[int, Picture] = {}  # by plane: everybody here looks at the same

        def picture_of(plane: Plane) -> Picture:
            return pictures.setdefault(id(plane), Picture(plane, self._clock))

        scraper = Scraper(plane, self._regions(), self._clock, self._outside.fetch) if self.config.plane == "global" else None
        parts += [scraper] if scraper is not None else []
        placed: list[Placed] = controllers_of(self.config, early, plane, self.peers, scraper, self._plugins.registry)
        placed.append((leftovers_of(self.config, self.ledger), early, None))
        for controller, writes, other in placed:
            shown = picture_of(other) if other is not None else None
            made = Runtime(
                controller, writes, self._clock, self._random, own if writes is early else elsewhere, other=other,
                picture=picture_of(writes), other_picture=shown,
            )  # fmt: skip
            parts.append(made)
        parts += pictures.values()
        parts += self._slot_lease(plane)
        narrator = Narrator(plane, self._clock, self._random, self.config.name, of=self.config.region or GLOBAL, of_term=True)
        provider = self._outside.provider(plane, self._clock)
        if provider is not None:
            parts.append(Providing(plane, self._clock, provider))
        if self.config.plane == "region":
            parts.append(Patrolling(plane, self._clock, self.patrol, self.ledger))
        parts += [*self._schedulers(early), narrator]
        here = [part for part in parts if isinstance(part, Leased) and part.terms.of_term]
        return [*parts, Reporting(plane, self._clock, here)]

    def _forget_slot_lease(self) -> None:
        """Whoever leads next, in whatever history, must have it anew."""
        if self.config.plane == "region" and GLOBAL in self.peers:
            self.authority.slots_until = 0.0

    def _slot_lease(self, plane: LocalPlane) -> list[Part]:
        """Of a region below a global plane: what is exclusive everywhere runs there as long as this says (P11)."""
        config, authority, above = self.config, self.authority, self.peers.get(GLOBAL)
        if config.plane != "region" or above is None:
            return []

        def lasts(until: float) -> None:
            authority.slots_until = until

        return [SlotLease(config.region, plane, above, self._clock, config.name, config.slot_lease_s, lasts)]

    def _schedulers(self, plane: LocalPlane) -> list[Scheduler]:
        config = self.config
        if config.plane != "region":
            return []
        made = []
        for part in config.partitions():
            name = f"scheduler-{part.index}"
            settings = SchedulerSettings(name=name, region=config.region, partition=part, of_term=True)
            registry = self._plugins.registry
            made.append(Scheduler(plane, self._clock, self._random, settings, registry=registry, decisions=self.decisions))
        return made

    # --- HTTP ------------------------------------------------------------------------------------------------------------

    def _app(self) -> object:
        config, authority = self.config, self.authority

        def get(plural: str, tenant: str, name: str) -> Change | None:
            return authority.view().get(plural, tenant, name)

        holdings = PlaneHoldings(get, authority.bound_to) if config.plane == "region" else None
        access = self._access = Access(self._directory, config.plane, get, holdings, config.region, self._strongbox)
        authenticator = self.authenticator

        async def serve(channel: Channel, socket: WebSocket) -> None:
            await self._serve(channel, socket.state.identity)

        planes: dict[str, ResourcePlane] = {config.region or GLOBAL: self.local}
        if config.plane == "global":
            planes |= self._regions()
        own = OwnLogs(self.local, self._service)
        logs: dict[str, LogSource] = dict(self._regions()) if config.plane == "global" else {config.region: own}
        routes = [
            channel_route(serve, authenticator.admit),
            *health_routes(self),
            *joining_of(config, self.local, self._clock, authenticator.identify),
            log_route(logs, authenticator, access, self._clock, self._random),
            metrics_route(self._metering, authenticator, access),
        ]
        return make_app(
            FrontDoor(planes, self._clock), authenticator, access, clock=self._clock, ids=self._ids, random=self._random,
            routes=routes, secrets=self._strongbox, planner=TrialPlanner(tried_on, self._clock, self._plugins.registry),
        )  # fmt: skip

    async def _serve(self, channel: Channel, who: Identity) -> None:
        """A component or agent whose identity is proven."""
        await self._service.serve(channel, self._access.gate(who))

    def _regions(self) -> dict[str, RemotePlane]:
        return {name: peer for name, peer in self.peers.items() if name != GLOBAL}

    @property
    def _follows(self) -> bool:
        """Another one leads. This one does not from the moment its first batch says that it does, before it is asked anything."""
        return not self.authority.leading and self.authority.leader_address != self.address

    def readiness(self) -> Sequence[tuple[str, bool, str]]:
        """(check, passed, detail), for /readyz?verbose."""
        view, silent_s = self.authority.view(), self.authority.store_silent_s
        words = f"revision {view.revision}" + (f", and nothing heard for {silent_s:.0f} s" if silent_s is not None else "")
        checks = [
            ("store", silent_s is None, words),
            writing(self.authority.unwritable_s, self._clock.wall()),
            ("leader", bool(self.authority.leader_address), "leads" if self.authority.leading else self.authority.leader_address),
            ("access", self._directory.ready, "roles and tokens are known" if self._directory.ready else "not read yet"),
            ("seed", self._seeded or self._follows, "what the plane is born with"),
            loading(self._plugins),
        ]
        checks += [
            (f"peer-{name}", peer.connected, "connected" if peer.connected else "not reached")
            for name, peer in self.peers.items()
        ]
        return [*checks, *standing(self.components)]

    @property
    def components(self) -> list[Leased]:
        """What works here under a lease; nothing, while another server leads."""
        return [part for part in self._parts if isinstance(part, Leased)]


class OwnLogs:
    """A region's own server brings logs from the agents, which are connected to whoever leads."""

    def __init__(self, plane: ForwardingPlane, service: PlaneService) -> None:
        self._plane = plane
        self._service = service

    @property
    def connected(self) -> bool:
        return self._plane.connected

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None:
        return await self._plane.get(plural, tenant, name, revision)

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage:
        return await self._plane.page(plural, tenant, after=after, limit=limit, revision=revision)

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]:
        leader = self._plane.leader
        if leader is not None:
            return await leader.logs(tenant, name, stream, offset, limit)
        found = await self._service.output(tenant, name, stream, offset, limit)
        return found[0], found[1], found[2]

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        return await self._plane.decisions(query)


class OpenStore(Protocol):
    def __call__(self, url: str, *, create: bool = True) -> Store: ...


async def serve(path: Path, open_store: OpenStore, clock: Clock, ids: Ids, seal_keys: str = "") -> None:
    """From its configuration file to its end. `seal_keys` says where the keys for secrets are; empty: where the file says."""
    config: PlaneConfig = read_config(path, PlaneConfig)
    log_to_stderr(program="server", plane=config.plane, region=config.region)
    if seal_keys:
        config = replace(config, seal_keys=seal_keys)
    plugins = load_plugins()
    for fault in plugins.faults:
        log.error("left out: %s", fault)
    for name, package in plugins.taken:
        log.info("policies may name %s, of %s", name, package)
    server = PlaneServer(config, open_store(config.store), clock, ids, system_random(), plugins=plugins)
    stop_on_signals(server.stop)
    await server.run()
