"""A value that cannot be shown by mistake: not by repr, str, format, JSON, msgpack, pickle or a copy. Whoever needs it says so
with `reveal`, which is what a reviewer looks for. Used for tokens, keys and the data of secrets while they are open."""

from __future__ import annotations

import hmac
from typing import NoReturn, final


@final
class Hidden:
    __slots__ = ("__value",)

    def __init__(self, value: str | bytes) -> None:
        self.__value = value.encode() if isinstance(value, str) else bytes(value)

    def reveal(self) -> str:
        return self.__value.decode()

    def reveal_bytes(self) -> bytes:
        return self.__value

    def __repr__(self) -> str:
        return "<hidden>"  # raising here would break the very tools that report other faults

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("this value is hidden: call reveal() where it is really needed")

    __str__ = __format__ = __iter__ = __len__ = __bytes__ = __reduce_ex__ = __reduce__ = __copy__ = __deepcopy__ = _refuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and hmac.compare_digest(self.__value, other.__value)

    __hash__ = None  # type: ignore[assignment]
