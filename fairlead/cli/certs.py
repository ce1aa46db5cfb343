"""`fairlead certs`: make a local authority, issue certificates, rotate them, show them.

Owns the words; what is done is in fairlead/security (folder, certificates, sealing). Needs no server: it works on a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from fairlead.cli.frame import CHECK_FAILED, CONFLICT, ERROR, NOT_FOUND, OK, LazyGroup, Told, World
from fairlead.cli.output import json_option, note, put_json, put_table
from fairlead.cli.writing import confirmed, yes_option
from fairlead.security.certificates import BadCertificate, Named
from fairlead.security.files import UnsafeFile
from fairlead.security.folder import AUTHORITY, LOCAL_HOSTS, CertificateFolder, Entry
from fairlead.security.sealing import CannotOpen, Keyring

FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
SEALING_KEYS = "secrets.keys"


@click.group("certs", cls=LazyGroup)
def command() -> None:
    """Make a local certificate authority, issue certificates, rotate and show them."""


def in_folder(work: Callable[..., int]) -> Callable[..., int]:
    """A command on a folder: what goes wrong with files and certificates is told in a line."""

    @click.pass_obj
    def call(world: World, /, folder: Path, **parameters: Any) -> int:
        try:
            return work(world, CertificateFolder(folder, world.clock()), **parameters)
        except FileExistsError as error:
            raise Told(str(error), code=CONFLICT) from error
        except FileNotFoundError as error:
            hint = f"make one with: fairlead certs init {folder}"
            raise Told(f"there is no {error.filename or 'such file'}", hint=hint, code=NOT_FOUND) from error
        except (BadCertificate, UnsafeFile, CannotOpen, ValueError) as error:
            raise Told(str(error), code=ERROR) from error

    call.__doc__ = work.__doc__  # click makes the help of it
    return call


def lifetime_of(days: float | None) -> timedelta | None:
    return None if days is None else timedelta(days=days)


@command.command("init")
@FOLDER
@click.option("--name", default="fairlead", show_default=True, help="What the authority is called.")
@in_folder
def init(world: World, folder: CertificateFolder, name: str) -> int:
    """Make FOLDER with a new authority (ca.pem, ca.key) and a key for secrets at rest (secrets.keys).

    ca.pem goes to everybody. ca.key stays where certificates are issued; region servers that let agents join need it too.
    secrets.keys goes to every server, by a way that is not the store or its backups.
    """
    folder.create(name)
    Keyring.create(folder.path / SEALING_KEYS, world.ids())
    click.echo(folder.authorities)
    note(f"Next: fairlead certs issue {folder.path} server NAME --host ADDRESS")
    return OK


@command.command("issue")
@FOLDER
@click.argument("purpose", type=click.Choice(["server", "component", "agent", "user"]))
@click.argument("name")
@click.option("--host", "hosts", multiple=True, help="A name or address of the server; may be repeated. [default: this machine]")
@click.option("--role", "roles", multiple=True, help="A role of the component; may be repeated.")
@click.option("--region", default="", help="Where an agent or a component belongs.")
@click.option("--file", default="", metavar="NAME", help="Write NAME.pem and NAME.key. [default: the certificate's own name]")
@click.option("--days", type=click.FloatRange(min=0.001), help="How long it lives. [default: by purpose]")
@in_folder
def issue(
    world: World,
    folder: CertificateFolder,
    purpose: Any,
    name: str,
    hosts: tuple[str, ...],
    roles: tuple[str, ...],
    region: str,
    file: str,
    days: float | None,
) -> int:
    """Issue a certificate: for a server, a component in one or more roles, the agent of node NAME, or a person.

    An agent is better given a join token (`fairlead auth join-token`): its key then never leaves its machine, its capacity is
    bounded, and it can be revoked by name.
    """
    if purpose == "server":
        hosts = hosts or LOCAL_HOSTS
    named = Named(purpose, name, ("agent",) if purpose == "agent" else roles, region)
    click.echo(folder.issue(named, file=file, hosts=hosts, lifetime=lifetime_of(days)))
    return OK


@command.command("rotate")
@FOLDER
@click.argument("files", nargs=-1, metavar="[NAME]...")
@click.option("--due", is_flag=True, help="Everything that has lived two thirds of its life.")
@click.option("--all", "everything", is_flag=True, help="Everything but the authority.")
@click.option("--finish", is_flag=True, help="With `ca`: stop believing the old authority.")
@yes_option
@in_folder
def rotate(
    world: World, folder: CertificateFolder, files: tuple[str, ...], due: bool, everything: bool, finish: bool, yes: bool
) -> int:
    """Replace certificates by new ones that say the same. Servers take them up by themselves, without a restart.

    \b
    The authority itself is rotated in steps:
      fairlead certs rotate FOLDER ca            a new one signs, both are believed; copy ca.pem everywhere, ca.key too
                                                 where nodes join; nodes that joined follow within 15 minutes
      fairlead certs rotate FOLDER --all         everything is signed by the new one; copy the files
      fairlead certs rotate FOLDER ca --finish   the old one is believed no more; copy ca.pem everywhere

    The last one asks first, off a terminal it needs --yes: nodes that joined with a token are not in FOLDER, and are cut off if
    they have not followed.
    """
    if finish:
        if files != (AUTHORITY,):
            raise Told("--finish goes with `ca`")
        return _finish(folder, yes)
    if AUTHORITY in files:
        folder.rotate_authority()
        click.echo(folder.authorities)
    issued = [entry for entry in folder.entries() if entry.presented is not None]
    wanted = [entry.file for entry in issued if entry.file in files or everything or (due and entry.due)]
    unknown = sorted(set(files) - {AUTHORITY} - {entry.file for entry in issued})
    if unknown:
        raise Told(f"there is no certificate {unknown[0]}", hint=f"see: fairlead certs show {folder.path}", code=NOT_FOUND)
    if not files and not due and not everything:
        raise Told("say which: NAME..., --due or --all")
    for file in wanted:
        click.echo(folder.rotate(file))
    return OK


def _finish(folder: CertificateFolder, yes: bool) -> int:
    left = folder.left_behind()
    if left:
        raise Told(f"still signed by the old authority: {', '.join(left)}", hint="rotate these first", code=CONFLICT)
    note(
        "nodes that joined with a token are not seen here: each renews by itself within 15 minutes after its region's servers "
        "have the new ca.pem and ca.key, and logs `renewed the certificate`; one that has not is cut off, and must join anew"
    )
    confirmed(yes, "believe only the new authority?")
    folder.finish_authority()
    click.echo(folder.authorities)
    return OK


@command.command("rotate-secrets-key")
@FOLDER
@in_folder
def rotate_secrets_key(world: World, folder: CertificateFolder) -> int:
    """Put a new key in front of secrets.keys. Old ones still open what they sealed. Copy the file to every server."""
    path = folder.path / SEALING_KEYS
    ring = Keyring.load(path, world.ids()).rotated()
    ring.save(path)
    click.echo(ring.current)
    return OK


@command.command("show")
@FOLDER
@json_option
@in_folder
def show(world: World, folder: CertificateFolder, as_json: bool) -> int:
    """List what FOLDER holds: whom for, until when, what is due. Exit code 8 if anything has expired or is not believed."""
    entries, now = folder.entries(), world.clock().wall()
    rows = [_facts(entry, now) for entry in entries]
    if as_json:
        put_json({"folder": str(folder.path), "certificates": rows})
    else:
        headings = ["FILE", "PURPOSE", "NAME", "ROLES", "REGION", "EXPIRES", "STATE"]
        put_table(headings, [[row[heading.lower()] for heading in headings] for row in rows])
    return OK if all(row["state"] in ("Good", "Due") for row in rows) else CHECK_FAILED


def _facts(entry: Entry, now: float) -> dict[str, Any]:
    named = entry.presented.named if entry.presented is not None else None
    state = "Due" if entry.due else "Good"
    if entry.not_after.timestamp() <= now:
        state = "Expired"
    elif not entry.trusted:
        state = "NotBelieved"
    return {
        "file": entry.file,
        "purpose": named.purpose if named is not None else "authority",
        "name": named.name if named is not None else "-",
        "roles": ",".join(named.roles) if named is not None and named.roles else "-",
        "region": (named.region if named is not None else "") or "-",
        "hosts": list(entry.hosts),
        "expires": entry.not_after.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "fingerprint": entry.presented.fingerprint if entry.presented is not None else "",
        "state": state,
    }
