"""/metrics: what a server and its parts count, gathered when it is asked for and never before.

Owns which figure goes under which name; the names are fairlead/observe/metrics.py's. Whoever asks needs the right to
`get metrics` (role metrics-reader), as everything else here needs one. Served by plane.py.
"""

from __future__ import annotations

import asyncio
import platform
import resource
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fairlead.api.access import Authenticate, Authorise, refuse_impersonation
from fairlead.api.app import refusal
from fairlead.api.failures import Failure
from fairlead.api.identity import Authenticator
from fairlead.api.meters import ApiMeters, Metered
from fairlead.api.watches import Watches
from fairlead.authority.authority import Authority
from fairlead.authority.figures import Figures
from fairlead.authority.service import PlaneService
from fairlead.client.decisions import DecisionSink
from fairlead.client.leased import Leased
from fairlead.compose.patrolling import LedgerPatrol
from fairlead.controllers.narrator import Narrator
from fairlead.controllers.runtime import Runtime
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.access_roles import METRICS as RIGHT
from fairlead.model.registry import GLOBAL
from fairlead.observe.exposition import CONTENT_TYPE, Page
from fairlead.observe.metrics import METRICS
from fairlead.observe.patrol import Patrol
from fairlead.observe.stalls import LoopStalls
from fairlead.observe.sums import CERTIFICATE_END
from fairlead.plugins import NO_PLUGINS, Loaded
from fairlead.ports import Clock
from fairlead.scheduler.scheduler import Scheduler
from fairlead.security.tls import Ends

_PAGE_BYTES: Final = resource.getpagesize()


class Linked(Protocol):
    @property
    def connected(self) -> bool: ...

    @property
    def calls_total(self) -> int: ...


@runtime_checkable
class Behind(Protocol):
    """A feed in this process, which knows what waits in it."""

    def oldest_untaken(self) -> int | None: ...


@runtime_checkable
class Certified(Protocol):
    """A machine whose certificates end."""

    def certificates(self) -> Mapping[str, Ends]: ...


class Server(Protocol):
    """What a server shows of itself."""

    @property
    def authority(self) -> Authority: ...

    @property
    def components(self) -> Sequence[Leased]: ...

    @property
    def peers(self) -> Mapping[str, Linked]: ...

    @property
    def decisions(self) -> DecisionSink: ...

    @property
    def patrol(self) -> Patrol: ...

    @property
    def ledger(self) -> LedgerPatrol: ...

    @property
    def authenticator(self) -> Authenticator: ...


