"""JSON schemas of the records, for OpenAPI. What a field means is said by the comment beside it in the model, where there is one.

Called by openapi.py, once per document.
"""

from __future__ import annotations

import inspect as python
from typing import Any, Final

from msgspec import inspect

from fairlead.api.catalogue import Resource
from fairlead.api.fieldsets import LIST_KEYS, SETS
from fairlead.model.meta import FieldsV1, Metadata
from fairlead.model.resources import Resources
from fairlead.wire.meanings import ALIKE, meaning

_PREFIX: Final = "dev.fairlead.v1alpha1."
_QUANTITY: Final = {
    "description": "An amount such as 500m, 2 or 4Gi.",
    "anyOf": [{"type": "string"}, {"type": "integer"}],
    "x-kubernetes-int-or-string": True,
}


class Schemas:
    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def of_resource(self, resource: Resource) -> dict[str, Any]:
        """Of one served kind, with apiVersion and kind."""
        name = f"{_PREFIX}{resource.kind}" if resource.group else f"io.k8s.api.core.v1.{resource.kind}"
        if name not in self.made:
            gvk = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
            if resource.group and resource.info is not None:
                schema = self._struct(resource.info.record)
            else:  # core/v1 kinds are answers of ours; their details are in the catalogue
                schema = {"type": "object", "properties": {"metadata": self._ref(Metadata, ALIKE["metadata"])}}
            head = {key: {"type": "string", "description": ALIKE[key]} for key in ("apiVersion", "kind")}
            schema["properties"] = {**head, **schema["properties"]}
            self.made[name] = {**schema, "x-kubernetes-group-version-kind": gvk}
        return {"$ref": f"#/components/schemas/{name}"}

    def list_of(self, resource: Resource) -> dict[str, Any]:
        item = self.of_resource(resource)
        name = item["$ref"].rsplit("/", 1)[1] + "List"
        self.made[name] = {
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "items": {"type": "array", "items": item},
            },
            "x-kubernetes-group-version-kind": [
                {"group": resource.group, "version": resource.version, "kind": f"{resource.kind}List"}
            ],
        }
        return {"$ref": f"#/components/schemas/{name}"}

    def _ref(self, cls: Any, description: str) -> dict[str, Any]:
        name = f"{_PREFIX}{cls.__name__}"
        if name not in self.made:
            self.made[name] = {}  # stands for itself while it is made
            self.made[name] = self._struct(cls)
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "description": description}

    def _struct(self, cls: Any) -> dict[str, Any]:
        info = inspect.type_info(cls)
        assert isinstance(info, inspect.StructType)
        properties = {}
        for field in info.fields:
            description = meaning(cls, field.name, field.encode_name)
            properties[field.encode_name] = self._type(field.type, description, field.encode_name)
        if cls is Metadata:
            properties["resourceVersion"] = {"type": "string", "description": ALIKE["resourceVersion"]}
            properties["generateName"] = {"type": "string", "description": "The beginning of a name that the server completes."}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        doc = python.getdoc(cls) if "__doc__" in vars(cls) and cls.__doc__ else ""
        if doc:
            schema["description"] = " ".join(doc.split())
        required = [field.encode_name for field in info.fields if field.required and cls is not Metadata]
        if required:
            schema["required"] = required
        return schema

    def _type(self, info: inspect.Type, description: str, name: str = "") -> dict[str, Any]:
        made = self._bare(info, description, name)
        if description:
            made = {**made, "description": description}
        return made

    def _bare(self, info: inspect.Type, description: str, name: str) -> dict[str, Any]:
        match info:
            case inspect.StructType() if info.array_like:
                return {"type": "array", "items": {"type": "integer", "format": "int64"}}
            case inspect.StructType():
                return self._ref(info.cls, description)
            case inspect.VarTupleType() | inspect.ListType():
                return self._list(info.item_type, name)
            case inspect.TupleType():
                return {"type": "array", "items": self._type(info.item_types[0], "")}
            case inspect.DictType():
                return {"type": "object", "additionalProperties": self._type(info.value_type, "")}
            case inspect.UnionType():
                others = [option for option in info.types if not isinstance(option, inspect.NoneType)]
                return self._bare(others[0], description, name) if len(others) == 1 else {"type": "object"}
            case inspect.CustomType() if info.cls is Resources:
                return {"type": "object", "additionalProperties": _QUANTITY}
            case inspect.CustomType() if info.cls is FieldsV1:
                return {"type": "object"}
        return _scalar(info)

    def _list(self, item: inspect.Type, name: str) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "array", "items": self._type(item, "")}
        if isinstance(item, inspect.StructType) and item.cls in LIST_KEYS:
            made |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(LIST_KEYS[item.cls])}
        else:
            made["x-kubernetes-list-type"] = "set" if name in SETS else "atomic"
        return made


def _scalar(info: inspect.Type) -> dict[str, Any]:
    match info:
        case inspect.StrType():
            return {"type": "string"}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer", "format": "int64"}
        case inspect.FloatType():
            return {"type": "number", "format": "double"}
        case inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case inspect.LiteralType():
            return {"type": "string", "enum": [str(value) for value in info.values if value != ""]}
        case inspect.EnumType():
            return {"type": "string", "enum": [member.value for member in info.cls]}
    return {"type": "object"}
