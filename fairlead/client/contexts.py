"""The client's config file: contexts (a server, who one is there, which tenant is meant) and which of them is current.

Owns the file's form and the TLS settings a context stands for. Never talks to a server. Called by the command line, and by
whoever writes a context for people (`fairlead up`). The file is JSON, so that reading it costs next to nothing; YAML is read too.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from fairlead.client.local import path_of

API_VERSION: Final = "fairlead.dev/v1alpha1"
KIND: Final = "ClientConfig"
PLACE: Final = "FAIRLEAD_CONFIG"
CURRENT: Final = "FAIRLEAD_CONTEXT"
TOKEN: Final = "FAIRLEAD_TOKEN"
LOCAL: Final = Path(".fairlead") / "client.json"  # what `fairlead up` writes where it is started


class BadConfig(Exception):
    """The config file or a context in it cannot be used; says which part, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


_HOW_TO_BEGIN = (
    "go to the directory where the local platform was started (`fairlead up` or `make run`), or name a server: "
    "fairlead config set-context NAME --server URL"
)


class NoContext(BadConfig):
    """No context of that name, or none at all."""

    def __init__(self, message: str, hint: str, known: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.known = known


class Context(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Where to send requests and as whom. Files may be named relative to the config file."""

    name: str
    server: str
    namespace: str = ""
    region: str = ""
    certificate_authority: str = ""  # a file with the CA's certificates
    certificate_authority_data: str = ""  # the same as PEM text
    token: str = ""
    token_file: str = ""
    client_certificate: str = ""
    client_key: str = ""

    def __repr__(self) -> str:
        return f"Context({self.name!r}, {self.server!r})"  # a token must not end up in a log


class ClientConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    api_version: str = API_VERSION
    kind: str = KIND
    current_context: str = ""
    contexts: tuple[Context, ...] = ()

    def context(self, name: str = "") -> Context:
        wanted = name or os.environ.get(CURRENT, "") or self.current_context
        known = tuple(context.name for context in self.contexts)
        if not wanted:
            hint = "choose one with `fairlead config use-context NAME`" if known else _HOW_TO_BEGIN
            raise NoContext("no context is chosen, so there is no server to ask", hint, known)
        found = next((context for context in self.contexts if context.name == wanted), None)
        if found is None:
            raise NoContext(
                f"there is no context {wanted!r}", f"there are: {', '.join(known)}" if known else _HOW_TO_BEGIN, known
            )
        return found

    def with_context(self, context: Context) -> ClientConfig:
        others = [each for each in self.contexts if each.name != context.name]
        kept = sorted([*others, context], key=lambda each: each.name)
        return msgspec.structs.replace(self, contexts=tuple(kept), current_context=self.current_context or context.name)


def place() -> Path:
    """Where the file is: $FAIRLEAD_CONFIG, else that of a local platform started in this directory, else in the user's
    configuration directory."""
    named = os.environ.get(PLACE)
    if named:
        return Path(named).expanduser()
    if LOCAL.exists():
        return LOCAL
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "fairlead" / "config.json"


def load(path: Path | None = None) -> ClientConfig:
    """What the file says; an empty config where there is no file. One that merely lies in the current directory counts if nobody
    else could have put it there: it says to whom tokens are sent."""
    merely_here = path is None and _lies_here(place().parent)
    path = path or place()
    try:
        with path.open("rb") as file:
            if merely_here:
                _check_own(path.parent, path.parent.stat())
                _check_own(path, os.fstat(file.fileno()))
            text = file.read()
    except FileNotFoundError:
        return ClientConfig()
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from error
    try:
        config = msgspec.convert(_tree(text), ClientConfig)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadConfig(f"{path}: {error}", "mend it, or write it anew with `fairlead config set-context`") from error
    if config.kind != KIND:
        raise BadConfig(
            f"{path}: kind: expected {KIND}, got {config.kind!r}", "a kubeconfig is another file: use kubectl with that"
        )
    return config


def _lies_here(folder: Path) -> bool:
    """Nobody named it: it was found in the current directory, which may be anybody's."""
    return folder == LOCAL.parent and not os.environ.get(PLACE)


def _check_own(path: Path, found: os.stat_result) -> None:
    if not _is_own(found):
        hint = f"read it, and if you mean it name it: {PLACE}={LOCAL}"
        raise BadConfig(f"{path}: others can write it, so what it says is not followed", hint)


def _is_own(found: os.stat_result) -> bool:
    """Of this user or of root, and nobody else may write it. A group's directory may be: what lies in it is looked at itself."""
    loose = stat.S_IWOTH if stat.S_ISDIR(found.st_mode) else stat.S_IWOTH | stat.S_IWGRP
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & loose


def _tree(text: bytes) -> object:
    if text.lstrip()[:1] in (b"{", b""):
        return msgspec.json.decode(text) if text.strip() else {}
    from fairlead.wire.yaml_codec import parse_yaml  # Only for a file somebody wrote by hand: it costs a tenth of a second.

    trees = parse_yaml(text)
    if not isinstance(trees, list):
        raise ValueError(trees.message)
    return trees[0] if trees else {}


def save(config: ClientConfig, path: Path | None = None) -> Path:
    """Replaces the file as a whole, readable by its owner only: it may hold tokens."""
    path = path or place()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
    beside.replace(path)
    return path


def token_of(context: Context, base: Path) -> str:
    """The bearer token: from the environment, the context, or its file (read each time, so that a rotated one is found)."""
    if os.environ.get(TOKEN):
        return os.environ[TOKEN]
    if context.token or not context.token_file:
        return context.token
    path = base / context.token_file
    text = _read(context, "tokenFile", path).decode().strip()
    if _lies_here(base) and base.resolve() not in path.resolve().parents and not _is_own(path.stat()):
        raise BadConfig(f"context {context.name!r}: tokenFile: {path} is neither beside the config nor yours", _how(context))
    return text


def tls_of(context: Context, base: Path) -> ssl.SSLContext | None:
    """None for plain http and for a local socket, which are for this machine only: nobody else may see or change what is said."""
    if path_of(context.server):
        return None
    parts = urlsplit(context.server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadConfig(f"context {context.name!r}: server: {context.server!r} is not https://HOST:PORT", _how(context))
    if parts.scheme == "http":
        if not is_loopback(parts.hostname):
            raise BadConfig(f"context {context.name!r}: server: http is for this machine only; use https", _how(context))
        return None
    data = context.certificate_authority_data
    try:
        if context.certificate_authority:
            data = _read(context, "certificateAuthority", base / context.certificate_authority).decode()
        made = ssl.create_default_context(cadata=data or None)
        if context.client_certificate:
            made.load_cert_chain(base / context.client_certificate, (base / context.client_key) if context.client_key else None)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadConfig(f"context {context.name!r}: its certificates cannot be used: {error}", _how(context)) from error
    return made


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _how(context: Context) -> str:
    return f"fairlead config set-context {context.name} --server https://HOST:PORT --certificate-authority FILE"


def _read(context: Context, field: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(f"context {context.name!r}: {field}: {path}: {error.strerror}", _how(context)) from error
