"""`fairlead chaos`: break the local platform on purpose, see what is broken, and heal it.

Owns the words, and that nothing is destroyed before what goes with it was said. What is done is fairlead/compose/chaos.py's,
handed over by main.py. Refuses where no local platform runs: it can reach nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import click

from fairlead.cli.complete import nodes as complete_nodes
from fairlead.cli.complete import regions as complete_regions
from fairlead.cli.frame import NOT_FOUND, OK, Told, World
from fairlead.cli.output import json_option, note, put_json, put_table
from fairlead.cli.programs import programs_of, state_option
from fairlead.cli.writing import confirmed, yes_option

F = TypeVar("F", bound=Callable[..., Any])
Direction = Literal["both", "forward", "back"]


class Wrong(Protocol):
    @property
    def fault(self) -> str: ...

    @property
    def what(self) -> str: ...

    @property
    def detail(self) -> str: ...


class Radius(Protocol):
    def lines(self) -> list[str]: ...


class Chaos(Protocol):
    """What is done to a running platform. Faults of the user are ValueErrors; a name that nothing has is a LookupError."""

    def node(self, name: str) -> str: ...

    def nodes(self, *, zone: str = "", region: str = "") -> list[str]: ...

    def plane(self, name: str) -> str: ...

    def process(self, name: str) -> str: ...

    def radius(self, names: Sequence[str]) -> Radius: ...

    async def kill(self, names: Sequence[str]) -> int: ...

    def pause(self, name: str) -> None: ...

    def links_between(self, one: str, other: str) -> dict[str, Direction]: ...

    def links_of(self, one: str) -> dict[str, Direction]: ...

    async def cut(self, links: dict[str, Direction], *, one_way: bool) -> object: ...

    async def drop_watches(self, plane: str) -> int: ...

    async def stop_store(self, plane: str) -> None: ...

    def status(self) -> Sequence[Wrong]: ...

    async def heal(self, say: Callable[[str], None]) -> None: ...


class _Run(NamedTuple):
    chaos: Chaos
    yes: bool


@click.group("chaos")
def command() -> None:
    """Break the local platform on purpose: its real processes and sockets. `fairlead chaos heal` undoes everything.

    \b
    fairlead chaos kill-node us-east-general-a     the machine is gone, with all that ran on it
    fairlead chaos cut eu-central                  the region is cut off from the others
    fairlead chaos cut us-east-general-a us-east   an agent cannot reach its region
    fairlead chaos status
    fairlead chaos heal
    """


def on_platform(work: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """A command that is handed the running platform."""

    @state_option
    @click.pass_obj
    @functools.wraps(work)
    def call(world: World, /, *, state: str, yes: bool = False, **parameters: Any) -> int:
        async def run() -> int:
            return await work(_Run(programs_of(world).chaos(state), yes), **parameters)

        try:
            return int(world.run(run()))
        except LookupError as error:
            raise Told(str(error.args[0]), code=NOT_FOUND) from error
        except ValueError as error:
            raise Told(str(error)) from error

    return call


async def _kill(run: _Run, names: Sequence[str], what: str) -> int:
    note(f"this kills, at once and without a word, {what}:")
    for line in run.chaos.radius(names).lines():
        note(f"  {line}")
    confirmed(run.yes, f"Kill {what}?")
    count = await run.chaos.kill(names)
    click.echo(f"killed {what}: {count} processes")
    return OK


@command.command("kill-node")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@yes_option
@on_platform
async def kill_node(run: _Run, nodes: tuple[str, ...]) -> int:
    """Kill machines: the agent and everything it runs (SIGKILL)."""
    return await _kill(run, [run.chaos.node(name) for name in nodes], ", ".join(nodes))


@command.command("kill-zone")
@click.argument("zone")
@yes_option
@on_platform
async def kill_zone(run: _Run, zone: str) -> int:
    """Kill every machine of a zone. The plane of the region stays."""
    return await _kill(run, run.chaos.nodes(zone=zone), f"zone {zone}")


@command.command("kill-region")
@click.argument("region", shell_complete=complete_regions)
@yes_option
@on_platform
async def kill_region(run: _Run, region: str) -> int:
    """Kill a region: its plane's server and every machine, with everything they run."""
    return await _kill(run, [run.chaos.plane(region), *run.chaos.nodes(region=region)], f"region {region}")


