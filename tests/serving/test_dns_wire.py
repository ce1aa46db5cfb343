"""DNS messages: whatever bytes come, a query or a Malformed; what we write, others can read, within the size it may have."""

from __future__ import annotations

import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.serving.dns import DnsServer
from fairlead.serving.dns_wire import (
    A,
    Answer,
    Malformed,
    Query,
    address_record,
    name_of,
    read_query,
    read_reply,
    srv_record,
    write_answer,
    write_malformed,
    write_query,
)
from fairlead.serving.dns_zone import Zone
from tests.authority.planes import FakeClock
from tests.serving.dns_packets import question, take_apart
from tests.serving.planes import Pictures, member, picture

GOOD = question("_http._tcp.api.risk.svc.fairlead.local", "SRV", edns=1232)


def server() -> DnsServer:
    many = picture(*(member("east", slot, f"10.0.0.{slot}") for slot in range(60)))
    return DnsServer(Zone(Pictures(many), random.Random(1)), FakeClock())


SERVER = server()


@given(st.binary(max_size=600), st.booleans())
def test_any_bytes_get_an_answer_or_none_and_never_an_exception(packet: bytes, datagram: bool) -> None:
    answer = SERVER.reply(packet, datagram=datagram)
    if answer is not None:
        assert answer[:2] == packet[:2]
        assert answer[2] & 0x80
        take_apart(answer)


@given(st.data())
def test_a_damaged_question_never_raises(data: st.DataObject) -> None:
    packet = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(packet) - 1))
        packet[at] = data.draw(st.integers(0, 255))
    packet = packet[: data.draw(st.integers(0, len(packet)))]
    answer = SERVER.reply(bytes(packet), datagram=True)
    if answer is not None:
        assert len(answer) <= 1232
        take_apart(answer)


@given(st.binary(max_size=600))
def test_any_bytes_are_read_as_a_reply_or_refused(packet: bytes) -> None:
    for candidate in (packet, b"\0\1\x80\0" + packet, b"\0\1\x80\0\0\0\0\3\0\0\0\0" + packet):
        try:
            read_reply(candidate)
        except Malformed:
            continue


@pytest.mark.parametrize(
    ("change", "answered"),
    [
        (lambda p: p[:11], False),
        (lambda p: b"", False),
        (lambda p: p[:2] + b"\x81\x00" + p[4:], False),  # an answer
        (lambda p: p[:4] + b"\0\0" + p[6:], True),  # no question
        (lambda p: p[:4] + b"\0\2" + p[6:], True),
        (lambda p: p[:30], True),
        (lambda p: p + b"x", True),
        (lambda p: p[:12] + b"\xc0\x0c" + p[-15:], True),  # a name that points at itself
        (lambda p: p[:12] + b"\xc0\x06" + p[-15:], True),  # one that points into the header, where a zero is
        (lambda p: p[:12] + b"\x40" + p[13:], True),
        (lambda p: p[:12] + b"\x3f" + b"a" * 63 + (b"\x3f" + b"a" * 63) * 3 + p[-16:], True),  # 257 bytes of name
        (lambda p: p[:10] + b"\0\2" + p[12:] + p[-11:], True),  # OPT twice
        (lambda p: p[:10] + b"\0\2" + p[12:], True),
    ],
)
def test_what_is_no_question_is_told_so_or_dropped(change: object, answered: bool) -> None:
    packet = change(GOOD)  # type: ignore[operator]
    with pytest.raises(Malformed) as caught:
        read_query(packet)
    answer = write_malformed(caught.value)
    assert (answer is not None) == answered
    if answer is not None:
        assert take_apart(answer).rcode == 1
        assert answer[:2] == packet[:2]
        assert len(answer) == 12


def test_a_question_with_more_records_than_there_is_use_for_is_refused_before_they_are_read() -> None:
    bare, record = GOOD[:-11], b"\0" + bytes(10)
    assert read_query(bare[:6] + b"\0\6\0\5\0\5" + bare[12:] + record * 16).type == read_query(GOOD).type
    for counts in (b"\0\6\0\6\0\5", b"\xff\xff\0\0\0\0", b"\0\0\xff\xff\xff\xff"):
        with pytest.raises(Malformed, match="records beside its question"):
            read_query(bare[:6] + counts + bare[12:] + record * 17)


