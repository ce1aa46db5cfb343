"""One door per driver library: each is imported under one path prefix and nowhere else in fairlead/."""

from __future__ import annotations

import ast

from tests.house.banned import ROOT, production_files

# Library -> the path prefix that may import it. An empty prefix list means nobody may.
DOORS: dict[str, tuple[str, ...]] = {
    "apsw": ("fairlead/store/sqlite",),
    "sqlite3": (),  # apsw is the binding (docs/adr/0003)
    "asyncpg": ("fairlead/store/postgres",),
    "grpc": ("fairlead/store/etcd",),
    "google": ("fairlead/store/etcd",),
    "json": ("fairlead/wire/",),
    "yaml": ("fairlead/wire/",),
    "prometheus_client": ("fairlead/observe/",),
    "opentelemetry": ("fairlead/observe/otel",),
    "click": ("fairlead/cli/",),
    "rich": ("fairlead/cli/",),
}


def _libraries(source: str) -> set[tuple[int, str]]:
    found: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name.split(".")[0]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add((node.lineno, node.module.split(".")[0]))
    return found


def test_each_library_is_imported_through_its_own_door() -> None:
    wrong = [
        f"{name}:{line}: {library} belongs to {' '.join(DOORS[library]) or 'nobody'}"
        for path in production_files()
        if (name := path.relative_to(ROOT).as_posix())
        for line, library in sorted(_libraries(path.read_text()))
        if library in DOORS and not name.startswith(DOORS[library] or ("nowhere",))
    ]
    assert not wrong, "\n".join(wrong)
