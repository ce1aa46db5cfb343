"""Owns the shape of the etcd v3 messages we use, declared at run time: no .proto file, no generated code to keep in step.

Only the fields we read or set are declared; protobuf skips the rest on the way in. Enums are declared as int32, which is the
same on the wire. Never talks to a server. Called by `etcd_client` and by nobody else.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "fairlead_etcd"  # Ours, so that a process that also loads etcd's own stubs has no clash of names.

Field = descriptor_pb2.FieldDescriptorProto

SCALARS = {
    "int64": Field.TYPE_INT64,
    "uint64": Field.TYPE_UINT64,
    "int32": Field.TYPE_INT32,
    "bytes": Field.TYPE_BYTES,
    "string": Field.TYPE_STRING,
    "bool": Field.TYPE_BOOL,
}

# name -> fields as "name type number"; a `*` repeats, a `?group` puts the field into that oneof. Numbers are etcd's (rpc.proto).
MESSAGES: dict[str, tuple[str, ...]] = {
    "KeyValue": ("key bytes 1", "create_revision int64 2", "mod_revision int64 3", "version int64 4", "value bytes 5"),
    "ResponseHeader": ("cluster_id uint64 1", "member_id uint64 2", "revision int64 3", "raft_term uint64 4"),
    "RangeRequest": (
        "key bytes 1",
        "range_end bytes 2",
        "limit int64 3",
        "revision int64 4",
        "sort_order int32 5",
        "sort_target int32 6",
        "serializable bool 7",
        "keys_only bool 8",
        "count_only bool 9",
    ),
    "RangeResponse": ("header ResponseHeader 1", "kvs *KeyValue 2", "more bool 3", "count int64 4"),
    "PutRequest": ("key bytes 1", "value bytes 2", "ignore_value bool 5"),
    "PutResponse": ("header ResponseHeader 1",),
    "DeleteRangeRequest": ("key bytes 1", "range_end bytes 2"),
    "DeleteRangeResponse": ("header ResponseHeader 1", "deleted int64 2"),
    "RequestOp": (
        "request_range RangeRequest 1 ?request",
        "request_put PutRequest 2 ?request",
        "request_delete_range DeleteRangeRequest 3 ?request",
    ),
    "ResponseOp": (
        "response_range RangeResponse 1 ?response",
        "response_put PutResponse 2 ?response",
        "response_delete_range DeleteRangeResponse 3 ?response",
    ),
    "Compare": (
        "result int32 1",
        "target int32 2",
        "key bytes 3",
        "version int64 4 ?target_union",
        "mod_revision int64 6 ?target_union",
        "value bytes 7 ?target_union",
    ),
    "TxnRequest": ("compare *Compare 1", "success *RequestOp 2", "failure *RequestOp 3"),
    "TxnResponse": ("header ResponseHeader 1", "succeeded bool 2", "responses *ResponseOp 3"),
    "CompactionRequest": ("revision int64 1", "physical bool 2"),
    "CompactionResponse": ("header ResponseHeader 1",),
    "StatusRequest": (),
    "StatusResponse": (
        "header ResponseHeader 1",
        "version string 2",
        "dbSize int64 3",
        "leader uint64 4",
        "errors *string 8",
        "dbSizeInUse int64 9",
        "isLearner bool 10",
    ),
    "AlarmRequest": ("action int32 1", "memberID uint64 2", "alarm int32 3"),
    "AlarmMember": ("memberID uint64 1", "alarm int32 2"),
    "AlarmResponse": ("header ResponseHeader 1", "alarms *AlarmMember 2"),
}


def _add_field(message: descriptor_pb2.DescriptorProto, spec: str) -> None:
    name, kind, number, *group = spec.split()
    field = message.field.add(name=name, number=int(number))
    field.label = Field.LABEL_REPEATED if kind.startswith("*") else Field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    if kind in SCALARS:
        field.type = SCALARS[kind]
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    if group:
        oneof = group[0].removeprefix("?")
        names = [declared.name for declared in message.oneof_decl]
        if oneof not in names:
            message.oneof_decl.add(name=oneof)
            names.append(oneof)
        field.oneof_index = names.index(oneof)


def _declare() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for spec in fields:
            _add_field(message, spec)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


# Any, because the classes exist only at run time; `etcd_client` turns every answer into a typed record at once.
CLASSES: dict[str, Any] = _declare()