def test_a_name_of_255_bytes_is_read_and_its_case_is_kept() -> None:
    name = ".".join(["A" * 63] * 3 + ["b" * 61])
    assert read_query(question(name, "A")).name == name_of(name)


def test_a_query_says_what_its_sender_can_take() -> None:
    query = read_query(GOOD)
    assert (query.id, query.type, query.cls, query.edns_bytes, query.recursion_desired) == (0x1234, 33, 1, 1232, True)
    assert read_query(question("a.b", "A")).edns_bytes is None


@given(st.integers(100, 2000), st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_an_answer_keeps_its_limit_and_is_whole_or_marked(limit: int, answers: int, extras: int, edns: bool) -> None:
    name, target = name_of("_http._tcp.api.risk.svc.fairlead.local"), name_of("1.east.api.risk.svc.fairlead.local")
    query = Query(7, 0, False, name, 33, 1, 1232 if edns else None)
    told = Answer(
        answers=[srv_record(name, 5, 10, 10, port, target) for port in range(answers)],
        additional=[address_record(target, 5, ipaddress.ip_address(port)) for port in range(extras)],
    )
    packet = write_answer(query, told, limit)
    seen = take_apart(packet)
    assert len(packet) <= limit
    assert len(seen.answers) == (0 if seen.truncated else answers)
    assert len(seen.additional) <= extras
    assert not (seen.truncated and seen.additional)
    if len(packet) < limit - 200:
        assert seen.truncated or len(seen.additional) == extras


def test_names_beyond_the_reach_of_pointers_are_written_out() -> None:
    names = [name_of(f"{'x' * 60}.n{number}.zone") for number in range(300)] * 2
    told = Answer(answers=[address_record(name, 5, ipaddress.ip_address("10.0.0.1")) for name in names])
    packet = write_answer(Query(7, 0, False, name_of("zone"), 1, 1, None), told, 65_535)
    assert len(packet) > 0x4000
    assert [name for name, *_ in take_apart(packet).answers] == [b".".join(name).decode() for name in names]


def test_a_reply_that_ends_within_a_record_is_refused() -> None:
    head, record = b"\0\1\x84\0\0\0\0\1\0\0\0\0", b"\1a\0\0\1\0\1\0\0\0\5\0\4abcd"
    assert read_reply(head + record).addresses == {(b"a",): ["97.98.99.100"]}
    for cut in range(1, len(record)):
        with pytest.raises(Malformed):
            read_reply(head + record[:-cut])


def test_our_own_client_reads_what_our_server_writes() -> None:
    name, target = name_of("_http._tcp.api.risk.zone"), name_of("1.east.api.risk.zone")
    query = read_query(write_query(9, name, 33))
    told = Answer(
        answers=[srv_record(name, 5, 10, 10, 8080, target)], additional=[address_record(target, 5, ipaddress.ip_address("::1"))]
    )
    reply = read_reply(write_answer(query, told, 1232))
    assert reply.services == [(10, 8080, target)]
    assert reply.addresses == {target: ["::1"]}
    assert (reply.id, reply.question, reply.truncated) == (9, (name, 33), False)


def test_a_reply_whose_names_go_round_in_circles_is_refused() -> None:
    head = b"\0\1\x84\0\0\0\0\1\0\0\0\0"
    with pytest.raises(Malformed, match="lead back"):
        read_reply(head + b"\xc0\x0c" + A.to_bytes(2, "big") + b"\0\1\0\0\0\5\0\4abcd")
    with pytest.raises(Malformed, match="lead back"):
        read_reply(head + b"\1a\xc0\x0c" + A.to_bytes(2, "big") + b"\0\1\0\0\0\5\0\4abcd")
    with pytest.raises(Malformed, match="lead back"):
        read_reply(head + b"\xc0\x18" + A.to_bytes(2, "big") + b"\0\1\0\0\0\5\0\4\1a\0d")  # forward, to a name
