"""The hot records as the authority uses them, and the marks of an ask, remembered because they are asked for at every bind."""

from __future__ import annotations

from fairlead.decide.topology import marks_of
from fairlead.model.hot import BindingHot as BindingHot
from fairlead.model.hot import binding_hot as binding_hot
from fairlead.model.hot import hot_from as hot_from
from fairlead.model.hot import hot_of as hot_of
from fairlead.model.hot import intern_marks
from fairlead.model.kinds.work import Ask, Marks

_ASKS_MAX = 50_000
_marks_of_ask: dict[Ask, Marks | None] = {}


def marks_for(ask: Ask) -> Marks | None:
    """marks_of(ask), remembered: it is asked at every bind."""
    try:
        return _marks_of_ask[ask]
    except KeyError:
        if len(_marks_of_ask) > _ASKS_MAX:
            _marks_of_ask.clear()
        made = marks_of(ask)
        found = _marks_of_ask[ask] = made if made is None else intern_marks(made)
        return found
