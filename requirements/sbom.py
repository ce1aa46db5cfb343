"""Prints what a server runs with as a CycloneDX bill of materials, made from runtime.txt alone: no network, no clock.

python requirements/sbom.py > fairlead.cdx.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PINS = Path(__file__).resolve().parent / "runtime.txt"
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^ ;\\]+)")


def components(text: str) -> list[dict[str, Any]]:
    """One for each pin, with the hashes of the files that are accepted for it."""
    out: list[dict[str, Any]] = []
    for line in text.splitlines():
        pin = PIN.match(line)
        if pin is not None:
            name, version = pin[1].lower(), pin[2]
            out.append(
                {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}", "properties": []}
            )
        elif "--hash=" in line:
            accepted = line.split("--hash=")[1].rstrip(" \\")
            out[-1]["properties"].append({"name": "fairlead:accepted-hash", "value": accepted})
    return out


def main() -> None:
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components(PINS.read_text())}
    json.dump(document, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
