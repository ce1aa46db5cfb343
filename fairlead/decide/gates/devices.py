"""Devices: enough whole ones of the models asked for, or one with enough thousandths left.

Which ones a slot gets is decided by fairlead/decide/devices.py.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import CAPACITY, Gate
from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier


def devices(need: Need, row: Row, view: View) -> Any:
    fits: Any = True
    for ask in need.devices:
        fits = fits & (ask.whole <= row.devices_whole(ask.resource, ask.models))
        fits = fits & (ask.share <= row.devices_share(ask.resource, ask.models))
    return fits


def _why(need: Need, row: Row, view: View) -> str:
    out = []
    for ask in need.devices:
        of = f" of {'/'.join(ask.models)}" if ask.models else ""
        whole, share = row.devices_whole(ask.resource, ask.models), row.devices_share(ask.resource, ask.models)
        if ask.whole > whole:
            out.append(f"needs {ask.whole} whole {ask.resource}{of}, {whole} free")
        if ask.share > share:
            out.append(f"needs {ask.share}/1000 of one {ask.resource}{of}, at most {share} free")
    return "; ".join(out)


DEVICES = Gate("devices", devices, _why, Tier.INVARIANT, CAPACITY)
