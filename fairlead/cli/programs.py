"""The long-running programs: a server of a plane, an agent, the local platform. They pick nothing: main.py has made them."""

from __future__ import annotations

import os
import sys

import click

from fairlead.cli.frame import INTERRUPTED, Programs, Told, World

DEFAULT_STATE = ".fairlead"


def default_state() -> str:
    """Of the platform that the commands of this shell speak to, where that is a local one."""
    place = os.environ.get("FAIRLEAD_CONFIG", "")
    return os.path.dirname(place) if place and os.path.exists(os.path.join(os.path.dirname(place), "ready")) else DEFAULT_STATE


state_option = click.option(
    "--state",
    default=default_state,
    show_default=f"{DEFAULT_STATE}, or where $FAIRLEAD_CONFIG is",
    help="The platform's directory.",
)


def programs_of(world: World) -> Programs:
    assert world.programs is not None, "the composition root knows the programs"
    return world.programs


@click.command()
@click.option("--config", required=True, type=click.Path(exists=True, dir_okay=False), help="The server's configuration file.")
@click.option("--seal-key", default="", metavar="FILE", help="Keys for secrets, made by `certs init`. [default: as configured]")
@click.pass_obj
def server(world: World, config: str, seal_key: str) -> None:
    """Run one server of a plane until SIGTERM.

    Several servers on one store are one plane: one leads, the others stand by, answer reads and pass writes on.
    """
    try:
        world.run_plane(programs_of(world).server(config, seal_key))
    except ValueError as error:  # a configuration that cannot be used, said in words
        raise Told(str(error)) from error


@click.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The agent's configuration file.")
@click.option("--join", "token", metavar="TOKEN", help="A join token, or @FILE with one, or - for standard input.")
@click.option("--server", "servers", multiple=True, metavar="URL", help="A server of the region to join; may be repeated.")
@click.option("--ca", "authorities", type=click.Path(exists=True, dir_okay=False), help="Whose certificates are believed.")
@click.option("--state", metavar="DIR", help="Where a node that joins keeps its key, its certificate and what it runs.")
@click.pass_obj
def agent(
    world: World, config: str | None, token: str | None, servers: tuple[str, ...], authorities: str | None, state: str | None
) -> None:
    """Run the agent of one node until SIGTERM. What it started runs on and is adopted by the next one.

    \b
    fairlead auth join-token eu-west-node-7 --in-region eu-west --cpu 16 --memory 64Gi > token
    fairlead agent --join @token --server https://plane.example.org:7443 --ca ca.pem --state /var/lib/fairlead-agent
    fairlead agent --config agent.json

    Who has joined before starts from its directory; the token is not looked at again.
    """
    if token is not None:
        if config or not servers or authorities is None or state is None:
            raise Told("--join goes with --server, --ca and --state, and without --config")
        config = _joined(world, token, servers, authorities, state)
    elif config is None:
        raise Told("say --config FILE, or --join TOKEN to become a node")
    try:
        world.run_plane(programs_of(world).agent(config))
    except ValueError as error:
        raise Told(str(error)) from error


def _joined(world: World, token: str, servers: tuple[str, ...], authorities: str, state: str) -> str:
    from fairlead.security.certificates import BadCertificate
    from fairlead.security.enrolment import CannotJoin
    from fairlead.security.files import UnsafeFile

    try:
        text = sys.stdin.read() if token == "-" else token
        if token.startswith("@"):
            with open(token[1:]) as file:
                text = file.read()
        return str(world.run(programs_of(world).join(os.path.abspath(state), text.strip(), servers, authorities)))
    except (CannotJoin, BadCertificate, UnsafeFile, OSError) as error:
        raise Told(str(error)) from error


@click.command()
@click.option("--config", required=True, type=click.Path(exists=True, dir_okay=False), help="The program's configuration file.")
@click.pass_obj
def endpoints(world: World, config: str) -> None:
    """Run the directory of endpoints until SIGTERM: DNS answers and JSON documents for the workloads of all regions."""
    try:
        world.run(programs_of(world).endpoints(config))
    except ValueError as error:
        raise Told(str(error)) from error


@click.command()
@click.option("--state", default=DEFAULT_STATE, show_default=True, help="Where certificates, stores and logs are kept.")
@click.option("--store", "stores", multiple=True, metavar="PLANE=URL", help="Another store for a plane, at the first start.")
@click.option(
    "--node-lease",
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="A node silent for longer is Unknown; at the first start.",
)
@click.option("--detach", is_flag=True, help="Return when it is ready; `fairlead down` stops it.")
@click.pass_obj
def up(world: World, state: str, stores: tuple[str, ...], node_lease: float, detach: bool) -> None:
    """Run the local platform: a global plane, three regions, their agents and five sample workloads, each a real process.

    \b
    fairlead up                                       Ctrl-C stops everything
    fairlead up --detach; fairlead down
    fairlead up --store global=postgresql://me@host/db?plane=global
    """
    named = {}
    for text in stores:
        plane, equals, url = text.partition("=")
        if not equals or not url or ":" in plane:
            raise Told(f"--store {text}: write PLANE=URL, such as us-east=sqlite:/srv/us-east.db")
        named[plane] = url
    try:
        ready = world.run(programs_of(world).up(state, named, node_lease, detach, lambda text: click.echo(text, err=True)))
    except ValueError as error:
        raise Told(str(error)) from error
    if not ready:
        raise Told("stopped before it was ready; nothing of it runs", code=INTERRUPTED)


@click.command()
@state_option
@click.pass_obj
def down(world: World, state: str) -> None:
    """Stop the local platform. Its state stays; `fairlead up` goes on from it."""
    try:
        ran = world.run(programs_of(world).down(state, lambda text: click.echo(text, err=True)))
    except ValueError as error:
        raise Told(str(error)) from error
    if not ran:
        raise Told(f"nothing runs in {state}", hint="`fairlead up` starts the platform", code=3)
