"""What the zone says to each question: names, types, regions that are not heard, and what is told to nobody."""

from __future__ import annotations

import random

import pytest

from fairlead.serving.directory import Picture
from fairlead.serving.dns import DnsServer
from fairlead.serving.dns_zone import Zone, ZoneSettings
from tests.authority.planes import FakeClock
from tests.serving.dns_packets import Seen, question, rows, take_apart
from tests.serving.planes import Pictures, member, picture

ZONE = "svc.fairlead.local"
API = picture(
    member("east", 0, "10.0.0.1", http=8000, admin=9000),
    member("east", 1, "10.0.0.2"),
    member("west", 2, "fd00::1"),
    regions={"north": None},
)


def ask(name: str, type_: str, *pictures: Picture, settings: ZoneSettings | None = None, zone: str = ZONE, **fields: int) -> Seen:
    server = DnsServer(Zone(Pictures(*(pictures or (API,))), random.Random(3), settings), FakeClock())
    answer = server.reply(question(f"{name}.{zone}".lstrip("."), type_, **fields), datagram=True)
    assert answer is not None
    return take_apart(answer)


def texts(seen: Seen) -> list[str]:
    assert seen.rcode == 0
    assert seen.authoritative
    return sorted(text for _, _, _, text in seen.answers)


def test_a_workload_has_the_addresses_of_all_regions_by_family() -> None:
    assert texts(ask("api.risk", "A")) == ["10.0.0.1", "10.0.0.2"]
    assert texts(ask("api.risk", "AAAA")) == ["fd00::1"]
    assert {ttl for _, _, ttl, _ in ask("api.risk", "A").answers} == {5}


def test_a_region_and_a_slot_have_names_of_their_own() -> None:
    assert texts(ask("east.api.risk", "A")) == ["10.0.0.1", "10.0.0.2"]
    assert texts(ask("1.api.risk", "A")) == ["10.0.0.2"]
    assert texts(ask("0.east.api.risk", "A")) == ["10.0.0.1"]
    assert texts(ask("2.west.api.risk", "AAAA")) == ["fd00::1"]


def test_services_name_port_slot_and_region_and_bring_the_addresses_along() -> None:
    seen = ask("_http._tcp.api.risk", "SRV", edns=1232)
    assert texts(seen) == [
        f"10 10 8000 0.east.api.risk.{ZONE}",
        f"10 10 8001 1.east.api.risk.{ZONE}",
        f"10 10 8002 2.west.api.risk.{ZONE}",
    ]
    assert rows(seen.additional) == [
        (f"0.east.api.risk.{ZONE}", "A", "10.0.0.1"),
        (f"1.east.api.risk.{ZONE}", "A", "10.0.0.2"),
        (f"2.west.api.risk.{ZONE}", "AAAA", "fd00::1"),
    ]
    assert texts(ask("_admin._tcp.api.risk", "SRV")) == [f"10 10 9000 0.east.api.risk.{ZONE}"]
    assert len(texts(ask("_http._tcp.east.api.risk", "SRV"))) == 2


def test_every_target_of_a_service_resolves() -> None:
    for text in texts(ask("_http._tcp.api.risk", "SRV", edns=1232)):
        name = text.split()[3].removesuffix(f".{ZONE}")
        assert len(ask(name, "A").answers) + len(ask(name, "AAAA").answers) == 1


@pytest.mark.parametrize(
    "name",
    ["other.risk", "api.other", "other", "7.api.risk", "2.east.api.risk", "south.api.risk", "_web._tcp.api.risk",
     "_http._udp.api.risk", "x._http._tcp.api.risk", "http._tcp.api.risk", "01.api.risk", "5.0.api.risk", "_._tcp.api.risk",
     "9999999999.api.risk", "x.y.z.api.risk"],
)  # fmt: skip
def test_a_name_that_is_not_there_is_denied_with_the_zones_start(name: str) -> None:
    seen = ask(name, "A")
    assert (seen.rcode, seen.answers) == (3, [])
    assert seen.authoritative
    assert [(n, t) for n, t, _, _ in seen.authority] == [(ZONE, "SOA")]


@pytest.mark.parametrize(
    ("name", "type_"),
    [("api.risk", "SRV"), ("north.api.risk", "A"), ("risk", "A"), ("_tcp.api.risk", "A"), ("_http._tcp.api.risk", "A"),
     ("2.api.risk", "A"), ("1.api.risk", "AAAA"), ("", "A"), ("_tcp.east.api.risk", "SRV"), ("_admin._tcp.west.api.risk", "SRV")],
)  # fmt: skip
def test_a_name_that_is_there_without_what_was_asked_is_empty_with_the_zones_start(name: str, type_: str) -> None:
    seen = ask(name, type_)
    assert (seen.rcode, seen.answers) == (0, [])
    assert [(n, t) for n, t, _, _ in seen.authority] == [(ZONE, "SOA")]


def test_a_workload_that_serves_nothing_now_is_empty_not_unknown() -> None:
    seen = ask("api.risk", "A", picture(regions={"east": 0.0}))
    assert (seen.rcode, seen.answers) == (0, [])


