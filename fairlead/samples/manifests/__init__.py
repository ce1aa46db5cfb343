"""The manifests of the sample workloads and what they need: regions, tenants, quotas, grants, policy, pools, nodes. Read by the
composition of the local platform and by `fairlead apply -f`."""

from __future__ import annotations

from pathlib import Path


def manifests(python: str = "python3") -> dict[str, bytes]:
    """Every manifest by file name, in the order to apply them in. `python` is the interpreter that has this package: instances
    are given no search path of their own."""
    assert not {'"', "\\", "\n"} & set(python), f"{python} cannot stand in a manifest"
    command = f'["{python}",'.encode()
    return {path.name: path.read_bytes().replace(b"[python,", command) for path in sorted(Path(__file__).parent.glob("*.yaml"))}
