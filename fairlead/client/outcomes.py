"""Commands and their outcomes in frames. A command travels as the journal keeps it; an outcome with a word for what it is."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Accepted, Command, Outcome, Refused, Unknown
from fairlead.model.journal import decode_command

_WORDS: dict[type, str] = {Accepted: "accepted", Refused: "refused", Unknown: "unknown"}
_TYPES: dict[str, type[Any]] = {word: kind for kind, word in _WORDS.items()}


def encode_commands(commands: list[Command]) -> list[bytes]:
    return [codec.encode(command) for command in commands]


def decode_commands(raw: list[bytes]) -> list[Command]:
    """Raises ValueError for what is no command."""
    out = []
    for one in raw:
        command = decode_command(one)
        if command is None:
            raise ValueError("an empty command")
        out.append(command)
    return out


def encode_outcomes(outcomes: list[Outcome]) -> list[Any]:
    return [[_WORDS[type(outcome)], msgspec.structs.asdict(outcome)] for outcome in outcomes]


def decode_outcomes(plain: list[Any]) -> list[Outcome]:
    return [codec.convert(fields, _TYPES[word]) for word, fields in plain]
