"""What the zone says: from a question and the directory to an answer. Pure but for the draws that spread clients.

Owns the names (docs/endpoints.md lists them) and which members are told. Never recurses, lists no tenant's names, knows no
sockets. Called by dns.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from fairlead.ports import Random
from fairlead.serving.directory import Member, Picture
from fairlead.serving.dns_wire import (
    AAAA,
    ANY,
    AXFR,
    BADVERS,
    IN,
    IXFR,
    NOERROR,
    NOTIMP,
    NS,
    NXDOMAIN,
    REFUSED,
    SOA,
    SRV,
    A,
    Answer,
    Name,
    Query,
    Record,
    address_record,
    folded,
    name_of,
    ns_record,
    soa_record,
    srv_record,
)

ANSWERS_MAX: Final = 256  # of one answer; more would fill a TCP message, and no client tries that many
FRESH, LEFT = 10, 20  # SRV priorities: regions that are heard, and those that are not
T = TypeVar("T")


class Known(Protocol):
    """What the zone asks of a directory."""

    def picture(self, tenant: str, workload: str) -> Picture | None: ...

    def knows_tenant(self, tenant: str) -> bool: ...


class ZoneSettings(msgspec.Struct, frozen=True):
    zone: str = "svc.fairlead.local"
    ttl_s: int = 5  # as short as a rollout's step, so that a withdrawn endpoint is soon forgotten
    leave_out_s: float = 60.0  # a region unheard for longer is told only where no other region serves
    tenants: frozenset[str] = frozenset()  # empty: all
    address: str = ""  # of this server, for its own name


class _Asked(NamedTuple):
    """A name within the zone, taken apart. Which parts are empty says what sort of name it is."""

    tenant: str = ""
    workload: str = ""
    region: str = ""
    slot: int | None = None
    port: str = ""
    between: bool = False  # `_tcp.` alone: nothing is there, something lies below


class Zone:
    def __init__(self, directory: Known, random: Random, settings: ZoneSettings | None = None) -> None:
        self.settings = settings or ZoneSettings()
        self._directory = directory
        self._random = random
        self._zone = name_of(self.settings.zone)

    def answer(self, query: Query) -> Answer:
        if query.edns_version:
            return Answer(BADVERS, authoritative=False)
        if query.opcode:
            return Answer(NOTIMP, authoritative=False)
        name = folded(query.name)
        if query.cls not in (IN, ANY) or query.type in (AXFR, IXFR) or name[-len(self._zone) :] != self._zone:
            return Answer(REFUSED, authoritative=False)
        inside = name[: -len(self._zone)]
        if not inside:
            return self._apex(query)
        if inside == (b"ns",):
            return self._addresses(query, [self.settings.address] if self.settings.address else [])
        asked = _taken_apart(inside)
        if asked is None or (self.settings.tenants and asked.tenant not in self.settings.tenants):
            return self._none()
        if not asked.workload:
            return self._nothing() if self._directory.knows_tenant(asked.tenant) else self._none()
        picture = self._directory.picture(asked.tenant, asked.workload)
        return self._none() if picture is None else self._of_workload(query, asked, picture)

    def _of_workload(self, query: Query, asked: _Asked, picture: Picture) -> Answer:
        if asked.region and picture.source(asked.region) is None:
            return self._none()
        members = self._told(picture, asked)
        if asked.slot is not None and not members:
            return self._none()
        if asked.between:
            return self._nothing()
        if not asked.port:
            return self._addresses(query, [member.address for member in members])
        if not any(m.port(asked.port) is not None for m in picture.members):
            return self._none()
        if query.type not in (SRV, ANY):
            return self._nothing()
        return self._services(query, asked, picture, members)

    def _told(self, picture: Picture, asked: _Asked) -> list[Member]:
        """Whoever matches; regions unheard for long only where there is nobody else, or where they were asked for."""
        found = [
            m
            for m in picture.members
            if (not asked.region or m.region == asked.region) and (asked.slot is None or m.slot == asked.slot)
        ]
        if asked.region or asked.slot is not None:
            return found
        ages = {source.region: source.age_s or 0.0 for source in picture.sources}
        return [m for m in found if ages[m.region] <= self.settings.leave_out_s] or found

    def _addresses(self, query: Query, addresses: Sequence[str]) -> Answer:
        wanted = {A: (4,), AAAA: (6,), ANY: (4, 6)}.get(query.type, ())
        known = [ip for text in dict.fromkeys(addresses) if (ip := _ip(text)) is not None]
        found = [ip for ip in known if ip.version in wanted]
        if not found:
            return self._nothing()
        records = [address_record(query.name, self.settings.ttl_s, ip) for ip in self._turned(found)[:ANSWERS_MAX]]
        return Answer(NOERROR, answers=records)

    def _services(self, query: Query, asked: _Asked, picture: Picture, members: Sequence[Member]) -> Answer:
        ttl, base = self.settings.ttl_s, (asked.workload.encode(), asked.tenant.encode(), *self._zone)
        heard = {source.region for source in picture.sources if source.state == "Current"}
        fits = [(m, p, ip) for m in members if (p := m.port(asked.port)) is not None and (ip := _ip(m.address)) is not None]
        if not fits:
            return self._nothing()
        fits = self._turned(fits)
        fits.sort(key=lambda fit: fit[0].region not in heard)  # stable: whoever reads only the first ones reads fresh ones
        answers: list[Record] = []
        additional: list[Record] = []
        for member, port, ip in fits[:ANSWERS_MAX]:
            target = (str(member.slot).encode(), member.region.encode(), *base)
            answers.append(srv_record(query.name, ttl, FRESH if member.region in heard else LEFT, 10, port, target))
            additional.append(address_record(target, ttl, ip))
        return Answer(NOERROR, answers=answers, additional=additional)

    def _turned(self, items: Sequence[T]) -> list[T]:
        """Begins elsewhere each time, so that clients who take the first one do not all take the same."""
        start = self._random.randrange(len(items))
        return [*items[start:], *items[:start]]

    def _apex(self, query: Query) -> Answer:
        if query.type in (SOA, ANY):
            return Answer(answers=[self._soa()])
        if query.type == NS:
            return Answer(answers=[ns_record(self._zone, self.settings.ttl_s)])
        return self._nothing()

    def _soa(self) -> Record:
        return soa_record(self._zone, self.settings.ttl_s, 1)  # nobody transfers this zone, so its serial says nothing

    def _nothing(self) -> Answer:
        return Answer(NOERROR, authority=[self._soa()])

    def _none(self) -> Answer:
        return Answer(NXDOMAIN, authority=[self._soa()])


@lru_cache(maxsize=65_536)  # parsed for every answer otherwise, and there are only so many nodes
def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """A node may be known by a name alone; that is no address to tell."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _taken_apart(inside: Name) -> _Asked | None:
    """[[_PORT.]_tcp.][SLOT.][REGION.]WORKLOAD.TENANT, from the right. None: no such name can be."""
    try:
        labels = [label.decode("ascii") for label in inside]
    except UnicodeDecodeError:
        return None
    tenant, *rest = reversed(labels)
    if not rest:
        return _Asked(tenant)
    workload, *rest = rest
    asked = _Asked(tenant, workload)
    if rest and not rest[0].startswith("_") and not rest[0].isdecimal():
        asked = asked._replace(region=rest.pop(0))
    if rest and rest[0].isdecimal():
        plain = len(rest) == 1 and len(rest[0]) <= 9 and str(int(rest[0])) == rest[0]
        return asked._replace(slot=int(rest[0])) if plain else None
    if not rest:
        return asked
    if rest[0] != "_tcp" or len(rest) > 2:
        return None
    if len(rest) == 1:
        return asked._replace(between=True)
    return asked._replace(port=rest[1][1:]) if rest[1].startswith("_") and len(rest[1]) > 1 else None
