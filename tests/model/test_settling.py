"""Equal objects are stored as equal bytes, wherever their parts come from; and what is read back is stored as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.model import codec
from fairlead.model.kinds.intent import HttpGet, Placement, Probe, Probes, Template
from fairlead.model.meta import FieldsV1
from fairlead.model.registry import KINDS, KindInfo
from fairlead.model.resources import Resources
from fairlead.model.settling import settled
from fairlead.wire import json_codec
from tests.model.examples import filled, valid, workload

ALL = pytest.mark.parametrize("info", KINDS.values(), ids=lambda info: info.kind)


def spelled_out(value: Any) -> Any:
    """An equal value of which no part is the same object, so that no default is recognised by being itself."""
    match value:
        case msgspec.Struct():
            return type(value)(**{name: spelled_out(getattr(value, name)) for name in value.__struct_fields__})
        case str() if type(value) is str and value:
            return value.encode().decode() if len(value) > 1 else msgspec.json.decode(msgspec.json.encode(value))
        case float():
            return float(repr(value))
        case Resources():
            return Resources(value.cpu, value.memory, value.scalars)
        case FieldsV1():
            return FieldsV1(value.text)
        case tuple():
            return tuple(map(spelled_out, value))
        case dict():
            return {key: spelled_out(one) for key, one in value.items()}
        case int() if type(value) is int:
            return int(str(value))
    return value


def stored(value: Any) -> bytes:
    return codec.encode(settled(value))


def examples(info: KindInfo) -> list[Any]:
    return [valid()[info.kind], *(filled(info.record, seed) for seed in (1, 2, 30))]


@ALL
def test_what_is_read_back_is_stored_as_it_was(info: KindInfo) -> None:
    for one in (made for record in examples(info) for made in (record, spelled_out(record))):
        raw = stored(one)
        again = codec.decoder(info.record).decode(raw)
        assert again == one
        assert codec.encode(again) == raw
        assert stored(again) == raw


@ALL
def test_a_default_that_is_spelled_out_is_stored_like_one_that_is_left_out(info: KindInfo) -> None:
    for one in examples(info):
        other = spelled_out(one)
        assert other == one
        assert stored(other) == stored(one)


@ALL
def test_what_is_settled_is_handed_back_as_it_is(info: KindInfo) -> None:
    for one in examples(info):
        once = settled(spelled_out(one))
        assert settled(once) is once


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"residency":{}}', Placement()),
        ('{"probes":{"liveness":{"httpGet":{"path":"/"}}}}', Template(probes=Probes(liveness=Probe(http_get=HttpGet())))),
        ('{"stopGraceSeconds":10,"maxRestarts":5,"driver":"process"}', Template()),
    ],
)
def test_what_a_manifest_says_without_need_is_not_stored(text: str, wanted: Any) -> None:
    assert stored(msgspec.json.decode(text, type=type(wanted))) == codec.encode(wanted)


def test_a_whole_number_where_a_fraction_may_stand_is_stored_like_one() -> None:
    ten: Any = 11
    record = workload(template=Template(command=("x",), stop_grace_seconds=ten))
    assert stored(record) == codec.encode(workload(template=Template(command=("x",), stop_grace_seconds=11.0)))


def test_json_and_the_store_agree_about_what_is_left_out() -> None:
    one = settled(spelled_out(workload()))
    assert json_codec.encode(one) == json_codec.encode(settled(workload()))
