"""Amounts of cpu, memory and named scalars as integers, and the devices a slot asks for, a node has and a binding holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fairlead.model.meta import Record
from fairlead.model.quantity import BadQuantity, format_quantity, parse_quantity

SHARE_WHOLE: Final = 1000  # A device is divided into thousandths; an exclusive holder has all of them.
DEVICES_MAX: Final = 1000  # of one resource on one node


class Resources:
    """cpu in thousandths of a core, memory in bytes, scalars as whole units. Immutable, hashable, compared by value.

    A plain class, not a record, so that each codec can choose its own form: three numbers on disk, quantities in a manifest.
    """

    __slots__ = ("_hash", "cpu", "memory", "scalars")

    cpu: int
    memory: int
    scalars: tuple[tuple[str, int], ...]

    def __init__(self, cpu: int = 0, memory: int = 0, scalars: Iterable[tuple[str, int]] = ()) -> None:
        ordered = tuple(sorted((name, amount) for name, amount in scalars if amount)) if scalars else ()
        object.__setattr__(self, "cpu", cpu)
        object.__setattr__(self, "memory", memory)
        object.__setattr__(self, "scalars", ordered)
        object.__setattr__(self, "_hash", hash((cpu, memory, ordered)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Resources are immutable")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resources):
            return NotImplemented
        return self.cpu == other.cpu and self.memory == other.memory and self.scalars == other.scalars

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __repr__(self) -> str:
        return f"Resources({', '.join(f'{name}={text}' for name, text in self.as_quantities().items())})"

    def __add__(self, other: Resources) -> Resources:
        return self._combine(other, 1)

    def __sub__(self, other: Resources) -> Resources:
        return self._combine(other, -1)

    def _combine(self, other: Resources, sign: int) -> Resources:
        if not (self.scalars or other.scalars):  # as it is with most
            return Resources(self.cpu + sign * other.cpu, self.memory + sign * other.memory)
        scalars = dict(self.scalars)
        for name, amount in other.scalars:
            scalars[name] = scalars.get(name, 0) + sign * amount
        return Resources(self.cpu + sign * other.cpu, self.memory + sign * other.memory, scalars.items())

    def left_after(self, other: Resources) -> Resources:
        """What is left of it when `other` is taken, in each dimension; nothing where that is more."""
        left = self - other
        return Resources(max(left.cpu, 0), max(left.memory, 0), [(name, max(n, 0)) for name, n in left.scalars])

    def times(self, count: int) -> Resources:
        return Resources(self.cpu * count, self.memory * count, [(name, n * count) for name, n in self.scalars])

    def amounts(self) -> dict[str, int]:
        """Every non-zero dimension by name."""
        out = {"cpu": self.cpu, "memory": self.memory, **dict(self.scalars)}
        return {name: amount for name, amount in out.items() if amount}

    def exceeding(self, limit: Resources) -> list[tuple[str, int, int]]:
        """(dimension, asked, limit) for each dimension in which this is more than `limit` allows."""
        allowed = limit.amounts()
        return [(name, n, allowed.get(name, 0)) for name, n in self.amounts().items() if n > allowed.get(name, 0)]

    def as_quantities(self) -> dict[str, str]:
        out = {}
        if self.cpu:
            out["cpu"] = format_quantity(self.cpu, unit_exponent=-3)
        if self.memory:
            out["memory"] = format_quantity(self.memory, binary=True)
        out.update((name, format_quantity(amount)) for name, amount in self.scalars)
        return out

    @staticmethod
    def parse(quantities: Mapping[str, object]) -> Resources:
        """From a manifest's map. Raises BadQuantity that names the resource."""
        amounts: dict[str, int] = {}
        for name, text in quantities.items():
            if isinstance(text, bool) or not isinstance(text, str | int):
                raise BadQuantity(f"{name}: write the amount as a string such as '500m', '2' or '4Gi'")
            try:
                amounts[name] = parse_quantity(str(text), unit_exponent=-3 if name == "cpu" else 0)
            except BadQuantity as error:
                raise BadQuantity(f"{name}: {error}") from None
        return Resources(amounts.pop("cpu", 0), amounts.pop("memory", 0), amounts.items())


NOTHING: Final = Resources()


class DeviceAsk(Record, frozen=True):
    """Devices a slot asks for. `shareThousandths` below 1000 asks for a part of one shared device; otherwise each of `count`
    devices is held alone. An empty model takes any."""

    resource: str = "gpu"  # what kind of device
    models: tuple[str, ...] = ()  # any of these; empty: whichever
    count: int = 1  # devices, each held alone
    share_thousandths: int = SHARE_WHOLE  # below 1000: that part of one shared device


class Device(Record, frozen=True):
    """One device of a node."""

    id: str  # as the driver knows it
    model: str = ""  # workloads may ask for some models only
    resource: str = "gpu"  # the name under which it is asked for


def numbered_devices(counts: Mapping[str, int]) -> tuple[Device, ...]:
    """So many of each resource, where nobody says what they are called: `gpu-0`, `gpu-1`."""
    return tuple(
        Device(id=f"{resource}-{number}", resource=resource)
        for resource, count in sorted(counts.items())
        for number in range(min(count, DEVICES_MAX))
    )


class DeviceHold(Record, frozen=True):
    """What a binding or reservation holds of one device."""

    id: str
    thousandths: int = SHARE_WHOLE
