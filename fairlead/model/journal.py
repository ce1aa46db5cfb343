"""The journal's blob: what one batch says, in a form that any version can tail (P2).

A blob is `[header, [entry, ...]]` in msgpack. Entries hold effects as post-images, so replaying them needs no judgement; they
also hold the command and the soft facts it was judged on, so that `replay --verify` can judge again and must agree.
Fields may only be added at the end, with defaults.
"""

from __future__ import annotations

import hashlib

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Command, CommandId, Put, PutStatus
from fairlead.model.registry import BY_KIND

NO_COMMAND = msgspec.Raw(b"\xc0")  # nil: an entry of the authority's own, such as the windows of sessions


class Header(msgspec.Struct, frozen=True, gc=False, array_like=True):
    format: int
    incarnation: int
    epoch: int
    holder: str
    first: int
    time_ms: int  # plane time (P5)


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    command: msgspec.Raw
    effects: tuple[tuple[str, bytes | None], ...]
    soft: tuple[tuple[str, int], ...] = ()


class Blob(msgspec.Struct, frozen=True, gc=False, array_like=True):
    header: Header
    entries: tuple[Entry, ...]


class _Front(msgspec.Struct, frozen=True, gc=False, array_like=True):
    header: Header
    entries: msgspec.Raw


_decoder = codec.decoder(Blob)
_front_decoder = codec.decoder(_Front)


def encode_blob(header: Header, entries: list[bytes]) -> bytes:
    """Entries come encoded, each when it was judged; here they are only joined."""
    return b"".join((b"\x92", codec.encode(header), b"\xdd", len(entries).to_bytes(4, "big"), *entries))


def decode_blob(blob: bytes) -> Blob:
    return _decoder.decode(blob)


def header_of(blob: bytes) -> Header:
    """Without what it says: some milliseconds for the largest."""
    return _front_decoder.decode(blob).header


def chain_hash(previous: bytes, blob: bytes) -> bytes:
    digest = hashlib.sha256(previous)
    digest.update(blob)
    return digest.digest()


def encode_entry(
    command: Command, encoded: bytes, only_body: bool, effects: list[tuple[str, bytes | None]], soft: tuple[tuple[str, int], ...]
) -> bytes:
    """An Entry whose command is already encoded, whole or `only_body`. Done for every command, hence without making an Entry;
    tests/model/test_codec.py holds it equal to encoding one."""
    return codec.encode((_around(command, encoded) if only_body else msgspec.Raw(encoded), effects, soft))


def _around(command: Command, body: bytes) -> tuple[object, ...]:
    return command.caller, msgspec.Raw(body), command.id, command.evidence, command.correlation, command.term


_command_decoder = codec.decoder(Command)


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """A command of which only its id is read; its body is the bytes that were judged."""

    caller: msgspec.Raw
    body: msgspec.Raw
    id: CommandId | None = None


_outline_decoder = codec.decoder(Outline)


def decode_outline(raw: bytes | msgspec.Raw) -> Outline | None:
    """For those who ask every command for its id, or compare what was judged."""
    data = bytes(raw)
    return None if data == b"\xc0" else _outline_decoder.decode(data)


def decode_command(raw: bytes | msgspec.Raw, *, records: bool = True) -> Command | None:
    """The command as it was judged; None for the authority's own entries. Objects inside come back as their records, or as
    plain maps for those who do not read them."""
    data = bytes(raw)
    if data == b"\xc0":
        return None
    command = _command_decoder.decode(data)
    if not records:
        return command
    body = command.body
    if isinstance(body, Put):
        record = codec.convert(body.object, BY_KIND[body.kind].record)
        return msgspec.structs.replace(command, body=msgspec.structs.replace(body, object=record))
    if isinstance(body, PutStatus):
        record = codec.convert(body.status, BY_KIND[body.kind].status_record)
        return msgspec.structs.replace(command, body=msgspec.structs.replace(body, status=record))
    return command
