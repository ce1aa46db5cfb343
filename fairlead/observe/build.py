"""Which build this is: the version that is installed and a digest of the package's own source, so that evidence (drills,
simulation, benchmarks) can be told from that of another build.

Owns the digest. Called by whoever keeps evidence, and by `fairlead review`.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_DIGITS: Final = 12


def build() -> str:
    """Such as `0.1.0+1f0c9a3be214`. Equal for equal source, wherever it lies and whenever it was written."""
    return f"{_version()}+{source()}"


def source(without: tuple[str, ...] = ()) -> str:
    """The digest alone, of all files but those whose path within the package begins with one of these."""
    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        within = path.relative_to(_ROOT).as_posix()
        if not within.startswith(without):
            digest.update(within.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:_DIGITS]


def _version() -> str:
    try:
        return metadata.version("fairlead")
    except metadata.PackageNotFoundError:
        return "0"