class ServerMetrics:
    def __init__(
        self, server: Server, service: PlaneService, clock: Clock, outside: object = None, plugins: Loaded = NO_PLUGINS
    ) -> None:
        self._server = server
        self._service = service
        self._clock = clock
        self._outside = outside if isinstance(outside, Certified) else None
        self._plugins = {"loaded": len(plugins.taken), "failed": len(plugins.left_out)}
        self._api = ApiMeters()
        self._stalls = LoopStalls(clock)
        self._figures: Figures = server.authority.figures()
        self._asked = asyncio.Lock()  # one page at a time: several scrapers must not multiply the work
        self._watches: Watches | None = None
        self._version = _version()  # looked up among what is installed, in files: not for every scrape

    async def run(self) -> None:
        await self._stalls.run()

    def around(self, app: Any) -> Any:
        """The application with its requests counted. Before it serves the first one."""
        self._watches = app.state.watches
        app.add_middleware(Metered, meters=self._api, clock=self._clock)
        return app

    async def text(self) -> bytes:
        async with self._asked:
            return await asyncio.to_thread((await self.page()).render)

    async def page(self) -> Page:
        page = Page()
        page.announce(*METRICS)
        self._process(page)
        self._requests(page)
        await self._plane(page)
        for component in self._server.components:
            self._component(page, component)
            if isinstance(component, Runtime):
                self._controller(page, component)
            elif isinstance(component, Scheduler):
                self._scheduler(page, component)
            elif isinstance(component, Narrator):
                self._narrator(page, component)
        self._agents(page)
        return page

    # --- the process -----------------------------------------------------------------------------------------------------

    def _process(self, page: Page) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        page.put("build_info", 1, version=self._version, python=platform.python_version())
        page.put("process_cpu_seconds_total", used.ru_utime + used.ru_stime)
        page.put("process_resident_memory_bytes", _resident())
        page.histogram("loop_stall_seconds", self._stalls.late)
        for name, peer in self._server.peers.items():
            page.put("peer_connected", float(peer.connected), peer=name)
            if name == GLOBAL:  # whoever is a region's asks there by this one way; what goes to regions is people's, passed on
                page.put("coordination_calls_total", peer.calls_total, boundary=name)
        for state, count in self._plugins.items():
            page.put("plugins", count, state=state)
        page.put("channel_connections", self._service.connections)
        self._certificates(page)

    def _certificates(self, page: Page) -> None:
        shown = dict(self._outside.certificates()) if self._outside is not None else {}
        ends = {purpose: end.certificate_s for purpose, end in shown.items()}
        ends["authority"] = min((end.authority_s for end in shown.values() if end.authority_s), default=0.0)
        ends["agent"] = self._service.agents.least(self._clock.monotonic()).get(CERTIFICATE_END, 0.0)
        for purpose, end_s in ends.items():
            if end_s:
                page.put("certificate_expiry_seconds", end_s - self._clock.wall(), certificate=purpose)

    def _requests(self, page: Page) -> None:
        api = self._api
        for (verb, resource_name, code), count in list(api.requests.items()):
            page.put("api_requests_total", count, verb=verb, resource=resource_name, code=str(code))
        for (verb, resource_name), histogram in list(api.durations.items()):
            page.histogram("api_request_duration_seconds", histogram, verb=verb, resource=resource_name)
        for verb, count in api.in_flight.items():
            page.put("api_requests_in_flight", count, verb=verb)
        if self._watches is not None:
            page.put("api_watches", len(self._watches))
            page.put("api_watches_behind", self._watches.behind)

    # --- the plane -------------------------------------------------------------------------------------------------------

    async def _plane(self, page: Page) -> None:
        authority, figures = self._server.authority, self._figures
        self._commits(page)
        self._patrol(page)
        page.put("leader", float(authority.leading))
        if not authority.ready:
            return
        plane = authority.view().get("planes", "", "self")
        page.put("leader_epoch", plane.hot.spec.epoch if plane is not None else 0)
        for name, count in figures.objects().items():
            page.put("plane_objects", count, resource=name)
        for health, count in figures.nodes().items():
            page.put("nodes", count, health=health)
        for region, partial in figures.partial().items() if GLOBAL not in self._server.peers else ():
            page.put("region_partial", float(partial), region=region)
        page.put("plane_position", authority.position)
        ages = figures.observation_ages_s()
        if ages is not None:
            page.put("observation_age_seconds", ages[0], of="median")
            page.put("observation_age_seconds", ages[1], of="oldest")
        for finalizer, age_s in (await figures.finalizers_s()).items():
            page.put("finalizer_age_seconds", age_s, finalizer=finalizer)
        for kind, left_s in figures.overrides_s().items():
            page.put("override_expiry_seconds", left_s, kind=kind)
        for (kind, stage), count in figures.overrides().items():
            page.put("overrides", count, kind=kind, state=stage)
        page.put("break_glass_requests_total", self._server.authenticator.by_socket_total)
        for (problem, state), count in figures.repairs().items():
            page.put("repairs", count, problem=problem, state=state)
        page.put("workloads_below_min_serving", await figures.below_min_serving())
        for region, (ready, seconds) in figures.outlooks().items():
            page.put("recovery_ready", float(ready), lost_region=region)
            page.put("recovery_time_predicted_seconds", seconds, lost_region=region)
        for region, (held, wanted) in figures.rooms().items():
            page.put("recovery_budget_remaining_ratio", held / wanted if wanted else 1.0, region=region)
        page.put("recovering", figures.objects()["recoveryorders"])
        leases = figures.leases() if GLOBAL in self._server.peers else None
        if leases is not None:
            page.put("grant_lease_remaining_seconds", leases[0])
            page.put("provisional_placements", leases[1])
        await figures.look_for_leaks()
        page.put("reservation_leaked_total", figures.reservations_leaked_total)

    def _patrol(self, page: Page) -> None:
        patrol, ledger = self._server.patrol, self._server.ledger
        page.put("ledger_drifts_total", ledger.drifts_total)
        page.put("ledger_rebuilds_total", ledger.rebuilds_total)
        page.put("invariant_checks_total", patrol.looks_total)
        for invariant, count in patrol.breaches_total.items() if patrol.looks_total else ():  # not looked is not "none found"
            page.put("invariant_violations_total", count, invariant=invariant)

    def _commits(self, page: Page) -> None:
        meters = self._server.authority.meters
        page.put("commands_total", meters.commands_total)
        page.put("commits_total", meters.batches_total)
        page.put("commit_bytes_total", meters.bytes_total)
        page.histogram("commit_duration_seconds", meters.commits)
        page.put("commit_unknown_total", meters.commit_unknown_total)
        page.put("store_unavailable_total", meters.unavailable_total)
        page.put("idempotent_replays_total", meters.replays_total)
        for reason, count in meters.refusals.items():
            page.put("refusals_total", count, reason=reason)
            if reason.startswith("Stale"):
                page.put("stale_commits_rejected_total", count, reason=reason)
        fenced = meters.refusals.get("FencedOut", 0) + meters.refusals.get("NotLeader", 0) + meters.fenced_heartbeats_total
        page.put("fenced_writes_total", fenced)
        page.put("overloaded_total", meters.overloaded_total)
        page.put("deposed_total", meters.deposed_total)
        page.put("history_failures_total", self._server.authority.history_failures_total)
        page.put("materialised_rows_total", meters.materialised_rows_total)

    # --- components ------------------------------------------------------------------------------------------------------

    def _component(self, page: Page, component: Leased) -> None:
        name, health = component.terms.name, component.health()
        now_ms = self._server.authority.plane_ms()
        page.put("controller_stalled", float(bool(health.stalled)), controller=name)
        page.put("controller_lease_held", float(component.serving), controller=name)
        page.put("controller_lease_epoch", component.epoch, controller=name)
        if health.progress_ms:
            page.put("controller_last_progress_age_seconds", max(0, now_ms - health.progress_ms) / 1000, controller=name)
        page.put("workqueue_depth", health.queue_length, name=name)
        page.put("workqueue_oldest_seconds", health.oldest_s, name=name)
        feed = component.feed
        if isinstance(feed, Behind):
            oldest = feed.oldest_untaken()
            landed_ms = self._server.authority.meters.landed_ms(oldest) if oldest is not None else 0
            page.put("watch_lag_seconds", max(0, now_ms - landed_ms) / 1000 if landed_ms else 0.0, controller=name)

    @staticmethod
    def _controller(page: Page, runtime: Runtime) -> None:
        name, meters, queue = runtime.terms.name, runtime.meters, runtime.queue
        page.put("controller_restarts_total", meters.restarts_total, controller=name)
        page.put("controller_reconciles_total", meters.reconciles_total, controller=name)
        page.put("controller_commands_total", meters.commands_total, controller=name)
        page.put("controller_oscillation_total", meters.oscillations_total, controller=name)
        page.put("controller_pauses_total", meters.pauses_total, controller=name)
        page.put("controller_errors_total", meters.errors_total, controller=name)
        for reason, count in meters.refusals.items():
            page.put("controller_refusals_total", count, controller=name, reason=reason)
        page.put("resync_only_progress_total", meters.resync_only_progress_total, controller=name)
        page.put("workqueue_adds_total", queue.adds_total, name=name)
        page.put("workqueue_retries_total", queue.retries_total, name=name)
        page.histogram("workqueue_queue_duration_seconds", queue.waited, name=name)
        page.histogram("workqueue_work_duration_seconds", meters.worked, name=name)
        page.put("workqueue_longest_running_processor_seconds", runtime.busy_s(), name=name)
        if isinstance(runtime.controller, WorkloadController) and runtime.serving:
            for (workload_class, region), (wanted, actual) in runtime.controller.overflowing.shares.shares().items():
                page.put("region_skew_ratio", actual - wanted, region=region, workload_class=workload_class)
            for region, slots in runtime.controller.overflowing.moved.items():
                page.put("overflow_slots_total", slots, region=region)

    def _scheduler(self, page: Page, scheduler: Scheduler) -> None:
        name, meters = scheduler.terms.name, scheduler.meters
        refused = sum(meters.refusals.values())
        page.put("controller_restarts_total", meters.restarts_total, controller=name)
        page.put("schedule_attempts_total", meters.bound_total, scheduler=name, result="scheduled")
        page.put("schedule_attempts_total", meters.unschedulable_total, scheduler=name, result="unschedulable")
        page.put("schedule_attempts_total", refused + meters.unknown_total, scheduler=name, result="error")
        page.histogram("scheduling_attempt_duration_seconds", meters.attempts, scheduler=name)
        for point, histogram in (("FilterScore", meters.deciding), ("Permit", meters.permitting), ("Bind", meters.binding)):
            page.histogram("framework_extension_point_duration_seconds", histogram, scheduler=name, extension_point=point)
        page.put("scheduling_cycles_total", meters.cycles_total, scheduler=name)
        page.histogram("preemption_victims", meters.victims, scheduler=name)
        page.put("bind_commit_total", meters.bound_total, scheduler=name, result="committed")
        page.put("bind_commit_total", meters.unknown_total, scheduler=name, result="unknown")
        for reason, count in meters.refusals.items():
            page.put("bind_commit_total", count, scheduler=name, result=reason)
        self._queue(page, scheduler)

    def _queue(self, page: Page, scheduler: Scheduler) -> None:
        name, queue = scheduler.terms.name, scheduler.meters.queue
        if queue is not None:
            for state, slots in queue.pending.items():
                page.put("pending", slots, scheduler=name, queue=state)
            for reason, slots in queue.reasons.items():
                page.put("pending_replicas", slots, scheduler=name, reason=reason)
            page.put("queue_oldest_age_seconds", queue.oldest_age_ms / 1000, scheduler=name)
            page.put("pending_hopeless", queue.hopeless, scheduler=name)
            page.put("resync_only_progress_total", queue.resync_only_progress_total, controller=name)

    @staticmethod
    def _narrator(page: Page, narrator: Narrator) -> None:
        meters = narrator.meters
        page.put("controller_restarts_total", meters.restarts_total, controller=narrator.terms.name)
        page.put("events_written_total", meters.written_total)
        page.put("events_dropped_total", narrator.telling.dropped_total + meters.refused_total)
        for stage, histogram in meters.stages.items():
            page.histogram("replica_stage_duration_seconds", histogram, stage=stage)

    def _agents(self, page: Page) -> None:
        agents, now = self._service.agents, self._clock.monotonic()
        page.put("agents", agents.sources(now))
        for condition, count in agents.gauges(now).items():
            page.put("agent_instances", count, condition=condition)
        for name, total in agents.totals.items():
            page.put(f"agent_{name}_total", total)
        decisions = getattr(self._server.decisions, "meters", None)
        if decisions is not None:
            page.put("decisions_total", decisions.decisions_total)
            page.put("decisions_dropped_total", decisions.decisions_dropped_total)
            page.put("decision_write_errors_total", decisions.decision_write_errors_total)


def metrics_route(metrics: ServerMetrics, authenticate: Authenticate, authorise: Authorise) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            identity: Any = authenticate(request)
            if identity is None:
                return PlainTextResponse("no valid token and no client certificate\n", 401)
            refuse_impersonation(request, identity)
        except Failure as failure:
            return refusal(failure)
        if not authorise(identity, "get", RIGHT, "", "", ""):
            return PlainTextResponse(f"{identity.name} may not read metrics; the role metrics-reader may\n", 403)
        return Response(await metrics.text(), media_type=CONTENT_TYPE)

    return Route("/metrics", endpoint, methods=["GET"])


def _version() -> str:
    try:
        return metadata.version("fairlead")
    except metadata.PackageNotFoundError:
        return "unknown"


def _resident() -> int:
    """Of this process, in bytes; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