@command.command("cut")
@click.argument("one", metavar="A")
@click.argument("other", metavar="[B]", required=False)
@click.option("--one-way", is_flag=True, help="Only what A sends is lost; what B sends still arrives.")
@yes_option
@on_platform
async def cut(run: _Run, one: str, other: str | None, one_way: bool) -> int:
    """Cut the network between A and B, or around A alone.

    A and B are a region and `global`, a node and its region, or `people` (you) and `global`. A region alone loses global
    and DNS, and keeps its agents. Connections are not closed: bytes wait, as they do when packets are lost, and go on when
    it heals.
    """
    links = run.chaos.links_between(one, other) if other else run.chaos.links_of(one)
    note("this cuts, for what is sent from " + one + ":" if one_way else "this cuts, both ways:")
    for name in sorted(links):
        note(f"  {name.removeprefix('agent-').replace('>', ' - ')}")
    said = f"{len(links)} link{'' if len(links) == 1 else 's'}"
    confirmed(run.yes, f"Cut {said}?")
    await run.chaos.cut(links, one_way=one_way)
    click.echo(f"cut {said}")
    return OK


@command.command("drop-watch")
@click.argument("plane", required=False, default="")
@on_platform
async def drop_watch(run: _Run, plane: str) -> int:
    """Close every connection to a plane (or to all), and with it every feed and watch: all must connect and list again."""
    count = await run.chaos.drop_watches(run.chaos.plane(plane) if plane else "")
    click.echo(f"closed {count} connections to {plane or 'all planes'}")
    return OK


@command.command("stop-store")
@click.argument("plane")
@yes_option
@on_platform
async def stop_store(run: _Run, plane: str) -> int:
    """Take a plane's store away: the write lock of its SQLite file is held, so that it reads and cannot commit.

    A PostgreSQL or etcd server is not the platform's own: stop that one yourself.
    """
    note(f"this keeps the plane {run.chaos.plane(plane)} from writing anything: no change there takes effect")
    confirmed(run.yes, f"Stop the store of {plane}?")
    await run.chaos.stop_store(plane)
    click.echo(f"the store of {plane} is stopped")
    return OK


@command.command("pause")
@click.argument("process", metavar="PROCESS")
@yes_option
@on_platform
async def pause(run: _Run, process: str) -> int:
    """Stop a process with SIGSTOP: a plane, a node's agent, or `endpoints`. It keeps its connections and says nothing."""
    name = run.chaos.process(process)
    note(f"this stops {name}; what its node runs goes on" if name.startswith("agent-") else f"this stops {name}")
    confirmed(run.yes, f"Pause {process}?")
    run.chaos.pause(name)
    click.echo(f"paused {process}")
    return OK


@command.command("status")
@json_option
@on_platform
async def status(run: _Run, as_json: bool) -> int:
    """Show what is broken now, on purpose or not."""
    found = run.chaos.status()
    if as_json:
        put_json({"faults": [{"fault": one.fault, "what": one.what, "detail": one.detail} for one in found]})
    elif found:
        put_table(("FAULT", "WHAT", "DETAIL"), [(one.fault, one.what, one.detail) for one in found])
    else:
        note("nothing is broken")
    return OK


@command.command("heal")
@on_platform
async def heal(run: _Run) -> int:
    """Undo everything: processes go on or start again, links and stores work. Returns when planes and nodes are ready."""
    await run.chaos.heal(note)
    click.echo("healed")
    return OK
