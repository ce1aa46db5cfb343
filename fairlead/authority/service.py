"""A plane served to components over channels: the calls of fairlead/client/plane.py, answered frame by frame.

Every request runs by itself, so that a heartbeat never waits behind a bind; so many at once, then the channel is told to slow
down. Who is at the other end was proven before; the gate says what it may do and see. Called by the server for each connection.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol

from fairlead.authority.attending import Attending
from fairlead.authority.authority import Authority
from fairlead.authority.feeds import Feeds
from fairlead.authority.local import LocalPlane
from fairlead.client.channel import (
    ANSWER,
    REFUSAL,
    REQUESTS_MAX,
    UNFOLLOWS,
    VERSION,
    Channel,
    Closed,
    ReadRow,
    Row,
    decode,
    encode,
)
from fairlead.client.decisions import DecisionQuery, DecisionSource
from fairlead.client.outcomes import decode_commands, encode_outcomes
from fairlead.client.plane import Change, Expired
from fairlead.client.resources import Unreachable
from fairlead.model import codec
from fairlead.model.commands import Command, Refused
from fairlead.model.ids import incarnation_of
from fairlead.model.lifecycle import SlotState
from fairlead.model.registry import KINDS
from fairlead.observe.sums import AGENT_COUNTERS, AGENT_GAUGES, Sums
from fairlead.ports import Clock, Tasks

log = logging.getLogger(__name__)

PAGE: Final = 2_000
LIVES_MAX: Final = 3  # of a slot that is over: the agents asked for what it wrote


class Gate(Protocol):
    """What the other end of a channel may do. The real one is fairlead/api/authz.py's."""

    def may(self, command: Command) -> Refused | None: ...

    def sees(self, row: Change) -> bool: ...

    def shows(self, row: Change) -> bytes | None:
        """A secret as this end may see it: sealed, or open."""

    def lists(self, plural: str) -> bool:
        """False: not even part of that kind."""

    def speaks(self, nodes: Iterable[str]) -> Refused | None:
        """Whether it may say that these nodes live."""

    def hears(self) -> bool:
        """Whether it may know when every node was heard."""

    def asks(self, actor: str) -> bool:
        """Whether it may ask what became of this actor's commands."""


class Open:
    """For components of the server's own process, and tests."""

    def may(self, command: Command) -> Refused | None:
        return None

    def sees(self, row: Change) -> bool:
        return True

    def shows(self, row: Change) -> bytes | None:
        return row.raw

    def lists(self, plural: str) -> bool:
        return True

    def speaks(self, nodes: Iterable[str]) -> Refused | None:
        return None

    def hears(self) -> bool:
        return True

    def asks(self, actor: str) -> bool:
        return True


OPEN: Final = Open()


