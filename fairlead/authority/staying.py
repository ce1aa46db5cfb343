"""How many slots of each workload serve and were not let go: what a disruption budget counts, kept by steps.

Derived from bindings and eviction requests, never stored; told of every change, and of every change taken back. Read by the judge
of who may leave (judge/letting_go.py), which must not go through a workload's slots for it.
"""

from __future__ import annotations

from fairlead.authority.state import Rec, State
from fairlead.decide.disruption import is_let_go
from fairlead.model.hot import BindingHot
from fairlead.model.lifecycle import SlotState

_SERVING = SlotState.SERVING


class Staying:
    def __init__(self, state: State) -> None:
        self._state = state
        self._count: dict[tuple[str, str], int] = {}  # by tenant and workload; none is nought
        state.derive("bindings", self._binding_changed)
        state.derive("evictionrequests", self._request_changed)

    def of(self, tenant: str, workload: str) -> int:
        return self._count.get((tenant, workload), 0)

    def _binding_changed(self, old: Rec | None, new: Rec | None) -> None:
        did = old is not None and old.hot.state is _SERVING
        does = new is not None and new.hot.state is _SERVING
        if not did and not does:  # as nearly always: this is told of every step of every slot
            return
        rec = new or old
        assert rec is not None, "something has changed"
        asked = self._state.hot("evictionrequests", rec.tenant, rec.name)
        if did and old is not None and not is_let_go(asked, old.hot):
            self._add(rec, -1)
        if does and new is not None and not is_let_go(asked, new.hot):
            self._add(rec, 1)

    def _request_changed(self, old: Rec | None, new: Rec | None) -> None:
        rec = new or old
        assert rec is not None, "something has changed"
        hot: BindingHot | None = self._state.hot("bindings", rec.tenant, rec.name)
        if hot is None or hot.state is not _SERVING:
            return
        was, now = (is_let_go(each.hot if each is not None else None, hot) for each in (old, new))
        if was is not now:
            self._add(rec, 1 if was else -1)

    def _add(self, rec: Rec, sign: int) -> None:
        key = rec.tenant, rec.name.rpartition("-")[0]
        left = self._count[key] = self._count.get(key, 0) + sign
        if not left:
            del self._count[key]
