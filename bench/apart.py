"""A simulated measurement in a process of its own: a simulated loop cannot run inside a real one, and two of them use two cores.

The module is run as a program; it reads what is asked from its input and writes the answer, both as JSON.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

_Asked = TypeVar("_Asked", bound=msgspec.Struct)
_Answer = TypeVar("_Answer", bound=msgspec.Struct)


async def measured_apart(module: str, asked: msgspec.Struct, answer: type[_Answer]) -> _Answer:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
    )  # fmt: skip
    said, _ = await process.communicate(msgspec.json.encode(asked))
    if process.returncode:
        raise RuntimeError(f"{module}: the measurement ended with {process.returncode}")
    return msgspec.json.decode(said, type=answer)


def answer_apart(asked: type[_Asked], measured: Callable[[_Asked], msgspec.Struct]) -> None:
    """The other side of it: what the module does when it is run as a program."""
    sys.stdout.buffer.write(msgspec.json.encode(measured(msgspec.json.decode(sys.stdin.buffer.read(), type=asked))))
