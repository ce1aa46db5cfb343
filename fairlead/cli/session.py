"""What every command that asks a server shares: its connection flags, the client they stand for, and how an error ends the run.

Owns the way from a client's error to an exit code and a hint. The client and its HTTP library are imported when a command runs,
never when it is listed. Called by all verbs on objects.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from fairlead.cli.complete import context_names, namespaces, regions
from fairlead.cli.frame import CONFLICT, DENIED, ERROR, NOT_FOUND, STALE, TIMED_OUT, UNKNOWN, Told, World

if TYPE_CHECKING:
    from fairlead.client.contexts import Context
    from fairlead.client.rest import RestClient
    from fairlead.client.rest_errors import ApiError
    from fairlead.client.rest_shapes import Resource

F = TypeVar("F", bound=Callable[..., Any])
REQUEST_S = 30.0
DURATION_S_MAX = 100 * 365 * 86_400  # a hundred years: what is longer is a slip, and no calendar has it


class Duration(click.ParamType):  # type: ignore[type-arg]
    """`90s`, `5m`, `2h`, `1h30m`, or a number of seconds. `some`: nothing and less than nothing are refused."""

    name = "duration"
    _PARTS = re.compile(r"(-)?(?=\d)(?:(\d{1,12})h)?(?:(\d{1,12})m)?(?:(\d{1,12}(?:\.\d{1,12})?)s?)?")

    def __init__(self, *, some: bool = False) -> None:
        self._some = some

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        amount = self.found(value)
        if amount is None:
            self.fail(f"{value!r} is not a duration; write 90s, 5m or 2h", param, ctx)
        if abs(amount) > DURATION_S_MAX:
            self.fail(f"{value!r} is more than a hundred years", param, ctx)
        if self._some and amount <= 0:
            self.fail(f"{value!r} is no time at all; write 90s, 5m or 2h", param, ctx)
        return amount

    def found(self, value: str) -> float | None:
        found = self._PARTS.fullmatch(value) if value else None
        if found is None:
            return None
        minus, hours, minutes, seconds = found.groups()
        amount = int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)
        return -amount if minus else amount


DURATION = Duration()
SOME_TIME = Duration(some=True)


class Session(NamedTuple):
    """One run against one server."""

    world: World
    client: RestClient
    namespace: str
    region: str
    wait_s: float  # how long a command that waits may do so; negative: for ever
    said_tenant: str = ""  # what -n says itself, not the context

    def moment(self, at: str) -> str:
        """What --at names: a revision or a time as they are, a duration such as 5m as so long ago."""
        ago = DURATION.found(at) if not at.isdecimal() else None
        if ago is not None and not 0 <= ago <= DURATION_S_MAX:
            raise Told(f"--at {at}: nothing is known of then", hint="write how long ago, such as 5m or 2h, a revision or a time")
        return at if ago is None else datetime.fromtimestamp(self.client.clock.wall() - ago, UTC).isoformat()

    def namespace_of(self, resource: Resource, everywhere: bool = False) -> str:
        return self.namespace if resource.namespaced and not everywhere else ""


def server_options(timeout_s: float = REQUEST_S, *, waits: str = "") -> Callable[[F], F]:
    """The connection flags. --timeout bounds a request; in a command that waits (`waits` says for what), it bounds the wait."""
    bounds = "wait_s" if waits else "timeout"
    options = [
        click.option("--context", "context_name", metavar="NAME", shell_complete=context_names,
                     help="Use this context of the config file."),
        click.option("--server", metavar="URL", help="Ask this server instead of the context's."),
        click.option("--socket", "local_socket", type=click.Path(dir_okay=False), metavar="PATH",
                     help="Ask a server of this machine by its local socket: break-glass, or as $FAIRLEAD_TOKEN says."),
        click.option("-n", "--namespace", "--tenant", metavar="TENANT", shell_complete=namespaces,
                     help="The tenant; a tenant is a namespace."),
        click.option("--region", metavar="REGION", shell_complete=regions, help="Ask, or write to, this region only."),
        click.option("--timeout", bounds, type=DURATION if waits else SOME_TIME, default=timeout_s,
                     show_default=f"{timeout_s:g}s", metavar="DURATION",
                     help=waits or "How long the server may take to answer."),
    ]  # fmt: skip

    def decorate(work: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options), work)

    return decorate


def on_server(
    work: Callable[..., Awaitable[int]], needs_none: Callable[[dict[str, Any]], bool] = lambda parameters: False
) -> Callable[..., int]:
    """A command that is a coroutine with a Session as its first argument. To stand directly above the function. `needs_none`:
    with these parameters it asks no server, so that none has to be known."""

    @click.pass_obj
    @functools.wraps(work)
    def call(world: World, /, context_name: str | None, server: str | None, local_socket: str | None, namespace: str | None,
             region: str | None, timeout: float = REQUEST_S, wait_s: float = 0.0, **parameters: Any) -> int:  # fmt: skip
        if local_socket:
            server = _by_socket(local_socket, context_name, server)
        chosen = chosen_context(context_name, server, alone=needs_none(parameters))
        where = (namespace or chosen.namespace or "default", region or chosen.region)
        code: int = world.run(_within(world, chosen, where, timeout, (wait_s, namespace or ""), work, parameters))
        return code

    return call


def _by_socket(path: str, context_name: str | None, server: str | None) -> str:
    from fairlead.client.local import address_of

    if context_name or server:
        raise Told("--socket says which server is asked, and as whom: without --context and --server")
    return address_of(path)


def alone_if_dry(work: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """`on_server` for what --dry-run=client judges by itself."""
    return on_server(work, lambda parameters: parameters.get("dry_run") == "client")


def chosen_context(name: str | None, server: str | None, *, alone: bool = False) -> Context:
    from fairlead.client import contexts

    try:
        config = contexts.load()
        if server and not name:
            try:
                base = config.context()
            except contexts.NoContext:
                base = contexts.Context(name="(flags)", server=server)
        elif alone and not name:
            try:
                base = config.context()
            except contexts.NoContext:
                base = contexts.Context(name="(none)", server="https://localhost")
        else:
            base = config.context(name or "")
    except contexts.BadConfig as error:
        raise told_of(error) from error
    if not server:
        return base
    import msgspec

    if server != base.server:  # who one is belongs to the server one is known at: never show another one a token
        base = msgspec.structs.replace(base, token="", token_file="", client_certificate="", client_key="")
    return msgspec.structs.replace(base, server=server)


async def _within(
    world: World, chosen: Context, where: tuple[str, str], timeout_s: float, rest: tuple[float, str],
    work: Callable[..., Awaitable[int]], parameters: dict[str, Any],
) -> int:  # fmt: skip
    try:
        async with client_of(world, chosen, max(timeout_s, 0.001)) as client:
            return await work(Session(world, client, *where, *rest), **parameters)
    except Exception as error:
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):  # what matters is what went wrong, not that it did so in a task group
            first = first.exceptions[0]
        if not isinstance(first, Exception):
            raise
        raise told_of(first) from error


def client_of(world: World, chosen: Context, timeout_s: float) -> RestClient:
    from fairlead.client import contexts
    from fairlead.client.rest import RestClient
    from fairlead.client.rest_shapes import Link
    from fairlead.ports import system_random

    base = contexts.place().parent
    link = Link(chosen.server, contexts.tls_of(chosen, base), contexts.token_of(chosen, base), "fairlead/0.1")
    return RestClient(
        link, clock=world.clock(), ids=world.ids(), jitter=system_random().random, timeout_s=timeout_s, warn=_Warnings()
    )


class _Warnings:
    """Says each of the server's warnings once, on stderr."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            click.echo(f"warning: {text}", err=True)


