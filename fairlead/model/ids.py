"""Names for the plain strings and integers that identify things, so that a type checker tells them apart."""

from __future__ import annotations

from typing import NewType

Tenant = NewType("Tenant", str)
Uid = NewType("Uid", str)
Key = NewType("Key", str)  # PLURAL/TENANT/NAME; the tenant is empty for kinds that belong to no tenant
Revision = NewType("Revision", int)  # incarnation and position in one integer; grows with every effect

# P6: revision = incarnation * 2^44 + position. 2^44 effects at 10,000 a second last 55 years.
POSITION_BITS = 44
_POSITION_MASK = (1 << POSITION_BITS) - 1


def revision(incarnation: int, position: int) -> Revision:
    assert 0 <= position <= _POSITION_MASK, f"position {position} does not fit in {POSITION_BITS} bits"
    return Revision((incarnation << POSITION_BITS) | position)


def split_revision(value: int) -> tuple[int, int]:
    """(incarnation, position) of a revision."""
    return value >> POSITION_BITS, value & _POSITION_MASK


def incarnation_of(value: int) -> int:
    return value >> POSITION_BITS


def key(plural: str, tenant: str, name: str) -> Key:
    return f"{plural}/{tenant}/{name}"  # type: ignore[return-value]  # Key() is a call


def split_key(value: str) -> tuple[str, str, str]:
    plural, tenant, name = value.split("/", 2)
    return plural, tenant, name


def born_at(uid: str) -> int:
    """The position at which the authority made the object of this uid; 0 for a uid of somebody else's making."""
    try:
        return int(uid.rpartition(".")[2], 16) if uid.count(".") == 2 else 0
    except ValueError:
        return 0


def born_in(uid: str) -> int:
    """The incarnation of the plane in which the authority made the object of this uid; 0 for a uid of somebody else's making."""
    try:
        return int(uid.split(".")[1], 16) if uid.count(".") == 2 else 0
    except ValueError:
        return 0