def test_the_apex_has_a_start_and_a_name_server() -> None:
    assert [t for _, t, _, _ in ask("", "SOA").answers] == ["SOA"]
    assert texts(ask("", "NS")) == [f"ns.{ZONE}"]
    assert texts(ask("ns", "A", settings=ZoneSettings(address="127.0.0.1"))) == ["127.0.0.1"]


@pytest.mark.parametrize(("zone", "type_"), [("example.com", "A"), ("fairlead.local", "A"), (ZONE, "AXFR"), ("local", "SOA")])
def test_nothing_is_looked_up_elsewhere_and_nothing_is_listed(zone: str, type_: str) -> None:
    seen = ask("", type_, zone=zone)
    assert (seen.rcode, seen.answers, seen.authority) == (5, [], [])
    assert not seen.authoritative
    assert not seen.flags & 0x0080  # no recursion to be had


def test_case_does_not_matter_and_is_sent_back_as_it_came() -> None:
    seen = ask("API.riSK", "A")
    assert texts(seen) == ["10.0.0.1", "10.0.0.2"]
    assert b"API\x04riSK" in seen.question
    assert {name for name, *_ in seen.answers} == {f"API.riSK.{ZONE}"}


def test_other_operations_versions_and_classes_are_refused_as_such() -> None:
    assert ask("api.risk", "A", flags=0x2800).rcode == 4
    assert ask("api.risk", "A", edns=1232, version=1).rcode == 16


def test_regions_not_heard_come_last_and_are_left_out_after_a_while() -> None:
    def told(age_s: float) -> Picture:
        return picture(member("east", 0, "10.0.0.1"), member("west", 1, "10.0.0.2"), regions={"west": age_s})

    services = [text for _, _, _, text in ask("_http._tcp.api.risk", "SRV", told(20.0)).answers]
    assert [text[:2] for text in services] == ["10", "20"]
    assert "east" in services[0]
    assert texts(ask("api.risk", "A", told(20.0))) == ["10.0.0.1", "10.0.0.2"]
    assert texts(ask("api.risk", "A", told(61.0))) == ["10.0.0.1"]
    assert len(texts(ask("_http._tcp.api.risk", "SRV", told(61.0)))) == 1
    assert texts(ask("west.api.risk", "A", told(61.0))) == ["10.0.0.2"]


def test_where_no_region_is_heard_all_that_was_known_is_told() -> None:
    lost = picture(member("east", 0, "10.0.0.1"), member("west", 1, "10.0.0.2"), regions={"east": 900.0, "west": 900.0})
    assert texts(ask("api.risk", "A", lost)) == ["10.0.0.1", "10.0.0.2"]


def test_one_slot_in_two_regions_keeps_each_port_with_its_own_address() -> None:
    both = picture(member("east", 3, "10.0.0.1", http=1), member("west", 3, "10.0.0.2", http=2))
    seen = ask("_http._tcp.api.risk", "SRV", both)
    addresses = {name: text for name, _, _, text in seen.additional}
    pairs = {(addresses[text.split()[3]], text.split()[2]) for text in texts(seen)}
    assert pairs == {("10.0.0.1", "1"), ("10.0.0.2", "2")}


def test_an_endpoint_known_by_a_name_alone_is_told_to_nobody() -> None:
    seen = ask("_http._tcp.api.risk", "SRV", picture(member("east", 0, "node-a"), member("east", 1, "10.0.0.2")))
    assert texts(seen) == [f"10 10 8001 1.east.api.risk.{ZONE}"]
    assert ask("api.risk", "A", picture(member("east", 0, "node-a"))).answers == []


def test_a_server_for_some_tenants_knows_no_other() -> None:
    other = picture(member("east", 0), name=("billing", "api"))
    only = ZoneSettings(tenants=frozenset({"risk"}))
    assert ask("api.risk", "A", API, other, settings=only).rcode == 0
    assert ask("api.billing", "A", API, other, settings=only).rcode == 3
    assert ask("billing", "A", API, other, settings=only).rcode == 3
    assert ask("api.billing", "A", API, other).rcode == 0


def test_clients_that_take_the_first_answer_are_spread() -> None:
    server = DnsServer(Zone(Pictures(API), random.Random(3)), FakeClock())
    first = set()
    for _ in range(50):
        answer = server.reply(question(f"api.risk.{ZONE}", "A"), datagram=True)
        assert answer is not None
        first.add(take_apart(answer).answers[0][3])
    assert first == {"10.0.0.1", "10.0.0.2"}


def test_many_endpoints_are_told_up_to_a_limit_and_fresh_ones_first() -> None:
    crowd = [member("east", n, f"10.1.{n // 250}.{n % 250}") for n in range(300)]
    gone = [member("west", n + 300, f"10.2.{n // 250}.{n % 250}") for n in range(300)]
    server = DnsServer(Zone(Pictures(picture(*crowd, *gone, regions={"west": 20.0})), random.Random(5)), FakeClock())
    answer = server.reply(question(f"_http._tcp.api.risk.{ZONE}", "SRV"), datagram=False)
    assert answer is not None
    seen = take_apart(answer)
    assert len(seen.answers) == 256
    assert {text[:2] for _, _, _, text in seen.answers} == {"10"}
    assert len(answer) < 65_536
