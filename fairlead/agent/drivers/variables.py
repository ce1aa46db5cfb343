"""Variables in the words of a command and in the environment: `$(NAME)` is the value of NAME, as Kubernetes has it.

Pure. What is not known stays as it is written, so a shell's own `$(...)` is left to the shell; `$$(NAME)` is `$(NAME)` itself.
Called by drivers that start programs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

# What no process can be given anyway (execve of Linux); here they keep variables made of variables from filling the memory.
TEXT_BYTES_MAX: Final = 128 << 10  # one word or variable
ALL_BYTES_MAX: Final = 2 << 20  # all words, and all variables

_REFERENCE: Final = re.compile(r"(\$?)\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class TooLong(OSError):
    """What the kernel would say, had it been asked."""


def environment(base: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """`said` over `base`; a value may name what stands before it. Raises TooLong."""
    values = dict(base)
    room = ALL_BYTES_MAX
    for name, text in said.items():
        values[name] = expanded(text, values, name)
        room = _left(room, values[name], "the environment")
    return values


def command(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Raises TooLong."""
    out: list[str] = []
    room = ALL_BYTES_MAX
    for word in words:
        out.append(expanded(word, values, f"word {len(out) + 1} of the command"))
        room = _left(room, out[-1], "the command")
    return tuple(out)


def _left(room: int, text: str, what: str) -> int:
    left = room - len(text.encode())
    if left < 0:
        raise TooLong(f"{what} is longer than {ALL_BYTES_MAX} bytes with the variables it names")
    return left


def expanded(text: str, values: Mapping[str, str], what: str) -> str:
    """Raises TooLong, which calls it `what`."""
    if "$(" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return values.get(found[2], found[0])

    # What it comes to is counted before it is made: variables made of variables double with each.
    length = len(text.encode()) + sum(len(value(found).encode()) for found in _REFERENCE.finditer(text))
    if length > TEXT_BYTES_MAX:
        raise TooLong(f"{what} is longer than {TEXT_BYTES_MAX} bytes with the variables it names")
    return _REFERENCE.sub(value, text)
