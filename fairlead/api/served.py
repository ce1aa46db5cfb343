"""Objects as clients see them: defaults written out, empty fields left out, resourceVersion and kind added.

Records leave out what stands at its default, which is right for storage and wrong for people: `kubectl get -o yaml` should say
`replicas: 1`, and client-side apply compares with what it sees. So each record has a served twin, decoded straight from the
stored bytes, in which every default that is not empty is written. Called by whatever answers with an object.
"""

from __future__ import annotations

import functools
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from fairlead.model import codec
from fairlead.model.kinds.intent import Secret, StageCounts
from fairlead.model.meta import Record
from fairlead.model.registry import BY_KIND, KINDS
from fairlead.security.strongbox import LAST_APPLIED
from fairlead.wire.json_codec import API_VERSION, encode

HIDDEN: Final = "(hidden)"  # what is shown of a secret's values; written back, it means "as it was"
_HEAD: Final = b'{"metadata":{'
_SHOWN_WHOLE: Final[tuple[type, ...]] = (StageCounts,)  # counts of 0 are news too


@functools.cache
def twin(record: type[Any]) -> type[Any]:
    """A record type with the same fields that always shows the ones whose defaults mean something."""
    hints = get_type_hints(record)
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(record):
        wanted = _twin_type(hints[field.name])
        if field.required:
            fields.append((field.name, wanted, msgspec.field(name=field.encode_name)))
        else:
            fields.append((field.name, wanted, _default(record, field, wanted)))
    config = record.__struct_config__
    return msgspec.defstruct(
        record.__name__, fields, frozen=True, gc=False, omit_defaults=True, kw_only=True, array_like=config.array_like
    )


def _default(record: type[Any], field: msgspec.structs.FieldInfo, wanted: Any) -> Any:
    name = field.encode_name
    value = field.default
    if value is msgspec.NODEFAULT:  # a factory: of an empty list or dict
        return msgspec.field(name=name, default_factory=field.default_factory)
    if isinstance(value, msgspec.Struct):
        made = codec.convert(msgspec.msgpack.decode(codec.encode(value)), wanted)
        # An object that would be empty is not shown; one with meaningful defaults is.
        if encode(made) == b"{}":
            return msgspec.field(name=name, default=made)
        return msgspec.field(name=name, default_factory=lambda: made)
    if value or (record in _SHOWN_WHOLE and value is not None):
        return msgspec.field(name=name, default_factory=lambda: value)  # msgspec writes what a factory made
    return msgspec.field(name=name, default=value)


def _twin_type(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Record):
        return twin(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None or not arguments:
        return hint
    if origin is tuple:
        return tuple[tuple(_twin_type(a) if a is not Ellipsis else a for a in arguments)]  # type: ignore[misc]
    if origin is dict:
        return dict[arguments[0], _twin_type(arguments[1])]  # type: ignore[misc,valid-type]
    made = [_twin_type(a) for a in arguments]
    if all(new is old for new, old in zip(made, arguments, strict=True)):
        return hint
    return functools.reduce(lambda a, b: a | b, made)  # Record | None and its like


@functools.cache
def _decoder(plural: str) -> msgspec.msgpack.Decoder[Any]:
    return codec.decoder(_twin_type(KINDS[plural].record))


def decode_whole(plural: str, raw: bytes) -> Any:
    """The served twin of a stored object: attributes as in the record."""
    return _decoder(plural).decode(raw)


def decode(plural: str, raw: bytes) -> Any:
    """The same, with what is secret hidden."""
    served = decode_whole(plural, raw)
    if plural == "secrets":
        hidden = msgspec.structs.replace(served.spec, data=dict.fromkeys(served.spec.data, HIDDEN))
        kept = {key: value for key, value in served.metadata.annotations.items() if key != LAST_APPLIED}
        metadata = msgspec.structs.replace(served.metadata, annotations=kept)
        served = msgspec.structs.replace(served, metadata=metadata, spec=hidden)
    return served


def tree_of(record: Record) -> dict[str, Any]:
    """A record as the plain tree clients would see, secrets included: for the server's own comparisons."""
    decoder = _decoder(BY_KIND[type(record).__name__].plural)
    tree: dict[str, Any] = msgspec.json.decode(encode(decoder.decode(codec.encode(record))))
    return tree


def body_of(served: Any) -> bytes:
    """The text of an object after the beginning of its metadata: what is the same whatever version it is shown with."""
    body = encode(served)
    assert body.startswith(_HEAD), "an object starts with its metadata"
    return body[len(_HEAD) :]


def metadata_of(served: Any) -> bytes:
    """Metadata alone, after its opening brace, without managedFields: who asks for it wants little."""
    metadata = served.metadata
    if metadata.managed_fields:
        metadata = msgspec.structs.replace(metadata, managed_fields=())
    return encode(metadata)[1:]


def text(body: bytes, kind: str, resource_version: str, api_version: str = API_VERSION) -> bytes:
    """One object as JSON text."""
    version = f'"resourceVersion":"{resource_version}",' if resource_version else ""
    head = f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{{version}'
    return head.encode() + body


def hides(record: Any) -> bool:
    return isinstance(record, Secret)
