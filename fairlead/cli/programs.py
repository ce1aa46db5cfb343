"""The long-running programs: a server of a plane, an agent, the local platform. They pick nothing: main.py has made them."""

from __future__ import annotations

import click

from fairlead.cli.frame import Programs, Told, World

DEFAULT_STATE = ".fairlead"


def _programs(world: World) -> Programs:
    assert world.programs is not None, "the composition root knows the programs"
    return world.programs


@click.command()
@click.option("--config", required=True, type=click.Path(exists=True, dir_okay=False), help="The server's configuration file.")
@click.pass_obj
def server(world: World, config: str) -> None:
    """Run one server of a plane until SIGTERM.

    Several servers on one store are one plane: one leads, the others stand by, answer reads and pass writes on.
    """
    world.run_plane(_programs(world).server(config))


@click.command()
@click.option("--config", required=True, type=click.Path(exists=True, dir_okay=False), help="The agent's configuration file.")
@click.pass_obj
def agent(world: World, config: str) -> None:
    """Run the agent of one node until SIGTERM. What it started runs on and is adopted by the next one."""
    world.run_plane(_programs(world).agent(config))


@click.command()
@click.option("--state", default=DEFAULT_STATE, show_default=True, help="Where certificates, stores and logs are kept.")
@click.option("--store", "stores", multiple=True, metavar="PLANE=URL", help="Another store for a plane, at the first start.")
@click.option("--detach", is_flag=True, help="Return when it is ready; `fairlead down` stops it.")
@click.pass_obj
def up(world: World, state: str, stores: tuple[str, ...], detach: bool) -> None:
    """Run the local platform: a global plane, three regions, their agents and five sample workloads, each a real process.

    \b
    fairlead up                                       Ctrl-C stops everything
    fairlead up --detach; fairlead down
    fairlead up --store global=postgresql://me@host/db?plane=global
    """
    named = {}
    for text in stores:
        plane, equals, url = text.partition("=")
        if not equals or not url:
            raise Told(f"--store {text}: write PLANE=URL, such as us-east=sqlite:/srv/us-east.db")
        named[plane] = url
    try:
        world.run(_programs(world).up(state, named, detach, lambda text: click.echo(text, err=True)))
    except ValueError as error:
        raise Told(str(error)) from error


@click.command()
@click.option("--state", default=DEFAULT_STATE, show_default=True, help="The platform's state directory.")
@click.pass_obj
def down(world: World, state: str) -> None:
    """Stop the local platform. Its state stays; `fairlead up` goes on from it."""
    if not world.run(_programs(world).down(state, lambda text: click.echo(text, err=True))):
        raise Told(f"nothing runs in {state}", hint="`fairlead up` starts the platform", code=3)
