"""Owns what was seen from outside: who sent what when, what each was told, what became durable in which order.

The order of the list is the order of true time. Never looks inside a server. Written by the world, read by the checker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.sim.commit_model.records import Batch, Command, Definite
from fairlead.sim.commit_model.store import Applied


@dataclass(frozen=True, slots=True)
class Sent:
    command: Command


@dataclass(frozen=True, slots=True)
class Told:
    """A definite answer to the attempt its client was waiting for. Answers to abandoned attempts do not count."""

    command: Command
    answer: Definite


@dataclass(frozen=True, slots=True)
class GaveUp:
    command: Command


@dataclass(slots=True)
class History:
    events: list[Sent | Told | GaveUp | Applied] = field(default_factory=list)
    journal: list[Batch] = field(default_factory=list)
    healed: bool = True  # whether a command was acknowledged after the faults had stopped
