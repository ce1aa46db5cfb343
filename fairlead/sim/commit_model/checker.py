"""Owns the verdict over a history: which promises it breaks. Knows the journal's rules and nothing of servers.

Replays the journal from its first row by itself. Called by `run_seed`, and by tests with written histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.sim.commit_model.history import GaveUp, History, Sent, Told
from fairlead.sim.commit_model.records import GENESIS, Accepted, Command, ReadResult, Refused, State, judge
from fairlead.sim.commit_model.store import Applied


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str  # S9, S13, S14 of INVARIANTS, "fork", "unjustified" (a refusal, part of S13) or "stuck" (L2)
    detail: str


def check(history: History) -> list[Violation]:
    commands = {event.command.id: event.command for event in history.events if isinstance(event, Sent)}
    return [
        *_chain(history),
        *_epochs(history),
        *_legal(history, commands),
        *_answers(history),
        *_order(history),
        *([] if history.healed else [Violation("stuck", "no command was acknowledged after the faults had stopped")]),
    ]


def _chain(history: History) -> Iterator[Violation]:
    position, previous = 0, GENESIS
    for batch in history.journal:
        if batch.first != position + 1 or batch.previous != previous:
            yield Violation("fork", f"the batch at {batch.first} does not follow position {position}")
        position, previous = batch.last, batch.hash


def _epochs(history: History) -> Iterator[Violation]:
    for event in history.events:
        if isinstance(event, Applied) and event.batch.epoch != event.epoch:
            yield Violation("S9", f"epoch {event.batch.epoch} wrote position {event.batch.first} in epoch {event.epoch}")


def _legal(history: History, commands: dict[str, Command]) -> Iterator[Violation]:
    """Each effect is what its command does to the state before it, and no command has two."""
    state = State()
    for effect in (effect for batch in history.journal for effect in batch.effects):
        if effect.command_id is not None:
            if effect.command_id in state.receipts:
                yield Violation("S13", f"{effect.command_id} took effect twice")
            elif judge(state, commands[effect.command_id]) != effect:
                yield Violation("S13", f"{effect.command_id} took effect where it had to be refused")
        state.apply(effect)


def _answers(history: History) -> Iterator[Violation]:
    """Acknowledged: present, with that result. Refused: absent, and for a reason that was durable when it was given."""
    states = _states(history)
    final = states[-1]
    durable = 0
    for event in history.events:
        if isinstance(event, Applied):
            durable = max(durable, event.batch.last)
        if not isinstance(event, Told):
            continue
        command, answer = event.command, event.answer
        present = final.receipts.get(command.id)
        if isinstance(answer, Accepted) and present != answer:
            yield Violation("S13", f"{command.id} was acknowledged as {answer} and is {present or 'absent'}")
        if isinstance(answer, Refused) and present is not None:
            yield Violation("S13", f"{command.id} was refused ({answer.reason}) and is present at {present.position}")
        if isinstance(answer, Refused) and answer.reason != "Unavailable":
            at = answer.judged_at
            if at > durable or at >= len(states) or judge(states[at], command) != answer:
                yield Violation("unjustified", f"{command.id} was refused by a state that was never durable: {answer}")
        if isinstance(answer, ReadResult):
            at = answer.position
            if at > durable or at >= len(states) or states[at].holders.get(command.slot) != answer.holder:
                yield Violation("S13", f"{command.id} read a state that was never durable: {answer}")


def _order(history: History) -> Iterator[Violation]:
    """What was acknowledged before a command was sent, that command's answer must have seen."""
    acknowledged = 0
    floors: dict[str, int] = {}
    for event in history.events:
        match event:
            case Sent(command):
                floors[command.id] = acknowledged
            case Told(command, Accepted(position)):
                if position <= floors[command.id]:
                    detail = f"{command.id} at {position} was sent after {floors[command.id]} was acknowledged"
                    yield Violation("S14", detail)
                acknowledged = max(acknowledged, position)
            case Told(command, ReadResult(position)) | Told(command, Refused("Held" | "Free", position)):
                if position < floors[command.id]:
                    detail = f"{command.id} saw {position} after {floors[command.id]} was acknowledged"
                    yield Violation("S14", detail)
                acknowledged = max(acknowledged, position)
            case _:
                pass


def _states(history: History) -> list[State]:
    """The state after each position."""
    state = State()
    states = [state.copy()]
    for effect in (effect for batch in history.journal for effect in batch.effects):
        state.apply(effect)
        states.append(state.copy())
    return states


def tally(history: History) -> Counter[str]:
    """What the clients saw, for the report."""
    counts: Counter[str] = Counter()
    present = {effect.command_id for batch in history.journal for effect in batch.effects}
    for event in history.events:
        match event:
            case Told(_, Accepted()):
                counts["acknowledged"] += 1
            case Told(_, Refused("Unavailable")):
                counts["refused_unavailable"] += 1
            case Told(_, Refused()):
                counts["refused"] += 1
            case Told(_, ReadResult()):
                counts["reads"] += 1
            case GaveUp(command) if command.kind != "read":
                counts["unknown_committed" if command.id in present else "unknown_absent"] += 1
            case _:
                pass
    return counts
