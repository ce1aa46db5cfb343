"""Prints the names of all drills, for scripts: `python -m fairlead.drills`."""

from __future__ import annotations

import sys

from fairlead.drills.catalogue import DRILLS

if __name__ == "__main__":
    sys.stdout.write("\n".join(DRILLS) + "\n")
