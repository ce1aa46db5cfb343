"""Sets of fields, as managedFields keeps them: what an object's leaves are, what changed between two objects, what is removed.

A tree is flattened to its leaves with the paths of FieldsV1 (`f:NAME`, `k:{KEYS}`, `v:VALUE`); sets of such paths are plain
Python sets. Lists of records with a key are maps, lists of unique words are sets, other lists are one leaf. Pure. Called by
managers.py.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from fairlead.model.kinds.capacity import Taint
from fairlead.model.kinds.intent import EnvVar
from fairlead.model.kinds.policy import PriorityClass, ScoreWeight, WorkloadClass
from fairlead.model.meta import Condition, Metadata, OwnerReference
from fairlead.model.resources import Device, Resources

Path = tuple[str, ...]
Paths = frozenset[Path]

# Lists of these are told apart by these fields, which admission keeps unique.
LIST_KEYS: Final[dict[type, tuple[str, ...]]] = {
    Condition: ("type",),
    OwnerReference: ("uid",),
    EnvVar: ("name",),
    ScoreWeight: ("name",),
    PriorityClass: ("name",),
    WorkloadClass: ("name",),
    Taint: ("effect", "key"),
    Device: ("id",),
}
_KEY_DEFAULTS: Final = {"effect": "NoSchedule"}  # a client may leave it out, the server never does
SETS: Final = frozenset({"finalizers"})
# Of metadata only these are anybody's to manage.
_METADATA: Final = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})


class Node(NamedTuple):
    """What stands at one place of a kind: an object with known fields, one with any, a list of a sort, or a leaf."""

    sort: str  # fields, map, keyed, set, leaf
    fields: dict[str, Node] = {}
    item: Node | None = None
    keys: tuple[str, ...] = ()


LEAF: Final = Node("leaf")


@functools.cache
def node_of(record: Any) -> Node:
    """Of a kind's record."""
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    return Node("fields", {field.encode_name: _node(field.type, field.encode_name) for field in info.fields})


def _node(info: inspect.Type, name: str) -> Node:
    match info:
        case inspect.StructType() if not info.array_like:
            made = node_of(info.cls)
            if info.cls is Metadata:
                return Node("fields", {key: node for key, node in made.fields.items() if key in _METADATA})
            return made
        case inspect.DictType():
            return Node("map", item=_node(info.value_type, ""))
        case inspect.CustomType() if info.cls is Resources:
            return Node("map", item=LEAF)
        case inspect.UnionType():
            others = [option for option in info.types if not isinstance(option, inspect.NoneType)]
            return _node(others[0], name) if len(others) == 1 else LEAF
        case inspect.VarTupleType():
            item = info.item_type
            if isinstance(item, inspect.StructType) and item.cls in LIST_KEYS:
                return Node("keyed", item=_node(item, ""), keys=LIST_KEYS[item.cls])
            return Node("set") if name in SETS else LEAF
    return LEAF


def leaves(tree: Any, node: Node) -> dict[Path, Any]:
    """Every leaf with its path and value. Fields the kind does not have are left out."""
    out: dict[Path, Any] = {}
    _flatten(tree, node, (), out)
    return out


def _flatten(value: Any, node: Node, path: Path, out: dict[Path, Any]) -> None:
    if value is None:
        return
    if node.sort in ("fields", "map") and isinstance(value, dict):
        if not value and path:
            out[path] = value
        for key, item in value.items():
            below = node.item if node.sort == "map" else node.fields.get(key)
            if below is not None:
                _flatten(item, below, (*path, f"f:{key}"), out)
    elif node.sort == "keyed" and isinstance(value, list):
        assert node.item is not None
        for item in value:
            place = (*path, element(item, node.keys))
            out[*place, "."] = True
            _flatten(item, node.item, place, out)
    elif node.sort == "set" and isinstance(value, list):
        for item in value:
            out[*path, f"v:{_text(item)}"] = True
    else:
        out[path] = value


