"""What a need says about its neighbours: the shape the gates ask. The rules themselves follow."""

from __future__ import annotations

from typing import Any


class TopologyNeed:
    def check(self, name: str, row: Any, view: Any) -> Any:
        return True

    def why(self, name: str, row: Any, view: Any) -> str:
        return name

    def own(self, row: Any, view: Any) -> Any:
        return True

    def coarse(self, row: Any, view: Any) -> Any:
        return True
