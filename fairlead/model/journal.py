"""The journal's blob: what one batch says, in a form that any version can tail (P2).

A blob is `[header, [entry, ...]]` in msgpack. Entries hold effects as post-images, so replaying them needs no judgement; they
also hold the command and the soft facts it was judged on, so that `replay --verify` can judge again and must agree.
Fields may only be added at the end, with defaults.
"""

from __future__ import annotations

import hashlib

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Caller, Command, Put, PutStatus
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


_decoder = codec.decoder(Blob)


def encode_blob(header: Header, entries: list[bytes]) -> bytes:
    """Entries come encoded, each when it was judged; here they are only joined."""
    return b"".join((b"\x92", codec.encode(header), b"\xdd", len(entries).to_bytes(4, "big"), *entries))


def decode_blob(blob: bytes) -> Blob:
    return _decoder.decode(blob)


def chain_hash(previous: bytes, blob: bytes) -> bytes:
    digest = hashlib.sha256(previous)
    digest.update(blob)
    return digest.digest()


_ARRAY_OF_6, _ARRAY_OF_3 = b"\x96", b"\x93"
_callers: dict[int, tuple[Caller, bytes]] = {}  # by identity: components send thousands of commands with one caller
_CALLERS_MAX = 10_000


def encode_command(command: Command, body: bytes) -> bytes:
    """A command whose body is already encoded: it is needed by itself for the hash of an id. Joined by hand, because it is done
    for every command; tests/model/test_codec.py holds it equal to encoding the command whole."""
    caller = command.caller
    known = _callers.get(id(caller))
    if known is None or known[0] is not caller:
        if len(_callers) >= _CALLERS_MAX:
            _callers.clear()
        known = _callers[id(caller)] = (caller, codec.encode(caller))
    rest = codec.encode((command.id, command.evidence, command.correlation, command.term))
    return b"".join((_ARRAY_OF_6, known[1], body, rest[1:]))  # without the byte that says "an array of four"


def encode_entry(command: bytes, effects: list[tuple[str, bytes | None]], soft: tuple[tuple[str, int], ...]) -> bytes:
    """An Entry whose command is already encoded, likewise."""
    return b"".join((_ARRAY_OF_3, command, codec.encode(effects), codec.encode(soft)))


_command_decoder = codec.decoder(Command)


def decode_command(raw: bytes | msgspec.Raw) -> Command | None:
    """The command as it was judged; None for the authority's own entries. Objects inside come back as their records."""
    data = bytes(raw)
    if data == b"\xc0":
        return None
    command = _command_decoder.decode(data)
    body = command.body
    if isinstance(body, Put):
        record = codec.convert(body.object, BY_KIND[body.kind].record)
        return msgspec.structs.replace(command, body=msgspec.structs.replace(body, object=record))
    if isinstance(body, PutStatus):
        record = codec.convert(body.status, BY_KIND[body.kind].status_record)
        return msgspec.structs.replace(command, body=msgspec.structs.replace(body, status=record))
    return command