def element(item: Any, keys: tuple[str, ...]) -> str:
    """How a keyed item is named in a path."""
    found = {key: item.get(key, _KEY_DEFAULTS.get(key, "")) for key in keys} if isinstance(item, dict) else {}
    return f"k:{_text(found)}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def known(tree: Any, node: Node) -> Any:
    """The tree without fields the kind does not have, and without nulls, which mean `not said`."""
    if node.sort in ("fields", "map") and isinstance(tree, dict):
        out = {}
        for key, value in tree.items():
            below = node.item if node.sort == "map" else node.fields.get(key)
            if below is not None and value is not None:
                out[key] = known(value, below)
        return out
    if node.sort == "keyed" and isinstance(tree, list):
        assert node.item is not None
        return [known(item, node.item) for item in tree]
    return tree


def pick(full: Any, asked: Any, node: Node) -> Any:
    """Of a tree as the server writes it, what `asked` mentions: a client's words in the server's spelling."""
    if node.sort in ("fields", "map") and isinstance(asked, dict) and isinstance(full, dict):
        below = node.fields
        return {
            key: pick(full.get(key, value), value, node.item or LEAF if node.sort == "map" else below[key])
            for key, value in asked.items()
        }
    if node.sort == "keyed" and isinstance(asked, list) and isinstance(full, list):
        there = {element(item, node.keys): item for item in full}
        assert node.item is not None
        return [pick(there.get(element(item, node.keys), item), item, node.item) for item in asked]
    return full


def merge(live: Any, applied: Any, node: Node) -> Any:
    """Applied laid over live: objects by field, keyed lists by key, sets united, everything else replaced."""
    if node.sort in ("fields", "map") and isinstance(applied, dict) and isinstance(live, dict):
        out = dict(live)
        for key, value in applied.items():
            below = node.item if node.sort == "map" else node.fields.get(key)
            out[key] = merge(out[key], value, below) if key in out and below is not None else value
        return out
    if node.sort == "keyed" and isinstance(applied, list) and isinstance(live, list):
        assert node.item is not None
        items = {element(item, node.keys): item for item in live}
        for item in applied:
            name = element(item, node.keys)
            items[name] = merge(items[name], item, node.item) if name in items else item
        return list(items.values())
    if node.sort == "set" and isinstance(applied, list) and isinstance(live, list):
        return [*live, *(item for item in applied if item not in live)]
    return applied


def remove(tree: Any, path: Path, node: Node) -> Any:
    """The tree without one leaf, and without the objects that are empty for it."""
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(tree, dict):
        key = step[2:]
        below = node.item if node.sort == "map" else node.fields.get(key)
        if key not in tree or below is None:
            return tree
        out = dict(tree)
        left = remove(out[key], rest, below) if rest else None
        if left is None or left in ({}, []):
            del out[key]
        else:
            out[key] = left
        return out
    if step.startswith("k:") and isinstance(tree, list):
        assert node.item is not None
        out_items = []
        for item in tree:
            if element(item, node.keys) != step:
                out_items.append(item)
            elif rest != (".",):
                out_items.append(remove(item, rest, node.item))
        return out_items
    if step.startswith("v:") and isinstance(tree, list):
        return [item for item in tree if f"v:{_text(item)}" != step]
    return tree


def to_text(paths: Paths) -> str:
    """FieldsV1."""
    root: dict[str, Any] = {}
    for path in sorted(paths):
        here = root
        for step in path:
            here = here.setdefault(step, {})
    return _text(root)


@functools.lru_cache(maxsize=4096)  # the same few texts come back with every write of an object
def from_text(text: str) -> Paths:
    out: list[Path] = []
    _collect(msgspec.json.decode(text), (), out)
    return frozenset(out)


def _collect(node: Any, path: Path, out: list[Path]) -> None:
    if not isinstance(node, dict) or not node:
        if path:
            out.append(path)
        return
    for step, below in node.items():
        if step == "." and not (path and path[-1].startswith("k:")):
            continue  # that an object exists is nobody's to own; a keyed item's existence is
        _collect(below, (*path, step), out)


def shown(path: Path) -> str:
    """A path in the words of an error message: .spec.template.env[name="A"].value"""
    out = ""
    for step in path:
        if step.startswith("f:"):
            out += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            out += "[" + ",".join(f"{key}={_text(value)}" for key, value in keys.items()) + "]"
        elif step.startswith("v:"):
            out += f"[={step[2:]}]"
    return out
