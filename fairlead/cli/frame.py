"""The frame of the command line: the group of all commands, what they are handed, how a run ends and with which exit code.

Commands live in modules of their own that are imported when they are called, so that `fairlead --help` costs next to nothing.
No command prints a stack trace: a fault is one line and a hint. Called by main.py with a World; picks no implementation itself.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import click

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead.cli.chaos import Chaos
    from fairlead.cli.drill import Drills
    from fairlead.cli.sim import Simulator
    from fairlead.observe.audit import History
    from fairlead.observe.evidence import Evidence
    from fairlead.plugins import Loaded
    from fairlead.ports import Clock, Ids
    from fairlead.store.contract import Store
    from fairlead.store.export import Plane

# The exit codes that docs/reference/cli.md lists. Code 2 belongs to `plan` and `diff`, so a wrong usage is a plain error here.
OK, ERROR, CHANGES, NOT_FOUND, CONFLICT, DENIED, TIMED_OUT, UNKNOWN, CHECK_FAILED, STALE = range(10)
INTERRUPTED = 130

DEBUG = "FAIRLEAD_DEBUG"
WRITES = "fairlead.writes"  # in a context's meta: what runs there changes objects


class OpenStore(Protocol):
    def __call__(self, url: str, *, create: bool = True) -> Store: ...


class Programs(Protocol):
    """The long-running programs. Each runs until it is told to stop (SIGTERM, SIGINT)."""

    def server(self, config: str, seal_keys: str = "") -> Coroutine[Any, Any, None]: ...

    def agent(self, config: str) -> Coroutine[Any, Any, None]: ...

    def join(self, state: str, token: str, servers: Sequence[str], authorities: str) -> Coroutine[Any, Any, str]:
        """Where the agent's configuration is from then on."""

    def endpoints(self, config: str) -> Coroutine[Any, Any, None]: ...

    def up(
        self, state: str, stores: dict[str, str], node_lease_s: float, detach: bool, say: Callable[[str], None]
    ) -> Coroutine[Any, Any, bool]:
        """False: it was told to stop before it was ready, and nothing of it runs."""

    def down(self, state: str, say: Callable[[str], None]) -> Coroutine[Any, Any, bool]: ...

    def chaos(self, state: str) -> Chaos: ...

    def drills(self) -> Drills: ...

    def history(self, config: str) -> Plane:
        """What the server of that configuration is and where its history lies. ValueError: it is none."""


class World(NamedTuple):
    """What the composition root hands to the commands."""

    open_store: OpenStore
    shown: Callable[[str], str]  # a URL without its password
    how_to_make_room: Callable[[str], str]
    archived_through: Callable[[str, int], int]
    clock: Callable[[], Clock]
    ids: Callable[[], Ids]
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    run_plane: Callable[[Coroutine[Any, Any, Any]], Any]
    programs: Programs | None = None
    simulator: Simulator | None = None
    archived: Callable[[str], History] | None = None  # an archive's batches, from the beginning
    decided_again: Callable[[Path, str, Loaded | None], dict[str, Any]] | None = None  # an exported history, and a fork of it
    plugins: Callable[[], Loaded] | None = None  # what is installed for policies to name; None: nothing
    evidence: Callable[[], Evidence] | None = None  # where this command line leaves what `fairlead review` looks at


class Told(click.ClickException):
    """An end that the user can do something about: what happened, what to do, and the exit code that scripts test."""

    def __init__(self, message: str, *, hint: str = "", code: int = ERROR) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


class Unheard(Exception):
    """Whoever read our output has gone (`| head`). No OSError: click ends the run at those, with an exit code of its own."""

    def __init__(self, code: int) -> None:
        super().__init__("nobody reads the output")
        self.code = code


@contextmanager
def _heard(meta: dict[str, Any]) -> Iterator[None]:
    """Who only looks has seen enough. What changes objects may be at the first of many, and says that it did not end well."""
    try:
        yield
    except BrokenPipeError as error:
        if not _is_unheard():
            raise ConnectionError("a connection was closed by its other end") from error
        raise Unheard(ERROR if meta.get(WRITES) else OK) from error


def _is_unheard() -> bool:
    """Whether it is our own output that nobody is at the other end of."""
    import select  # Here, not above: hardly any run needs it.

    looked = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # text kept in memory has no descriptor
            looked.register(stream.fileno(), 0)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in looked.poll(0))


