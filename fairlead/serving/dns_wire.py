"""DNS messages as bytes (RFC 1035, 2782, 6891): queries in, answers out, and back again for our own client.

Owns the format and its limits. Any bytes give a query or a Malformed, which says whether an answer is due; never another
exception. Knows no zone. Called by dns.py, dns_zone.py and dns_client.py.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

A, NS, SOA, AAAA, SRV, OPT, IXFR, AXFR, ANY = 1, 2, 6, 28, 33, 41, 251, 252, 255
IN: Final = 1
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

HEADER: Final = struct.Struct("!HHHHHH")
_RECORD: Final = struct.Struct("!HHIH")
_QUESTION: Final = struct.Struct("!HH")
_SRV: Final = struct.Struct("!HHH")
_SOA: Final = struct.Struct("!IIIII")

UDP_BYTES: Final = 512  # what every client takes
EDNS_BYTES_MAX: Final = 1232  # beyond it, packets get cut into fragments on the way
MESSAGE_BYTES_MAX: Final = 65_535
NAME_BYTES_MAX: Final = 255
LABEL_BYTES_MAX: Final = 63
QUESTION_BYTES_MAX: Final = 4_096  # read of one connection: a name, and options that no client fills so far
QUESTION_RECORDS_MAX: Final = 16  # beside its question; there is use for one, and each costs a walk along its name
RECORDS_MAX: Final = 2_000  # read of one answer
POINTERS_MAX: Final = 32

Name = tuple[bytes, ...]  # labels as sent, without the root's empty one


class Query(NamedTuple):
    id: int
    opcode: int
    recursion_desired: bool
    name: Name
    type: int
    cls: int
    edns_bytes: int | None  # None: the client speaks no EDNS
    edns_version: int = 0


class Malformed(Exception):
    """Not a query. `id` None: no answer is due."""

    def __init__(self, detail: str, id: int | None = None, opcode: int = 0) -> None:
        super().__init__(detail)
        self.id = id
        self.opcode = opcode


class Record(NamedTuple):
    name: Name
    type: int
    ttl: int
    data: bytes


class Answer(NamedTuple):
    rcode: int = NOERROR
    authoritative: bool = True
    answers: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()


# --- reading ---------------------------------------------------------------------------------------------------------------


def read_query(packet: bytes) -> Query:
    """Raises Malformed."""
    if len(packet) < HEADER.size:
        raise Malformed("shorter than a header")
    id_, flags, questions, *others = HEADER.unpack_from(packet)
    if flags & 0x8000:
        raise Malformed("is an answer")  # answering it could begin a game of tennis between two servers
    opcode = flags >> 11 & 15
    try:
        if opcode:
            return Query(id_, opcode, bool(flags & 0x100), (), 0, 0, None)
        if questions != 1:
            raise Malformed(f"has {questions} questions")
        if sum(others) > QUESTION_RECORDS_MAX:
            raise Malformed(f"has {sum(others)} records beside its question")
        name, at = _read_name(packet, HEADER.size, pointers=False)
        if at + _QUESTION.size > len(packet):
            raise Malformed("ends within its question")
        type_, cls = _QUESTION.unpack_from(packet, at)
        edns_bytes, version = _read_edns(packet, at + _QUESTION.size, others)
    except Malformed as error:
        raise Malformed(str(error), id_, opcode) from None
    return Query(id_, opcode, bool(flags & 0x100), name, type_, cls, edns_bytes, version)


def _read_edns(packet: bytes, at: int, counts: Sequence[int]) -> tuple[int | None, int]:
    """Walks over all records, so that what is not understood is at least well formed; (size, version) of the one OPT."""
    found: tuple[int, int] | None = None
    for section, count in enumerate(counts):
        for _ in range(count):
            name, type_, cls, ttl, _, at = _read_record(packet, at)
            if type_ != OPT:
                continue
            if section != 2 or name or found is not None:
                raise Malformed("has an OPT record where none may be")
            found = cls, ttl >> 16 & 255
    if at != len(packet):
        raise Malformed("goes on after its end")
    return found if found is not None else (None, 0)


def _read_name(packet: bytes, at: int, *, pointers: bool = True) -> tuple[Name, int]:
    """(labels, where the name ends). Pointers lead backwards only, so that no name goes round in circles."""
    labels: list[bytes] = []
    total, end, followed, floor = 1, -1, 0, at
    while True:
        if at >= len(packet):
            raise Malformed("ends within a name")
        length = packet[at]
        if length >= 0xC0:
            if not pointers or at + 2 > len(packet):
                raise Malformed("has a pointer where none may be")
            target = (length & 0x3F) << 8 | packet[at + 1]
            followed += 1
            if target >= floor or followed > POINTERS_MAX:
                raise Malformed("has a pointer that does not lead back")
            end = at + 2 if end < 0 else end
            at = floor = target
            continue
        if length > LABEL_BYTES_MAX:
            raise Malformed("has a label of an unknown sort")
        if not length:
            return tuple(labels), at + 1 if end < 0 else end
        total += length + 1
        if total > NAME_BYTES_MAX or at + 1 + length > len(packet):
            raise Malformed("has a name that is too long")
        labels.append(packet[at + 1 : at + 1 + length])
        at += length + 1


def _read_record(packet: bytes, at: int) -> tuple[Name, int, int, int, tuple[int, int], int]:
    """(name, type, class, ttl, where its data are, where it ends)."""
    name, at = _read_name(packet, at)
    if at + _RECORD.size > len(packet):
        raise Malformed("ends within a record")
    type_, cls, ttl, length = _RECORD.unpack_from(packet, at)
    start = at + _RECORD.size
    if start + length > len(packet):
        raise Malformed("ends within a record's data")
    return name, type_, cls, ttl, (start, start + length), start + length


class Reply(NamedTuple):
    """An answer as a client reads it. SRV targets by (priority, port, name); addresses by name."""

    id: int
    rcode: int
    truncated: bool
    question: tuple[Name, int]
    services: Sequence[tuple[int, int, Name]]
    addresses: dict[Name, list[str]]


def read_reply(packet: bytes) -> Reply:
    """Raises Malformed."""
    if len(packet) < HEADER.size:
        raise Malformed("shorter than a header")
    id_, flags, questions, *counts = HEADER.unpack_from(packet)
    if not flags & 0x8000 or questions > 1 or sum(counts) > RECORDS_MAX:
        raise Malformed("is no answer to one question")
    asked: tuple[Name, int] = (), 0
    at = HEADER.size
    if questions:
        name, at = _read_name(packet, at)
        if at + _QUESTION.size > len(packet):
            raise Malformed("ends within its question")
        asked = folded(name), _QUESTION.unpack_from(packet, at)[0]
        at += _QUESTION.size
    services: list[tuple[int, int, Name]] = []
    addresses: dict[Name, list[str]] = {}
    for _ in range(sum(counts)):
        name, type_, _, _, (start, end), at = _read_record(packet, at)
        if type_ == SRV and end - start > _SRV.size:
            priority, _, port = _SRV.unpack_from(packet, start)
            services.append((priority, port, folded(_read_name(packet, start + _SRV.size)[0])))
        elif (type_, end - start) in ((A, 4), (AAAA, 16)):
            addresses.setdefault(folded(name), []).append(str(ipaddress.ip_address(packet[start:end])))
    return Reply(id_, flags & 15, bool(flags & 0x200), asked, services, addresses)


# --- writing ---------------------------------------------------------------------------------------------------------------


def name_of(text: str) -> Name:
    return tuple(label.encode("ascii") for label in text.strip(".").split(".") if label)


def folded(name: Name) -> Name:
    """For comparing: case does not matter in a name."""
    return tuple(label.lower() for label in name)


def encoded_name(name: Name) -> bytes:
    return b"".join(bytes((len(label),)) + label for label in name) + b"\0"


_encoded_target: Final = lru_cache(maxsize=16_384)(encoded_name)  # the names of our own slots, asked for again and again


def write_query(id_: int, name: Name, type_: int) -> bytes:
    head = HEADER.pack(id_, 0, 1, 0, 0, 1)
    return head + encoded_name(name) + _QUESTION.pack(type_, IN) + b"\0" + _RECORD.pack(OPT, EDNS_BYTES_MAX, 0, 0)


def address_record(name: Name, ttl: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Record:
    return Record(name, A if address.version == 4 else AAAA, ttl, address.packed)


def srv_record(name: Name, ttl: int, priority: int, weight: int, port: int, target: Name) -> Record:
    return Record(name, SRV, ttl, _SRV.pack(priority, weight, port) + _encoded_target(target))  # its target is never compressed


def soa_record(zone: Name, ttl: int, serial: int) -> Record:
    head = encoded_name((b"ns", *zone)) + encoded_name((b"hostmaster", *zone))
    return Record(zone, SOA, ttl, head + _SOA.pack(serial & 0xFFFFFFFF, 60, 10, 3600, ttl))


def ns_record(zone: Name, ttl: int) -> Record:
    return Record(zone, NS, ttl, encoded_name((b"ns", *zone)))


def write_malformed(error: Malformed) -> bytes | None:
    """FORMERR with nothing but a header: there may be no question that could be repeated."""
    if error.id is None:
        return None
    return HEADER.pack(error.id, 0x8000 | error.opcode << 11 | FORMERR, 0, 0, 0, 0)


def write_answer(query: Query, answer: Answer, limit: int) -> bytes:
    """At most `limit` bytes. Addresses that come along are left out first; an answer that does not fit is marked truncated and
    sent without records, so that nobody takes a part for the whole."""
    opt = b"" if query.edns_bytes is None else b"\0" + _RECORD.pack(OPT, EDNS_BYTES_MAX, answer.rcode >> 4 << 24, 0)
    question = b"" if query.opcode else encoded_name(query.name) + _QUESTION.pack(query.type, query.cls)
    body = _Body(query.name if question else (), HEADER.size + len(question), limit - len(opt))
    fits = body.add(answer.answers) and body.add(answer.authority)
    counts = [len(answer.answers), len(answer.authority)] if fits else [0, 0]
    records = b"".join(body.parts) if fits else b""
    extra = body.add_some(answer.additional) if fits else 0
    flags = 0x8000 | query.opcode << 11 | answer.rcode & 15
    flags |= (0x400 if answer.authoritative else 0) | (0 if fits else 0x200) | (0x100 if query.recursion_desired else 0)
    records = b"".join(body.parts) if fits else records
    head = HEADER.pack(query.id, flags, 1 if question else 0, *counts, extra + (1 if opt else 0))
    return head + question + records + opt


class _Body:
    """Records one after the other, with owner names written once and pointed at afterwards."""

    def __init__(self, asked: Name, start: int, limit: int) -> None:
        self.parts: list[bytes] = []
        self._at = start
        self._limit = limit
        self._names: dict[Name, int] = {}
        self._know(asked, HEADER.size)

    def add(self, records: Iterable[Record]) -> bool:
        return all(self._one(record) for record in records)

    def add_some(self, records: Iterable[Record]) -> int:
        count = 0
        for record in records:
            if not self._one(record):
                break
            count += 1
        return count

    def _one(self, record: Record) -> bool:
        owner = self._owner(record.name)
        part = owner + _RECORD.pack(record.type, IN, record.ttl, len(record.data)) + record.data
        if self._at + len(part) > self._limit:
            return False
        self._know(record.name, self._at)
        self.parts.append(part)
        self._at += len(part)
        return True

    def _know(self, name: Name, at: int) -> None:
        if name in self._names:
            return
        for index in range(len(name)):
            if at > 0x3FFF or name[index:] in self._names:
                return
            self._names[name[index:]] = at
            at += len(name[index]) + 1

    def _owner(self, name: Name) -> bytes:
        out = b""
        for index in range(len(name)):
            at = self._names.get(name[index:])
            if at is not None:
                return out + struct.pack("!H", 0xC000 | at)
            out += bytes((len(name[index]),)) + name[index]
        return out + b"\0"