# --- how an error ends the run


class WaitTimedOut(Exception):
    """What was waited for did not happen in time."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def told_of(error: Exception) -> Exception:
    """The same error with a message, a hint and an exit code; an error that is nobody's business here as it is."""
    from fairlead.client import contexts, rest_errors

    match error:
        case rest_errors.ApiError():
            return Told(_message(error), hint=_hint(error), code=_code(error))
        case rest_errors.OutcomeUnknown():
            click.echo(f"receipt/{error.key}")
            hint = f"ask for it with 'fairlead receipt {error.key}', or send the same again with --idempotency-key {error.key}"
            return Told(str(error), hint=hint, code=UNKNOWN)
        case contexts.NoContext():
            return Told(str(error), hint=_near_context(error), code=ERROR)
        case rest_errors.Unreachable() | contexts.BadConfig():
            return Told(str(error), hint=error.hint, code=ERROR)
        case WaitTimedOut():
            return Told(str(error), hint=error.hint, code=TIMED_OUT)
        case ValueError() if type(error).__name__ in ("BadPath", "BadSelector"):
            return Told(str(error), code=ERROR)
    return error


def _message(error: ApiError) -> str:
    fields = [f"{cause.field}: {cause.message}" for cause in error.causes if cause.field]
    return "\n  ".join([error.message, *(field for field in fields if field not in error.message)])


def _code(error: ApiError) -> int:
    from fairlead.client import rest_errors

    match error:
        case rest_errors.NotFound():
            return NOT_FOUND
        case rest_errors.TooStale():
            return STALE
        case rest_errors.Conflict():
            return CONFLICT
        case rest_errors.Denied():
            return DENIED
    return ERROR


def _hint(error: ApiError) -> str:
    if error.in_doubt_key:
        return f"an earlier attempt had no answer and may still be carried out: 'fairlead receipt {error.in_doubt_key}' tells"
    reasons = {error.reason, *(cause.reason for cause in error.causes)}
    if "FieldManagerConflict" in reasons:
        return "other managers own these fields: leave them out, or take them over with --force-conflicts"
    if "FencedOut" in reasons:
        return "somebody else acts in that role now: stop, and acquire the lease again"
    if "AlreadyExists" in reasons:
        return "change it with 'fairlead apply', or choose another name"
    match error.code:
        case 401:
            return "the token or certificate is missing, expired or unknown: see 'fairlead config view'"
        case 403:
            return "ask what you may do with 'fairlead auth can-i', or use another --context"
        case 404:
            return "check the name, -n TENANT and --context"
        case 409 if reasons <= {"Conflict"}:  # any other refusal says in its message what stands in the way
            return "read it again and repeat the change on what is there now"
        case 410:
            return "that revision is no longer kept: ask without --at, or list again"
        case 503 if "RegionUnreachable" in reasons or "cannot be reached" in error.message:
            return "the server is well, a region behind it is away: see 'fairlead get regions', and repeat this when it is back"
        case 429 | 503:
            return "the server is busy or without a leader: try again shortly"
    return ""


def _near_context(error: Any) -> str:
    import difflib

    wanted = re.search(r"'([^']*)'", str(error))
    near = difflib.get_close_matches(wanted[1], error.known, n=1, cutoff=0.5) if wanted else []
    return f"did you mean {near[0]!r}? {error.hint}" if near else str(error.hint)


def is_terminal() -> bool:
    """Both ends: a question needs somebody who reads it and somebody who answers."""
    return sys.stdin.isatty() and sys.stderr.isatty()