class LazyGroup(click.Group):
    """Knows each command's module (MODULE, or MODULE:NAME where it holds several) and one line of help; imports the module only
    when the command is called."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _heard({}):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _heard(ctx.meta):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._lazy, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short(ctx, name)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _short(self, ctx: click.Context, name: str) -> str:
        if name in self._lazy:
            return self._lazy[name][1]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=90) if command else ""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise Told(f"there is no command '{ctx.command_path} {args[0]}'", hint=self._near(ctx, args[0]))
        return super().resolve_command(ctx, args)

    def _near(self, ctx: click.Context, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
        said = f"did you mean '{ctx.command_path} {near[0]}'? " if near else ""
        return f"{said}See '{ctx.command_path} --help'"


@click.group(
    cls=LazyGroup,
    lazy={
        "agent": ("fairlead.cli.programs:agent", "Run a node's agent"),
        "api-resources": ("fairlead.cli.explain:api_resources", "List the kinds the server knows"),
        "apply": ("fairlead.cli.apply:apply", "Make objects as files say, creating or changing them"),
        "audit": ("fairlead.cli.audit", "Check the history of a plane"),
        "auth": ("fairlead.cli.auth", "Ask what you may do and who you are; create, list, revoke and rotate tokens"),
        "bench": ("fairlead.cli.bench", "Run a benchmark of the source checkout"),
        "budget": ("fairlead.cli.budget", "See what tenants may use, and what is held for recovery"),
        "capacity": ("fairlead.cli.capacity", "Show headroom, fragmentation and cost by region, tenant and class"),
        "certs": ("fairlead.cli.certs", "Make a local certificate authority, issue certificates, rotate and show them"),
        "chaos": ("fairlead.cli.chaos", "Break the local platform on purpose, and heal it"),
        "completion": ("fairlead.cli.completion", "Print the completion script of a shell"),
        "config": ("fairlead.cli.config", "Choose and write contexts: which server, as whom, which tenant"),
        "cordon": ("fairlead.cli.drain:cordon", "Keep new work away from nodes"),
        "create": ("fairlead.cli.apply:create", "Create objects from files"),
        "decisions": ("fairlead.cli.decisions", "Show what schedulers decided about a workload, a slot or a node"),
        "delete": ("fairlead.cli.delete", "Delete objects, after saying what goes with them"),
        "describe": ("fairlead.cli.describe", "Tell all about objects, with their conditions and events"),
        "diff": ("fairlead.cli.apply:diff", "Show what applying files would change"),
        "drain": ("fairlead.cli.drain:drain", "Move everything off nodes, within budgets and a deadline"),
        "drill": ("fairlead.cli.drill", "Practise a failure on the local platform and check what was promised"),
        "down": ("fairlead.cli.programs:down", "Stop the local platform"),
        "edit": ("fairlead.cli.edit:edit", "Change an object in your editor"),
        "endpoints": ("fairlead.cli.programs:endpoints", "Run the directory of endpoints: DNS and documents"),
        "events": ("fairlead.cli.events", "Show what happened to objects"),
        "export": ("fairlead.cli.history:export", "Write a plane's history into one file"),
        "explain": ("fairlead.cli.explain:explain", "Say what a kind and its fields are"),
        "get": ("fairlead.cli.get:get", "Show objects"),
        "incident": ("fairlead.cli.incident", "Open an incident, see what is out of order, close it when all is cleaned up"),
        "logs": ("fairlead.cli.logs", "Show what the processes of a workload wrote"),
        "override": ("fairlead.cli.override", "Order exceptions that end by themselves; approve, extend or revoke them"),
        "patch": ("fairlead.cli.edit:patch", "Change fields of an object"),
        "policy": ("fairlead.cli.policy", "Look at policy revisions, try one on some, promote it, or go back"),
        "probe": ("fairlead.cli.probe", "Ask a workload's endpoints from outside and tell what a client sees"),
        "receipt": ("fairlead.cli.receipt", "Say what a write came to"),
        "replay": ("fairlead.cli.replay", "Judge an exported history again and compare; or fork it under another policy"),
        "review": ("fairlead.cli.review", "Say which claims have evidence of this build, and what to run for the others"),
        "rollout": ("fairlead.cli.rollout", "Follow, pause, resume or undo a rollout"),
        "scale": ("fairlead.cli.edit:scale", "Change how many replicas a workload has"),
        "server": ("fairlead.cli.programs:server", "Run a plane's server"),
        "sim": ("fairlead.cli.sim", "Run whole platforms through simulated faults and check every promise"),
        "store": ("fairlead.cli.store", "Look at a plane's store, back it up, restore, compact or verify it"),
        "timeline": ("fairlead.cli.history:timeline", "Show every step of a workload, who made it and on what evidence"),
        "top": ("fairlead.cli.top", "Show how full nodes are and what workloads have asked for"),
        "uncordon": ("fairlead.cli.drain:uncordon", "Let new work onto nodes again"),
        "up": ("fairlead.cli.programs:up", "Run the local platform: a global plane, three regions, agents, sample work"),
        "version": ("fairlead.cli.version", "Say which Fairlead this is"),
        "why": ("fairlead.cli.why", "Say what a workload waits for, and on whom"),
        "plan": ("fairlead.cli.plan", "Say what a change, or the loss of a region, would do"),
        "wait": ("fairlead.cli.wait", "Wait until objects have a condition, a value, or are gone"),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Data goes to stdout, everything else to stderr. --json prints one object. NO_COLOR is honoured.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda *given: _put_version(*given),
              help="Say which Fairlead this is; 'fairlead version' says more.")  # fmt: skip
def fairlead() -> None:
    """Fairlead, a multi-region scheduler control plane."""


def _put_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from fairlead.cli.version import installed  # Here, not above: nobody else needs what it reads.

    click.echo(f"fairlead {installed()}")
    ctx.exit()


def start(world: World) -> NoReturn:
    sys.exit(answer(world, sys.argv[1:]))


def answer(world: World, arguments: Sequence[str]) -> int:
    """Runs one command line; the exit code. Nothing escapes, so nothing is ever told as a stack trace."""
    code = OK
    try:
        given = fairlead.main(args=list(arguments), prog_name="fairlead", standalone_mode=False, obj=world)
        code = given if isinstance(given, int) else OK
        sys.stdout.flush()
        return code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else str(error))
        return OK
    except (click.Abort, KeyboardInterrupt):
        tell("interrupted")
        return INTERRUPTED
    except (Unheard, BrokenPipeError) as error:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, Unheard) and error.code:
            tell(
                "nobody reads the output, so it stopped", "look at how far it came; do not pipe it into a command that ends early"
            )
        return error.code if isinstance(error, Unheard) else code
    except Exception as error:
        if DEBUG in os.environ:
            raise
        return _ended(error)


def _ended(error: Exception) -> int:
    while isinstance(error, ExceptionGroup):  # what matters is what went wrong, not that it did so in a task group
        error = error.exceptions[0]
    match error:
        case Told():
            tell(error.format_message(), error.hint)
            return error.code
        case click.UsageError():
            where = error.ctx.command_path if error.ctx else "fairlead"
            tell(error.format_message(), f"see '{where} --help'")
            return NOT_FOUND if _names_no_file(error) else ERROR
        case click.ClickException():
            tell(error.format_message())
            return error.exit_code
        case OSError():
            tell(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
            return NOT_FOUND if isinstance(error, FileNotFoundError) else ERROR
        case _:
            from fairlead.security.files import UnsafeFile  # Here, not above: most runs end well and need neither.
            from fairlead.store.contract import StoreError

            if isinstance(error, StoreError | UnsafeFile):
                tell(str(error))
                return ERROR
            detail = str(error).partition("\n")[0]
            tell(f"unexpected {type(error).__name__}: {detail}", f"this is a fault of Fairlead; set {DEBUG}=1 to see where")
            return ERROR


def _names_no_file(error: click.UsageError) -> bool:
    """A file that must be there, and is not: told as any other that cannot be found."""
    wanted = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    return isinstance(wanted, click.Path) and "does not exist" in error.message


def tell(message: str, hint: str = "") -> None:
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    try:
        click.echo(f"{click.style('error:', fg='red', bold=True) if colour else 'error:'} {message}", err=True)
        if hint:
            click.echo(f"{click.style('hint:', fg='yellow') if colour else 'hint:'} {hint}", err=True)
    except BrokenPipeError:  # the exit code says it too, if Python does not make it another one by flushing at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
