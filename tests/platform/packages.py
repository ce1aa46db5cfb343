"""The package that docs/scheduling.md shows, installed from the page itself: what a reader copies is what is tried."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

GATE = "example.memory-reserve"  # 4 GiB of memory stay free on every node
PACKAGE = "example-gates 1.0"
MODULE = "example_gates"
PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"


def install(folder: Path) -> None:
    """As pip would."""
    shown = PAGE.read_text().partition("\n## Plug-ins\n")[2]
    (module,), (project,) = (re.findall(rf"```{kind}\n(.*?)```", shown, re.DOTALL)[:1] for kind in ("python", "toml"))
    about = tomllib.loads(project)["project"]
    info = folder / f"{MODULE}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    (folder / f"{MODULE}.py").write_text(module)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in about["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
