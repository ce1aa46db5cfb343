"""What is stored can be read back, by this version and by the next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.model import codec
from fairlead.model.commands import Bind, Caller, Command, IdempotencyKey, LeaseRenew, SessionId
from fairlead.model.journal import Entry, encode_entry
from fairlead.model.kinds.intent import Workload
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.registry import KINDS, KindInfo
from fairlead.model.resources import Resources
from tests.model.examples import filled, valid, workload

ALL = pytest.mark.parametrize("info", KINDS.values(), ids=lambda info: info.kind)


@ALL
def test_every_kind_comes_back_as_it_went_with_all_fields_set(info: KindInfo) -> None:
    for seed in (1, 2, 30):
        record = filled(info.record, seed)
        assert codec.decoder(info.record).decode(codec.encode(record)) == record


@ALL
def test_every_kind_comes_back_as_it_went_with_most_fields_at_their_defaults(info: KindInfo) -> None:
    record = valid()[info.kind]
    assert codec.decoder(info.record).decode(codec.encode(record)) == record


@ALL
def test_equal_records_have_equal_bytes(info: KindInfo) -> None:
    first, second = filled(info.record), filled(info.record)
    assert first is not second
    assert codec.encode(first) == codec.encode(second)


def test_the_order_in_which_labels_were_written_does_not_reach_the_bytes() -> None:
    there = replace(workload(), metadata=Metadata(name="api", labels={"a": "1", "b": "2"}))
    back = replace(workload(), metadata=Metadata(name="api", labels={"b": "2", "a": "1"}))
    assert codec.encode(there) == codec.encode(back)


@ALL
def test_fields_of_a_newer_version_are_skipped(info: KindInfo) -> None:
    record = filled(info.record)
    plain = msgspec.msgpack.decode(codec.encode(record))
    newer = msgspec.msgpack.encode(_with_strangers(plain))
    assert codec.decoder(info.record).decode(newer) == record


def _with_strangers(plain: dict[str, Any]) -> dict[str, Any]:
    """A field nobody knows at the top and in each of the object's parts."""
    parts = {key: {**part, "fromTheFuture": [1, {"x": 2}]} for key, part in plain.items()}
    return {**parts, "fromTheFuture": "x"}


def test_defaults_are_not_stored() -> None:
    assert msgspec.msgpack.decode(codec.encode(Workload(metadata=Metadata(name="a")))) == {"metadata": {"name": "a"}}


def test_equal_shapes_are_one_object_in_memory() -> None:
    decoder = codec.decoder(Workload)
    one, other = decoder.decode(codec.encode(workload())), decoder.decode(codec.encode(workload()))
    assert one.spec.resources.requests is other.spec.resources.requests


def test_a_type_without_a_stored_form_is_a_bug_and_says_so() -> None:
    with pytest.raises(TypeError, match="has no stored form"):
        codec.encode(object())


def test_amounts_keep_every_bit() -> None:
    big = Resources(cpu=(1 << 53) - 1, memory=1 << 53, scalars=[("gpu", (1 << 53) - 3)])
    spec = workload().spec
    record = workload(resources=replace(spec.resources, requests=big))
    assert codec.decoder(Workload).decode(codec.encode(record)).spec.resources.requests == big


def test_entries_joined_by_hand_are_what_encoding_them_whole_would_give() -> None:
    caller = Caller("scheduler-0", Role.SCHEDULER, lease="scheduler", fencing_epoch=3)
    commands = [
        Command(caller, Bind("risk", "api-0", 1, 1, "n0", 0, 1)),
        Command(caller, Bind("risk", "api-1", 1, 1, "n0", 0, 1), SessionId("c", 7, 3), Evidence(age_seconds=0.5), "trace", 9),
        Command(Caller("ada", Role.USER), LeaseRenew("x", 2), IdempotencyKey("k" * 300)),
    ]
    for command in commands:
        encoded = codec.encode(command)
        effects = [("bindings/risk/api-0", b"raw"), ("schedulingrequests/risk/api-0", None)]
        whole = codec.encode(Entry(msgspec.Raw(encoded), tuple(effects), (("n0", 12),)))
        assert encode_entry(command, encoded, False, effects, (("n0", 12),)) == whole
        assert encode_entry(command, codec.encode(command.body), True, effects, (("n0", 12),)) == whole
