"""`fairlead config`: the contexts of the config file. Asks no server, and shows no token unless told to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fairlead.cli.complete import context_names
from fairlead.cli.frame import LazyGroup, Told
from fairlead.cli.output import put_json
from fairlead.cli.session import told_of
from fairlead.cli.show import laid_out, put_lines

HIDDEN = "(hidden)"
SECRETS = ("token",)


@click.group("config", cls=LazyGroup)
def command() -> None:
    """Choose and write contexts: which server, as whom, which tenant.

    The file is $FAIRLEAD_CONFIG, else fairlead/config.json in your configuration directory.
    """


def _load() -> Any:
    from fairlead.client import contexts

    try:
        return contexts.load()
    except contexts.BadConfig as error:
        raise told_of(error) from error


def _known(config: Any, name: str) -> Any:
    from fairlead.client import contexts

    try:
        return config.context(name)
    except contexts.BadConfig as error:
        raise told_of(error) from error


@command.command("get-contexts")
@click.option("--no-headers", is_flag=True, help="No line of headings.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "name"]), default="table", show_default=True, help="How to write them."
)
def get_contexts(no_headers: bool, output: str) -> None:
    """List the contexts. A * marks the current one."""
    config = _load()
    if output == "name":
        put_lines([each.name for each in config.contexts])
        return
    rows = [["*" if each.name == config.current_context else "", each.name, each.server, each.namespace, each.region]
            for each in config.contexts]  # fmt: skip
    put_lines(laid_out(None if no_headers else ["CURRENT", "NAME", "SERVER", "TENANT", "REGION"], rows))


@command.command("current-context")
def current_context() -> None:
    """Say which context is used when no --context is given."""
    click.echo(_known(_load(), "").name)


@command.command("use-context")
@click.argument("name", shell_complete=context_names)
def use_context(name: str) -> None:
    """Use this context from now on."""
    import msgspec

    from fairlead.client import contexts

    config = _load()
    _known(config, name)
    contexts.save(msgspec.structs.replace(config, current_context=name))
    click.echo(f"context {name} is the current one")


@command.command("view")
@click.option("--raw", is_flag=True, help="Show tokens too.")
@click.option("--minify", is_flag=True, help="Only the current context.")
def view(raw: bool, minify: bool) -> None:
    """Show the config file."""
    import msgspec

    config = _load()
    if minify:
        config = msgspec.structs.replace(config, contexts=(_known(config, ""),))
    tree = msgspec.json.decode(msgspec.json.encode(config))
    for each in tree["contexts"]:
        if not raw:
            each.update({name: HIDDEN for name in SECRETS if each.get(name)})
    put_json(tree)


@command.command("set-context")
@click.argument("name", shell_complete=context_names)
@click.option("--server", default=None, metavar="URL", help="https://HOST:PORT; http only on this machine.")
@click.option("-n", "--namespace", "--tenant", default=None, metavar="TENANT", help="The tenant used when none is given.")
@click.option("--region", default=None, metavar="REGION", help="The region used when none is given.")
@click.option("--certificate-authority", default=None, metavar="FILE", help="Whose certificates the server shows.")
@click.option("--token-file", default=None, metavar="FILE", help="A file that holds the bearer token.")
@click.option(
    "--token", default=None, metavar="TEXT|-", help="The bearer token; - reads it from stdin, out of the shell's history."
)
@click.option("--client-certificate", default=None, metavar="FILE", help="Your certificate.")
@click.option("--client-key", default=None, metavar="FILE", help="Your certificate's key.")
def set_context(name: str, token: str | None, **fields: str | None) -> None:
    """Write a context, or change the fields given of one that is there."""
    import msgspec

    from fairlead.client import contexts

    config = _load()
    old = next((each for each in config.contexts if each.name == name), None)
    given: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
    if token is not None:
        given["token"] = sys.stdin.readline().strip() if token == "-" else token
    for field in ("certificate_authority", "token_file", "client_certificate", "client_key"):
        if given.get(field):
            given[field] = str(Path(given[field]).expanduser().absolute())
    if old is None and "server" not in given:
        raise Told(f"a new context needs a server: there is no context {name!r} yet", hint="--server https://HOST:PORT")
    new: contexts.Context = msgspec.structs.replace(old, **given) if old is not None else contexts.Context(name=name, **given)
    try:
        contexts.tls_of(new, contexts.place().parent)
    except contexts.BadConfig as error:
        raise told_of(error) from error
    contexts.save(config.with_context(new))
    click.echo(f"context {name} {'changed' if old is not None else 'created'}")


@command.command("delete-context")
@click.argument("name", shell_complete=context_names)
def delete_context(name: str) -> None:
    """Remove a context from the config file. The server is not asked."""
    import msgspec

    from fairlead.client import contexts

    config = _load()
    _known(config, name)
    left = tuple(each for each in config.contexts if each.name != name)
    current = "" if config.current_context == name else config.current_context
    contexts.save(msgspec.structs.replace(config, contexts=left, current_context=current))
    click.echo(f"context {name} deleted")
