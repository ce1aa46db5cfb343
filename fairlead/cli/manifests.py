"""Files of objects: found, read and checked as a whole before anything is sent.

Owns `-f` (files, directories, stdin), the order in which objects are made and the words for their faults. Never sends anything.
Called by apply, create, diff and delete.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairlead.cli.frame import ERROR, NOT_FOUND, Told
from fairlead.client.rest_shapes import Resource
from fairlead.decide.admission import faults as admission_faults
from fairlead.model.commands import Fault
from fairlead.model.registry import BY_KIND
from fairlead.wire.json_codec import parse_json
from fairlead.wire.limits import check_tree
from fairlead.wire.manifest import Decoded, decode_plain, readable_part
from fairlead.wire.yaml_codec import parse_yaml

SUFFIXES = (".yaml", ".yml", ".json")
# What others live in comes first, whatever order the files have.
FIRST = {"Tenant": 0, "Region": 0, "Quota": 1, "NodePool": 1, "SchedulerPolicy": 1, "Config": 1, "Secret": 1}


class Document(NamedTuple):
    """One object of a file."""

    where: str  # risk.yaml, document 2
    tree: dict[str, Any]
    decoded: Decoded

    @property
    def resource(self) -> Resource:
        info = self.decoded.info
        return Resource(info.plural, info.kind, info.namespaced, short_names=info.short_names)

    @property
    def name(self) -> str:
        return str(self.tree["metadata"]["name"])

    def namespace(self, default: str) -> str:
        if not self.decoded.info.namespaced:
            return ""
        return str(self.tree["metadata"].get("namespace") or default)

    def __str__(self) -> str:
        return f"{self.resource.singular}/{self.name}"


def load(
    paths: Sequence[str], *, recursive: bool = False, field_validation: str = "strict", tenant: str = ""
) -> list[Document]:  # fmt: skip
    """Every object of every file, in the order they are to be made. All or none: one Told with the faults of all. `tenant`: what
    -n says; an object that says another is refused, because one of the two is a mistake."""
    if not paths:
        raise Told("name at least one file with -f", hint="-f FILE, -f DIRECTORY or -f - for stdin")
    documents: list[Document] = []
    said: list[str] = []
    for where, text in [found for path in paths for found in _texts(path, recursive)]:
        for spot, tree, found in _documents(where, text):
            decoded = found or decode_plain(tree, field_validation=field_validation)  # type: ignore[arg-type]
            if isinstance(decoded, Decoded) and isinstance(tree, dict):
                documents.append(Document(spot, tree, decoded))
            else:
                assert isinstance(decoded, tuple), "neither an object nor its faults"
                said += [_said(spot, fault) for fault in (*decoded, *_of_the_rest(tree, decoded))]
    if said:
        many = "fault" if len(said) == 1 else "faults"
        raise Told("\n".join([f"{len(said)} {many}; nothing was sent", *said]), hint="see 'fairlead explain KIND'", code=ERROR)
    if not documents:
        raise Told(f"there is no object in {', '.join(paths)}", code=NOT_FOUND)
    others = [each for each in documents if tenant and each.namespace(tenant) not in ("", tenant)]
    if others:
        lines = [f"  {each.where}: {each} says namespace {each.namespace(tenant)}" for each in others]
        raise Told(
            "\n".join([f"-n says {tenant}, and files say another; nothing was sent", *lines]), hint="leave out one of them"
        )
    return sorted(documents, key=lambda each: FIRST.get(each.decoded.info.kind, 2))


def _of_the_rest(tree: object, known: tuple[Fault, ...]) -> list[Fault]:
    """Whoever mends the faults of form should not learn of the others only then."""
    part = readable_part(tree)
    if part is None:
        return []
    info, record = part
    # The tenant may come from elsewhere, and what was left out is missed where it should be.
    return [
        fault
        for fault in admission_faults(info, record, None)
        if fault.path not in ("", "metadata.namespace")
        and not any(_within(fault.path, one.path) or _within(one.path, fault.path) for one in known)
    ]


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above}.", f"{above}["))


def _said(spot: str, fault: Fault) -> str:
    message = fault.message
    if fault.path == "kind" and "got " in message:
        got = message.rpartition("got ")[2].strip("'")
        near = difflib.get_close_matches(got, BY_KIND, n=1, cutoff=0.6)
        message = f"there is no kind {got!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    return f"  {spot}: {fault.path}: {message}" if fault.path else f"  {spot}: {message}"


def admitted(documents: Sequence[Document], namespace: str) -> None:
    """The rules on single objects, as the authority will apply them: all a client can check by itself."""
    said: list[str] = []
    for each in documents:
        record: Any = each.decoded.record
        placed = msgspec.structs.replace(record.metadata, namespace=each.namespace(namespace))
        record = msgspec.structs.replace(record, metadata=placed)
        said += [_said(each.where, fault) for fault in admission_faults(each.decoded.info, record, None)]
    if said:
        raise Told("\n".join([f"{len(said)} faults; nothing was sent", *said]), hint="see 'fairlead explain KIND'", code=ERROR)


def _texts(path: str, recursive: bool) -> list[tuple[str, bytes]]:
    if path == "-":
        return [("stdin", sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode())]
    place = Path(path)
    if place.is_dir():
        every = place.rglob("*") if recursive else place.iterdir()
        files = sorted(each for each in every if each.suffix in SUFFIXES and each.is_file())
        if not files:
            raise Told(f"{path}: there is no {', '.join(SUFFIXES)} file in it", hint="-R also looks below it", code=NOT_FOUND)
        return [(str(each), each.read_bytes()) for each in files]
    try:
        return [(path, place.read_bytes())]
    except FileNotFoundError:
        raise Told(f"{path}: there is no such file", code=NOT_FOUND) from None


def _documents(where: str, text: bytes) -> list[tuple[str, object, tuple[Fault, ...]]]:
    """(its place, its tree, faults of reading) of every object, the items of lists each by itself."""
    is_json = where.endswith(".json") or text.lstrip()[:1] == b"{"
    one = parse_json(text) if is_json else None
    trees = [one] if is_json and not isinstance(one, Fault) else one if is_json else parse_yaml(text)
    if isinstance(trees, Fault):
        return [(where, None, (trees,))]
    assert isinstance(trees, list), "neither trees nor a fault"
    found: list[tuple[str, object, tuple[Fault, ...]]] = []
    for number, tree in enumerate(trees, start=1):
        spot = f"{where}, document {number}" if len(trees) > 1 else where
        if isinstance(tree, dict) and str(tree.get("kind", "")).endswith("List") and isinstance(tree.get("items"), list):
            found += [(f"{spot}, item {index}", item, ()) for index, item in enumerate(tree["items"], start=1)]
        else:
            found.append((spot, tree, ()))
    return found


def body_of(text: bytes, what: str) -> Any:
    """A patch or another piece of JSON or YAML from the command line."""
    from fairlead.model.report import Report

    trees = parse_yaml(text)
    if isinstance(trees, Fault) or len(trees) != 1:
        raise Told(
            f"{what} {trees.message if isinstance(trees, Fault) else 'is not one value'}", hint="write JSON or YAML in quotes"
        )
    report = Report()
    check_tree(report, trees[0])
    if report.faults():
        raise Told("; ".join(f"{what} {fault.path}: {fault.message}" for fault in report.faults()))
    return trees[0]
