"""Which devices a slot gets. Pure and deterministic: whole devices in order of id, a share where the least is left over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.decide.fit import DeviceNeed
from fairlead.model.resources import SHARE_WHOLE, Device, DeviceHold


def pick_devices(needs: Iterable[DeviceNeed], fleet: Iterable[Device], used: Mapping[str, int]) -> tuple[DeviceHold, ...] | None:
    """Holds that satisfy every need, or None. `used` is thousandths in use by device id."""
    taken: dict[str, int] = {}
    ordered = sorted(fleet, key=lambda device: device.id)
    for need in needs:
        candidates = [d for d in ordered if d.resource == need.resource and (not need.models or d.model in need.models)]
        if need.share:
            chosen = _best_share(candidates, used, taken, need.share)
            if chosen is None:
                return None
            taken[chosen] = taken.get(chosen, 0) + need.share
        free = [d.id for d in candidates if used.get(d.id, 0) + taken.get(d.id, 0) == 0][: need.whole]
        if len(free) < need.whole:
            return None
        taken.update((device_id, SHARE_WHOLE) for device_id in free)
    return tuple(DeviceHold(id=device_id, thousandths=n) for device_id, n in sorted(taken.items()))


def _best_share(candidates: list[Device], used: Mapping[str, int], taken: Mapping[str, int], share: int) -> str | None:
    """The device with the least room that still has enough: shared devices fill up before a free one is opened."""
    best: tuple[int, str] | None = None
    for device in candidates:
        room = SHARE_WHOLE - used.get(device.id, 0) - taken.get(device.id, 0)
        if room >= share and (best is None or (room, device.id) < best):
            best = (room, device.id)
    return best[1] if best else None
