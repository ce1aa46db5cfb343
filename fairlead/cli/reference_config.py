"""The page of settings: what may stand in a configuration file, read from the source of the classes that decode it.

Owns the words around them. The sentence about a setting is the comment beside it, so that whoever changes one sees the other.
Reads text and imports none of these modules: most of them stand above the command line. Called by reference.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).resolve().parents[1]
Table = Callable[[Sequence[str], Iterable[Sequence[object]]], str]

# Where each class is, and what its file is for.
SOURCES: Final = (
    ("PlaneConfig", "compose/config.py", "`fairlead server --config FILE`: a server of the global plane or of a region."),
    ("AgentConfig", "compose/agent.py", "`fairlead agent --config FILE`: the agent of one node."),
    ("EndpointsConfig", "compose/endpoints.py", "`fairlead endpoints --config FILE`: DNS and the endpoints documents."),
    ("TlsFiles", "compose/config.py", "Where a certificate, its key and the authority lie."),
    ("Peer", "compose/config.py", "A plane elsewhere."),
    ("OidcSettings", "security/oidc.py", "A provider of OpenID Connect whose tokens are taken beside Fairlead's own."),
    ("Device", "model/resources.py", "One device of a node."),
)  # fmt: skip
WORDS: Final = """A configuration is one JSON object. A text in it may name variables of the environment as `${NAME}`; one that
is not set is an error. So is a setting that is not listed here. A default that is empty means none. Examples that are tested:
`deploy/example`. What the platform does is not configured by file but said by objects ([objects](objects.md)), most of all by
policies."""
_TYPES: Final = {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}
_ELSEWHERE: Final = frozenset(name for name, _, _ in SOURCES)


class Setting(NamedTuple):
    name: str  # as it stands in a file
    type: str
    default: str
    about: str


def settings(name: str, path: str) -> list[Setting]:
    """Of one class, in the order in which it declares them."""
    text = (PACKAGE / path).read_text()
    (found,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == name]
    lines = text.splitlines()
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return [_setting(node, lines[(node.end_lineno or node.lineno) - 1]) for node in fields]


def _setting(node: ast.AnnAssign, line: str) -> Setting:
    assert isinstance(node.target, ast.Name)
    first, *others = node.target.id.split("_")
    about = line.encode()[node.end_col_offset or 0 :].decode().strip().removeprefix("#").strip()
    return Setting(first + "".join(part.title() for part in others), _type(node.annotation), _default(node.value), about)


def _type(shape: ast.expr) -> str:
    match shape:
        case ast.Name(id=name) if name in _ELSEWHERE:
            return f"[{name}](#{name.lower()})"
        case ast.Name(id=name):
            return _TYPES[name]
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            return _type(left)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=values)):
            return " or ".join(f"`{ast.literal_eval(value)}`" for value in values)
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[item, ast.Constant(value=value)])) if value is ...:
            return f"list of {_type(item)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            return f"list of {len(items)}: " + ", ".join(map(_type, items))
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[key, value])):
            return f"map of {_type(key)} to {_type(value)}"
    raise ValueError(f"there are no words for the type {ast.unparse(shape)}")


def _default(value: ast.expr | None) -> str:
    if value is None:
        return "required"
    found = ast.literal_eval(value)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, tuple) and found:
        return f"`{list(found)}`"
    return f"`{found}`" if isinstance(found, int | float | str) and found != "" else ""


def sections(table: Table) -> list[str]:
    out = [WORDS]
    for name, path, about in SOURCES:
        rows = [(f"`{one.name}`", one.type, one.default, one.about) for one in settings(name, path)]
        out.append(f"## {name}\n{about}\n\n" + table(["setting", "type", "default", "what it says"], rows))
    return out