class PlaneService:
    def __init__(self, authority: Authority, clock: Clock, decisions: DecisionSource | None = None) -> None:
        self._authority = authority
        self._clock = clock
        self._local = LocalPlane(authority, clock)
        self._local.explains = decisions
        self.attending = Attending()
        self.connections = 0
        self.agents = Sums(AGENT_COUNTERS, AGENT_GAUGES)
        self._open: dict[int, Tasks] = {}

    async def ask(self, node: str, operation: str, *arguments: Any) -> Any:
        """Asks the agent of a node through the channel it keeps. Raises Unreachable; agents are never dialled."""
        return await self.attending.ask(node, operation, arguments)

    async def output(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> Any:
        """What a slot wrote, from the agent that runs it; else from those that ran it last, which keep it for a while: where that
        was is in the decisions. Raises FileNotFoundError or Unreachable."""
        rec = self._authority.view().get("bindings", tenant, name)
        nodes = [rec.hot.node] if rec is not None else []
        if rec is None or rec.hot.state is SlotState.BOUND:
            asked = DecisionQuery(tenant=tenant, slot=name, outcome=SlotState.BOUND.value, limit=LIVES_MAX)
            nodes += [one.attempt.node for one in (await self._local.decisions(asked)).items]
        for node in dict.fromkeys(nodes):
            with suppress(FileNotFoundError):
                return await self.ask(node, "logs", tenant, name, stream, offset, limit)
        raise FileNotFoundError(f"nothing of {tenant}/{name} is kept here")

    @staticmethod
    async def _until_closed(connection: _Connection, tasks: Tasks) -> None:
        try:
            await connection.run()
        except Closed:
            pass
        finally:
            tasks.cancel()  # its feeds and what is under way

    def hang_up(self) -> None:
        """This server leads no longer: everybody must look for who does. Agents above all, for nobody else hears them."""
        for tasks in list(self._open.values()):
            tasks.cancel()

    async def serve(self, channel: Channel, gate: Gate = OPEN) -> None:
        """Until the other end is gone."""
        self.connections += 1
        try:
            async with Tasks() as tasks:
                self._open[id(channel)] = tasks
                connection = _Connection(self, self._authority, self._local, self._clock, channel, gate, tasks)
                tasks.start(self._until_closed(connection, tasks), "channel")
        finally:
            self._open.pop(id(channel), None)
            self.connections -= 1
            self.attending.gone(channel)
            await channel.close()


class _Connection:
    def __init__(
        self, service: PlaneService, authority: Authority, local: LocalPlane, clock: Clock, channel: Channel, gate: Gate,
        tasks: Tasks,
    ) -> None:  # fmt: skip
        self._service = service
        self._authority = authority
        self._local = local
        self._clock = clock
        self._channel = channel
        self._gate = gate
        self._tasks = tasks
        self._under_way = 0
        self._feeds = Feeds(local, clock, tasks, self._send, self._known, self._rows)
        self._ops: dict[str, Callable[..., Awaitable[Any]]] = {
            "hello": self._hello,
            "now": self._now,
            "submit": self._submit,
            "list": self._list,
            "get": self._get,
            "heard": self._heard,
            "heartbeat": self._heartbeat,
            "bound_to": self._bound_to,
            "named": self._named,
            "page": self._page,
            "receipt": self._receipt,
            "revision_at": self._authority.past.revision_at,
            "time_at": self._authority.past.time_at,
            "steps": self._steps,
            "exported": self._exported,
            "decisions": self._decisions,
            "answered": self._answered,
            "figures": self._figures,
            "logs": self._logs,
        }

    async def run(self) -> None:
        while True:
            try:
                number, operation, *arguments = decode(await self._channel.receive())
            except (ValueError, TypeError) as error:
                await self._channel.send(encode([0, REFUSAL, "Invalid", str(error)]))
                return
            if await self._at_once(number, operation, arguments):
                continue
            if self._under_way >= REQUESTS_MAX:
                await self._channel.send(
                    encode([number, REFUSAL, "Overloaded", f"{REQUESTS_MAX} requests are under way already"])
                )
                continue
            self._under_way += 1
            self._tasks.start(self._answer(number, operation, arguments), f"{operation} {number}")

    async def _at_once(self, number: int, operation: str, arguments: list[Any]) -> bool:
        """What waits for nothing is none of the requests under way: feeds have a bound of their own, and of heartbeats there are
        more than of all others."""
        match operation:
            case "attend":
                self._attend(number, arguments)
            case "follow":
                await self._feeds.follow(number, arguments)
            case "unfollow":
                self._feeds.unfollow(arguments)
            case "heartbeat":
                await self._send(await self._frame(number, operation, arguments))
            case _:
                return False
        return True

    async def _answer(self, number: int, operation: str, arguments: list[Any]) -> None:
        try:
            frame = await self._frame(number, operation, arguments)
        finally:
            self._under_way -= 1
        await self._send(frame)

    async def _frame(self, number: int, operation: str, arguments: list[Any]) -> list[Any]:
        try:
            known = self._ops.get(operation)
            if known is None:
                return [number, REFUSAL, "Invalid", f"there is no operation {operation!r}"]
            return [number, ANSWER, await known(*arguments)]
        except Expired as error:
            return [number, REFUSAL, "Expired", str(error)]
        except (Unreachable, FileNotFoundError) as error:
            return [number, REFUSAL, "NotFound" if isinstance(error, FileNotFoundError) else "Unreachable", str(error)]
        except (ValueError, TypeError, KeyError) as error:
            return [number, REFUSAL, "Invalid", f"{operation}: {error}"]

    async def _send(self, frame: list[Any]) -> None:
        try:
            await self._channel.send(encode(frame))
        except Closed:
            self._tasks.cancel()

    # --- operations ------------------------------------------------------------------------------------------------------

    async def _hello(self, version: int = VERSION, name: str = "") -> dict[str, Any]:
        authority = self._authority
        fence = authority.fence
        self._feeds.can_end = version >= UNFOLLOWS
        return {
            "version": min(version, VERSION),
            "leading": authority.leading,
            "leader": authority.leader_address,
            "epoch": fence.epoch if fence is not None else 0,
            "revision": authority.view().revision,
            "plane_ms": authority.plane_ms(),
        }

    async def _now(self) -> list[int | None]:
        unwritable_s = self._authority.unwritable_s
        unwritable_ms = None if unwritable_s is None else int(unwritable_s * 1000)
        return [self._authority.view().revision, self._authority.plane_ms(), unwritable_ms]

    async def _submit(self, raw: list[bytes]) -> list[Any]:
        commands = decode_commands(raw)
        for command in commands:
            refused = self._gate.may(command)
            if refused is not None:
                return encode_outcomes([refused for _ in commands])
        return encode_outcomes(await self._authority.submit(commands))

    async def _list(self, plural: str, tenant: str = "", name: str = "", revision: int = 0) -> list[Any]:
        """A page: [revision, rows, next tenant, next name]; no next name, no more."""
        self._known(plural)
        page = await self._authority.view(revision).page(plural, after=(tenant, name), limit=PAGE)
        return [page.revision, self._rows(page.items), page.next_tenant, page.next_name]

    async def _get(self, plural: str, tenant: str, name: str, revision: int = 0) -> ReadRow | None:
        self._known(plural)
        rec = await self._local.get(plural, tenant, name, revision)  # from the archive where memory has forgotten it
        if rec is None or not self._gate.sees(rec):
            return None
        return ReadRow(
            rec.plural, rec.tenant, rec.name, rec.position, self._raw(rec), incarnation_of(revision or self._local.revision())
        )

    async def _heard(self, since_ms: int) -> list[tuple[str, int]]:
        return list(await self._local.heard(since_ms)) if self._gate.hears() else []

    async def _heartbeat(self, nodes: list[tuple[str, int]]) -> list[Any]:
        refused = self._gate.speaks([name for name, _ in nodes])
        heard = refused or self._authority.heartbeat([(name, session) for name, session in nodes])
        if isinstance(heard, Refused):
            return ["refused", heard.reason, heard.detail]
        return [
            "heard", heard.incarnation, heard.epoch, heard.unknown_nodes, heard.superseded_nodes, heard.global_valid_s,
            heard.grants, heard.lease_s, heard.longest_s,
        ]  # fmt: skip

    async def _bound_to(self, nodes: list[str]) -> list[Any]:
        refused = self._gate.speaks(nodes)
        if refused is not None:
            raise ValueError(refused.detail)
        if not self._authority.vouches:
            raise ValueError("only a leader says what is bound to a node")  # the node will believe it over all it knew before
        found = [rec for node in nodes for rec in self._authority.bound_to(node)]
        return [self._authority.view().revision, self._rows(found)]

    async def _named(self, plural: str, tenant: str, names: list[str]) -> list[Any]:
        self._known(plural)
        view = self._authority.view()
        found = [view.get(plural, tenant, name) for name in names]
        return [view.revision, self._rows([rec for rec in found if rec is not None])]

    async def _page(self, plural: str, tenant: str | None, after: list[str], limit: int, revision: int) -> list[Any]:
        self._known(plural)
        page = await self._local.page(plural, tenant, after=(after[0], after[1]), limit=min(limit, PAGE), revision=revision)
        return [page.revision, self._rows(page.items), page.next_tenant, page.next_name]

    async def _receipt(self, actor: str, key: str) -> Any:
        if not self._gate.asks(actor):
            raise ValueError(f"what {actor} sent is not this caller's to ask about")
        found = self._authority.receipt(actor, key)
        return None if found is None else encode_outcomes([found])[0]

    async def _steps(self, tenant: str, workload: str, since_ms: int) -> list[Any]:
        self._known("bindings")
        if not self._gate.hears():  # part of the bindings is not enough: these are anybody's
            raise ValueError("the steps of workloads are not for this caller")
        return [[*step] for step in await self._authority.telling.steps(tenant, workload, since_ms)]

    async def _exported(self, since_ms: int, token: str, offset: int) -> Any:
        for plural in KINDS:  # it is all in there
            self._known(plural)
        return await self._authority.telling.exported(since_ms, token, offset)

    async def _decisions(self, asked: dict[str, Any]) -> Any:
        self._known("decisions")
        return await self._local.decisions(codec.convert(asked, DecisionQuery))

    # --- agents that are asked ---------------------------------------------------------------------------------------

    def _attend(self, number: int, arguments: list[Any]) -> None:
        nodes = [str(node) for node in arguments[0]] if arguments else []
        if self._gate.speaks(nodes) is None:
            self._service.attending.come(nodes, self._channel, number)

    async def _answered(self, question: int, good: bool, result: Any) -> None:
        self._service.attending.answered(self._channel, question, good, result)

    async def _figures(self, figures: dict[str, Any]) -> None:
        """What an agent counts of itself. Soft; shown as sums only."""
        if self._gate.speaks(()) is None:
            self._service.agents.tell(str(id(self._channel)), self._clock.monotonic(), figures)

    async def _logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> Any:
        rec = self._authority.view().get("bindings", tenant, name)
        if not (self._gate.sees(rec) if rec is not None else self._gate.hears()):
            raise ValueError(f"no slot {tenant}/{name} is bound here")
        return await self._service.output(tenant, name, stream, offset, limit)

    # --- what may be seen ------------------------------------------------------------------------------------------------

    def _known(self, plural: str) -> None:
        if plural not in KINDS or not self._gate.lists(plural):
            raise ValueError(f"there is no kind {plural!r} for this caller")

    def _rows(self, recs: Iterable[Change]) -> list[Row]:
        return [self._row(rec) for rec in recs if self._gate.sees(rec)]

    def _row(self, rec: Change) -> Row:
        return Row(rec.plural, rec.tenant, rec.name, rec.position, self._raw(rec))

    def _raw(self, rec: Change) -> bytes | None:
        return self._gate.shows(rec) if rec.plural == "secrets" else rec.raw
