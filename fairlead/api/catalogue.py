"""Every resource that is served: the kinds of the registry under our group, and the few of core/v1 that kubectl counts on.

Owns names, verbs, subresources and how an object is rendered under each name. Never reads a plane. Called by discovery, OpenAPI
and the dispatcher, so that what is advertised is what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from fairlead.api import components, served
from fairlead.api.columns import COLUMNS, SELECTABLE, Column
from fairlead.api.failures import GROUP
from fairlead.api.members import Item
from fairlead.api.selectors import FieldOf
from fairlead.model.lifecycle import Role
from fairlead.model.registry import BY_KIND, KINDS, KindInfo
from fairlead.wire.json_codec import API_VERSION, encode, to_plain

VERSION: Final = "v1alpha1"
PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR, Role.BREAK_GLASS})
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")
_MACHINE_WRITE: Final = ("create", "update", "delete")

# Subresources that are no part of the object: what is known about it, and what can be asked for it.
_WHY: Final = ("why", "Why", ("get",))
_DECISIONS: Final = ("decisions", "DecisionRecordList", ("get",))
_EXPLAINING: Final[dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]]] = {
    "workloads": (_WHY, _DECISIONS, ("timeline", "Timeline", ("get",))),
    "schedulingrequests": (_WHY, _DECISIONS, ("binding", "BindingProposal", ("create",))),
    "bindings": (_WHY, _DECISIONS, ("eviction", "EvictionRequest", ("create",))),
    "nodes": (_DECISIONS,),
}

Render = Callable[[Item, str], bytes]  # an object and the resourceVersion it is to carry


class Sub(NamedTuple):
    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


class Resource(NamedTuple):
    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    info: KindInfo | None  # what it is made of; None: there are none
    render: Render
    columns: tuple[Column, ...]
    selectable: Mapping[str, FieldOf]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Sub, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def sub(self, name: str) -> Sub | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


def user_written(info: KindInfo) -> bool:
    """Kinds people write, with patches and managers; machines send whole objects through their channel (P20)."""
    return bool(info.spec_owners & PEOPLE) and not info.commands_only and not info.many


def _verbs(info: KindInfo) -> tuple[str, ...]:
    if info.commands_only:
        return _READ
    return (*_READ, *(_WRITE if user_written(info) else _MACHINE_WRITE))


def _own(info: KindInfo) -> Resource:
    subs = []
    if info.status_owners:
        verbs = ("get", "update", "patch") if user_written(info) else ("get", "update")
        subs.append(Sub("status", GROUP, VERSION, info.kind, verbs))
    if info.plural == "workloads":
        subs.append(Sub("scale", "autoscaling", "v1", "Scale", ("get", "update", "patch")))
    subs += [Sub(name, GROUP, VERSION, kind, verbs) for name, kind, verbs in _EXPLAINING.get(info.plural, ())]

    def render(item: Item, version: str) -> bytes:
        return served.text(item.body, info.kind, version)

    return Resource(
        GROUP, VERSION, info.plural, info.kind.lower(), info.kind, info.namespaced, _verbs(info), info, render,
        COLUMNS.get(info.plural, ()), SELECTABLE.get(info.plural, {}), info.short_names,
        ("fairlead", "all") if info.plural == "workloads" else ("fairlead",), tuple(subs),
    )  # fmt: skip


# --- core/v1: a tenant is a namespace, our events in the form `describe` reads ----------------------------------------------


def _metadata(item: Item, version: str) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(item.served.metadata)
    plain.pop("managedFields", None)
    return {**plain, "resourceVersion": version}


def _namespace(item: Item, version: str) -> bytes:
    phase = "Terminating" if item.served.metadata.deletion_time is not None else "Active"
    body = {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": _metadata(item, version),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": phase},
    }
    return encode(body)


def involved(regarding: str) -> tuple[str, str, str]:
    """(kind, tenant, name) of the object an event is about, which it names PLURAL/TENANT/NAME."""
    plural, tenant, name = (*regarding.split("/", 2), "", "")[:3]
    info = KINDS.get(plural)
    return (info.kind if info is not None else plural), tenant, name


def _event(item: Item, version: str) -> bytes:
    event = item.served
    kind, tenant, name = involved(event.spec.regarding)
    spec, when = event.spec, event.metadata.creation_time
    about = {"kind": kind, "name": name, "apiVersion": API_VERSION}
    if tenant:
        about["namespace"] = tenant
    if spec.uid:
        about["uid"] = spec.uid
    body = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": _metadata(item, version),
        "involvedObject": about,
        "reason": event.spec.reason,
        "message": event.spec.note,
        "type": event.spec.type,
        "source": {"component": event.spec.reporter},
        "reportingComponent": event.spec.reporter,
        "firstTimestamp": spec.first_time or when,
        "lastTimestamp": spec.last_time or when,
        "count": spec.count,
    }
    return encode(body)


_EVENT_FIELDS: Final[dict[str, FieldOf]] = {
    "involvedObject.kind": lambda e: involved(e.spec.regarding)[0],
    "involvedObject.namespace": lambda e: involved(e.spec.regarding)[1],
    "involvedObject.name": lambda e: involved(e.spec.regarding)[2],
    "involvedObject.uid": lambda e: e.spec.uid or None,  # where it is not known, the name is enough
    "involvedObject.apiVersion": lambda e: API_VERSION,
    "reason": lambda e: str(e.spec.reason),
    "type": lambda e: str(e.spec.type),
    "source": lambda e: str(e.spec.reporter),
}


def _nothing(item: Item, version: str) -> bytes:
    raise AssertionError("there are none to render")


def _core() -> list[Resource]:
    event_columns = (
        Column("Last Seen", lambda e: e.spec.last_time or e.metadata.creation_time, "Since it happened last."),
        Column("Type", lambda e: e.spec.type),
        Column("Reason", lambda e: e.spec.reason),
        Column(
            "Object", lambda e: "/".join(filter(None, (involved(e.spec.regarding)[0].lower(), involved(e.spec.regarding)[2])))
        ),
        Column("Message", lambda e: e.spec.note),
        Column("Count", lambda e: e.spec.count, "How often it happened.", "integer", True),
        Column("First Seen", lambda e: e.spec.first_time or e.metadata.creation_time, "Since it happened first.", wide=True),
    )
    namespace_columns = (
        Column("Status", lambda t: "Terminating" if t.metadata.deletion_time is not None else "Active"),
    )  # fmt: skip
    write = ("create", "delete")
    return [
        Resource("", "v1", "namespaces", "namespace", "Namespace", False, (*_READ, *write), BY_KIND["Tenant"], _namespace,
                 namespace_columns, {"status.phase": lambda t: "Active"}, ("ns",)),
        Resource("", "v1", "events", "event", "Event", True, _READ, BY_KIND["Event"], _event, event_columns, _EVENT_FIELDS,
                 ("ev",)),
        # `cluster-info` asks for them; there are never any.
        Resource("", "v1", "services", "service", "Service", True, ("get", "list"), None, _nothing, (), {}, ("svc",)),
    ]  # fmt: skip


def _controllers() -> Resource:
    lease = BY_KIND["Lease"]
    return Resource(
        GROUP, VERSION, "controllers", "controller", components.KIND, False, _READ, lease, components.render,
        components.COLUMNS, SELECTABLE.get(lease.plural, {}), ("ctl",), ("fairlead",),
    )  # fmt: skip


OWN: Final = {**{info.plural: _own(info) for info in KINDS.values()}, "controllers": _controllers()}
CORE: Final = {resource.plural: resource for resource in _core()}
GROUPS: Final[dict[tuple[str, str], dict[str, Resource]]] = {("", "v1"): CORE, (GROUP, VERSION): OWN}
