"""The runbooks of docs/operations/runbooks, and the commands in them."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "operations" / "runbooks"
RUNBOOKS = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")


def lines_of(name: str) -> list[str]:
    """Its commands, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (FOLDER / f"{name}.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]
