"""Text that is no manifest: broken, hostile or only odd. JSON and YAML, one object and files of several."""

from __future__ import annotations

import json

import pytest

from fairlead.wire.limits import BODY_BYTES_MAX, DEPTH_MAX, NODES_MAX
from fairlead.wire.manifest import Media, decode_object, decode_objects
from fairlead.wire.yaml_codec import encode_yaml, parse_yaml
from tests.wire.manifests import decoded, plain, told

DEEP_JSON = b'{"a":' * 100_000
TOO_MANY = b"[" + b"0," * NODES_MAX + b"0]"


@pytest.mark.parametrize(
    ("text", "media", "message"),
    [
        (b"", "json", "is empty; expected an object"),
        (b" \n", "json", "is empty; expected an object"),
        (b"", "yaml", "is empty; expected an object"),
        (b"---\n---\n# nothing\n", "yaml", "is empty; expected an object"),
        (b"{", "json", "is not JSON: line 1, column 2: expecting property name enclosed in double quotes"),
        (b'{"a":1,}', "json", "is not JSON: line 1, column 8: expecting property name enclosed in double quotes"),
        (b"{} {}", "json", "is not JSON: line 1, column 4: extra data"),
        (b"a: b: c", "yaml", "is not YAML: line 1, column 5: mapping values are not allowed in this context"),
        (b"a: [", "yaml", "is not YAML: line 2, column 1: did not find expected node content"),
        (b"\xff\xfe{\x00}\x00", "json", "is not UTF-8 text: byte 0 cannot be read"),
        (b"name: \xc3", "yaml", "is not UTF-8 text: byte 6 cannot be read"),
        (b"a: \x00", "yaml", "is not YAML: the character at 3 is not allowed"),
        (b" " * (BODY_BYTES_MAX + 1), "json", f"is too large: {BODY_BYTES_MAX + 1} bytes, at most {BODY_BYTES_MAX} are read"),
        (b" " * (BODY_BYTES_MAX + 1), "yaml", f"is too large: {BODY_BYTES_MAX + 1} bytes, at most {BODY_BYTES_MAX} are read"),
        (DEEP_JSON, "json", f"is nested too deeply; at most {DEPTH_MAX} levels are read"),
        (DEEP_JSON, "yaml", f"line 1, column 321: is nested too deeply; at most {DEPTH_MAX} levels are read"),
        (b"- " * 100_000, "yaml", f"line 1, column 129: is nested too deeply; at most {DEPTH_MAX} levels are read"),
        (TOO_MANY, "json", f"has too many values; at most {NODES_MAX} are read"),
        (b"a: &x 1\nb: *x", "yaml", "line 1, column 4: anchors (&x) are not allowed; write the value out"),
        (b"a: *x", "yaml", "line 1, column 4: aliases (*x) are not allowed; write the value out"),
        (b"a: !!python/name:os.exit x", "yaml", "line 1, column 4: tags (tag:yaml.org,2002:python/name:os.exit) are not allowed"),
        (b"!!map {}", "yaml", "line 1, column 1: tags (tag:yaml.org,2002:map) are not allowed"),
        (b"{1: x}", "yaml", "line 1, column 2: the key 1 is not a string; put it in quotes"),
        (b"? [a]\n: x", "yaml", "line 1, column 5: a list or mapping may not be a key"),
        (b"a: 1\n---\na: 2", "yaml", "expected one object, got 2 documents"),
        (b"[]", "json", "expected an object, got a list"),
        (b"NaN", "json", "must be a number; NaN is none"),
        (b"just words", "yaml", "expected an object, got a string"),
        (b"9" * 5000, "json", "is too large; a whole number may be -2^63 to 2^63 - 1"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_read_is_told(text: bytes, media: Media, message: str) -> None:
    assert told(decode_object(text, media=media)) == {"": message}


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (b'{"spec":{"a":1,"a":2}}', "spec.a", "stands here more than once; keep one"),
        (b'{"kind":"A","kind":"A","kind":"Node"}', "kind", "stands here more than once; keep one"),
        (b'{"spec":{"replicas":Infinity}}', "spec.replicas", "must be a number; Infinity is none"),
        (b'{"spec":{"replicas":1e999}}', "spec.replicas", "is too large for a number"),
        (b'{"spec":{"x":["\\ud800"]}}', "spec.x[0]", "holds half a surrogate pair, which is not text"),
        (b'{"\\ud800":1}', "", "holds half a surrogate pair, which is not text"),
    ],
)
def test_trouble_inside_the_text_is_told_with_its_path(text: bytes, path: str, message: str) -> None:
    assert told(decode_object(text, media="json"))[path] == message


def test_trouble_inside_yaml_is_told_with_its_path() -> None:
    text = b"spec:\n  replicas: .inf\n  replicas: 99999999999999999999\n  labels: {a: 1, a: 2}\n"
    found = told(decode_object(text, media="yaml"))
    assert found["spec.replicas"] == "is too large; a whole number may be -2^63 to 2^63 - 1"
    assert found["spec.labels.a"] == "stands here more than once; keep one"


def test_trouble_in_the_text_and_in_the_shape_is_told_together() -> None:
    text = json.dumps(plain(replicas="x")).replace('"x"', '"x", "suspend": NaN, "suspend": 1')
    assert told(decode_object(text.encode(), media="json")) == {
        "spec.suspend": "stands here more than once; keep one",
        "spec.replicas": "expected a whole number, got a string",
    }


@pytest.mark.parametrize("media", ["json", "yaml"])
def test_a_byte_order_mark_is_no_trouble(media: Media) -> None:
    text = b"\xef\xbb\xbf" + json.dumps(plain(replicas=2)).encode()
    assert decoded(decode_object(text, media=media)).record.spec.replicas == 2  # type: ignore[attr-defined]


def test_words_that_yaml_once_took_for_something_else_stay_words() -> None:
    head = b"apiVersion: fairlead.dev/v1alpha1\nkind: Workload\n"
    text = head + b"metadata: {name: no, labels: {a: yes, b: 2026-01-31, c: 1:30, d: 0x1F}}"
    meta = decoded(decode_object(text, media="yaml")).record.metadata  # type: ignore[attr-defined]
    assert meta.name == "no"
    assert meta.labels == {"a": "yes", "b": "2026-01-31", "c": "1:30", "d": "0x1F"}


def test_merge_keys_are_only_an_unknown_field() -> None:
    text = b"apiVersion: fairlead.dev/v1alpha1\nkind: Workload\nmetadata: {name: a}\n'<<': {spec: {}}\n"
    assert told(decode_object(text, media="yaml")) == {"[<<]": "unknown field"}


# --- files of several objects -----------------------------------------------------------------------------------------------


def test_a_file_gives_all_its_documents_and_the_items_of_lists() -> None:
    one = json.dumps(plain(replicas=1))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [plain(replicas=2), plain(replicas=3)]})
    got = decode_objects(f"---\n{one}\n---\n# nothing\n---\n{listed}\n".encode(), media="yaml")
    assert isinstance(got, list)
    assert [item.record.spec.replicas for item in got] == [1, 2, 3]  # type: ignore[attr-defined]


def test_faults_of_a_file_name_the_document_and_the_item() -> None:
    bad = json.dumps(plain(replicas="x"))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [plain(), plain(replicas="x"), 5]})
    assert told(decode_objects(f"{json.dumps(plain())}\n---\n{bad}\n---\n{listed}".encode(), media="yaml")) == {
        "document[2].spec.replicas": "expected a whole number, got a string",
        "document[3].items[1].spec.replicas": "expected a whole number, got a string",
        "document[3].items[2]": "expected an object, got a whole number",
    }


def test_a_file_of_one_document_needs_no_number() -> None:
    assert set(told(decode_objects(json.dumps(plain(replicas="x")).encode(), media="json"))) == {"spec.replicas"}


@pytest.mark.parametrize(
    "text", ["71e4902513407769", "12e3", "1_000", "0x1f", "null", "yes", "1.5", ".inf", "a: b", "", "two\nlines\n"]
)
def test_text_that_looks_like_something_else_is_read_back_as_text(text: str) -> None:
    assert parse_yaml(encode_yaml({"name": text}).encode()) == [{"name": text}]
