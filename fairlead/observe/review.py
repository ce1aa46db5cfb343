"""The readiness review decided: from the records that were kept, the time and the build to a row for each claim.

Owns what makes a row green: for each kind of evidence that readiness.py names, a record of this build, under seven days old, that
passed and has the figures asked for. Everything else is red and says what to run next. Which of several records counts is here
too: more is never hidden by less, and a failure never by a pass (docs/operations/review.md). Pure: no clock, no files. Called by
`fairlead review`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from fairlead.observe.evidence import Record
from fairlead.observe.readiness import ADDED_UP, EXCUSED, MET_LEAST, SETTLED, Ask, Bound, Claim

AGE_MAX_S: Final = 7 * 86_400.0
TABLES: Final = frozenset({"checked", "faults", "refusals"})  # of a record that adds up: name -> count
SIZES: Final = frozenset({"planted", "tried", "judged"})  # with its options: how much a run looked at, not how well it went
AHEAD_MAX_S: Final = 300.0  # two machines' clocks differ; a record of tomorrow is no record of today

_SEEDS: Final = re.compile(r"(\S+) (\d+)-(\d+) (\S+)")  # as fairlead/cli/keeping.py writes the key of a campaign

GREEN: Final = "green"
RED: Final = "red"


class Piece(NamedTuple):
    """One ask, answered."""

    kind: str
    record: str
    state: str  # present | missing | old | other build | failed | short | nothing
    detail: str  # the figure, or what is wrong
    command: str  # that made it, or that would
    time_s: float | None
    build: str

    @property
    def is_present(self) -> bool:
        return self.state == "present"


class Row(NamedTuple):
    id: str
    claim: str
    status: str
    pieces: tuple[Piece, ...]

    @property
    def next(self) -> list[str]:
        """What to run to turn it green, each command once."""
        return list(dict.fromkeys(piece.command for piece in self.pieces if not piece.is_present and piece.command))


def review(claims: Sequence[Claim], records: Sequence[Record], now_s: float, build: str) -> list[Row]:
    rows = []
    for claim in claims:
        pieces = tuple(_answered(kind.name, ask, records, now_s, build) for kind in claim.kinds for ask in kind.asks)
        green = bool(pieces) and all(kind.asks for kind in claim.kinds) and all(piece.is_present for piece in pieces)
        rows.append(Row(claim.id, claim.text, GREEN if green else RED, pieces))
    return rows


def _answered(kind: str, ask: Ask, records: Sequence[Record], now_s: float, build: str) -> Piece:
    if not ask.record:
        return Piece(kind, "", "nothing", ask.command or "nothing measures this yet", "", None, "")
    named = [record for record in records if record.name == ask.record]
    ours = [record for record in named if record.build == build]
    fresh = [record for record in ours if -AHEAD_MAX_S <= now_s - record.time_s <= AGE_MAX_S]
    if not fresh:
        return _absent(kind, ask, named, ours, now_s)
    if ask.record in ADDED_UP:
        figures, used = added_up(fresh), max(fresh, key=lambda record: record.time_s)
        wrong = _wrong_of_sum(ask, fresh)
    else:
        used = _counting(ask, fresh)
        figures, wrong = used.figures, "" if used.passed else "it failed"
    if wrong:
        return Piece(kind, ask.record, "failed", wrong, ask.command, used.time_s, used.build)
    short = _unmet(ask, fresh, figures) or _short(ask, figures)
    if short:
        return Piece(kind, ask.record, "short", short, ask.command, used.time_s, used.build)
    told = _told(ask, figures) + ("" if ask.record in ADDED_UP else _failed_before(fresh))
    return Piece(kind, ask.record, "present", told, used.command, used.time_s, used.build)


def _counting(ask: Ask, records: Sequence[Record]) -> Record:
    """The last one that says anything about this ask; where a run is the same whenever it is made, one that failed. A benchmark
    that measured another part says nothing, nor does a smaller run that passed; one that failed says it about all of them."""
    paths = [path for path, _ in (*ask.least, *ask.most)]
    sizes = [bound for bound in ask.least if bound[0].startswith("params.") or bound[0] in SIZES]

    def is_about(one: Record) -> bool:
        if not one.passed:
            return True
        return all(figure(one.figures, path) is not None for path in paths) and not _below(sizes, one.figures)

    broken = [one for one in records if not one.passed] if ask.record in SETTLED else []
    about = [one for one in records if is_about(one)]
    return max(broken or about or records, key=lambda record: record.time_s)


def _failed_before(records: Sequence[Record]) -> str:
    """What passed in the end is present; that it did not always is said."""
    failed = sum(not one.passed for one in records)
    return f" (failed in {failed} of {len(records)} runs of this build)" if failed else ""


def _absent(kind: str, ask: Ask, named: Sequence[Record], ours: Sequence[Record], now_s: float) -> Piece:
    if ours:
        last = max(ours, key=lambda record: record.time_s)
        days = (now_s - last.time_s) / 86_400
        detail = f"{days:.0f} days old" if days > 0 else "dated in the future"
        return Piece(kind, ask.record, "old", detail, ask.command, last.time_s, last.build)
    if named:
        last = max(named, key=lambda record: record.time_s)
        return Piece(kind, ask.record, "other build", f"it is of {last.build}", ask.command, last.time_s, last.build)
    return Piece(kind, ask.record, "missing", "never run here", ask.command, None, "")


# --- records that add up -----------------------------------------------------------------------------------------------------


def added_up(records: Iterable[Record]) -> dict[str, Any]:
    """Campaigns over different seeds, audits of different planes. No seed counts twice, and a small run takes nothing from a
    large one; but what any of them found stands: a seed that failed fails again."""
    total: dict[str, Any] = {}
    for record in counted_once(records):
        for path, value in _numbers(record.figures):
            *above, name = path
            into = total
            for each in above:
                into = into.setdefault(each, {})
            before = into.get(name, 0)
            into[name] = max(before, value) if name.endswith("_max_s") else before + value
    return total


def counted_once(records: Iterable[Record]) -> list[Record]:
    """The largest first, the newest of equals; none that has a seed or a plane which is counted already."""
    taken: list[tuple[tuple[str, int, int], Record]] = []
    for record in sorted(records, key=lambda record: (_size(record), record.time_s), reverse=True):
        of, first, last = _span(record.key)
        if not any(of == other and first <= end and begin <= last for (other, begin, end), _ in taken):
            taken.append(((of, first, last), record))
    return [record for _, record in taken]


def _size(record: Record) -> float:
    found = [record.figures.get(name) for name in ("seeds", "revisions")]
    return max((value for value in found if isinstance(value, int | float)), default=0)


def _span(key: str) -> tuple[str, int, int]:
    """`mixed 1-100 2.0`: which seeds of what. Another key stands for itself."""
    found = _SEEDS.fullmatch(key)
    return (f"{found[1]} {found[4]}", int(found[2]), int(found[3])) if found else (key, 0, 0)


def _numbers(figures: dict[str, Any]) -> Iterable[tuple[tuple[str, ...], float]]:
    """Of the record and of the tables in it. What is no number adds nothing up: it was written by another version."""
    for name, value in figures.items():
        if isinstance(value, int | float):
            yield (name,), value
        elif isinstance(value, dict) and name in TABLES:
            yield from (((name, each), count) for each, count in value.items() if isinstance(count, int | float))


def _wrong_of_sum(ask: Ask, records: Sequence[Record]) -> str:
    """What a sum shows against this ask: a broken promise of those it is about, a run that came out twice differently."""
    broken = [found for record in records for found in record.figures.get("violations", ()) if isinstance(found, dict)]
    about = [found for found in broken if not ask.invariants or found.get("invariant") in ask.invariants]
    if about:
        return f"{about[0].get('invariant')} was found broken ({about[0].get('where', '')})"
    unsteady = [record for record in records if record.figures.get("mismatches")]
    if unsteady:
        return f"a seed came out differently when it was run again ({unsteady[0].key})"
    return ""


def _unmet(ask: Ask, records: Sequence[Record], figures: dict[str, Any]) -> str:
    """A fault that did not strike and a guard that did not refuse were not tested."""
    if EXCUSED in ask.met and all(EXCUSED in record.figures.get("void", (EXCUSED,)) for record in records):
        return "too many seeds were excused from what is asked of them"
    counts = {name: _counted(figures, name) for name in ask.met if name != EXCUSED}
    unmet = [f"{name} {count}" for name, count in counts.items() if count < MET_LEAST]
    return f"met too seldom to prove anything about it, of {MET_LEAST} asked for: {', '.join(unmet)}" if unmet else ""


def _counted(figures: dict[str, Any], name: str) -> int:
    """How often a fault struck, or a guard refused."""
    return sum(int(figure(figures, f"{table}.{name}") or 0) for table in ("faults", "refusals"))


# --- figures -----------------------------------------------------------------------------------------------------------------


def figure(figures: dict[str, Any], path: str) -> Any:
    """`timings_s.serving`, or None."""
    found: Any = figures
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _below(bounds: Iterable[Bound], figures: dict[str, Any]) -> str:
    for path, least in bounds:
        value = figure(figures, path)
        if not isinstance(value, int | float) or value < least:
            return f"{path} is {value}, and at least {least:g} is asked for"
    return ""


def _short(ask: Ask, figures: dict[str, Any]) -> str:
    short = _below(ask.least, figures)
    if short:
        return short
    for path, most in ask.most:
        value = figure(figures, path)
        if not isinstance(value, int | float) or value > most:
            return f"{path} is {value}, and at most {most:g} is asked for"
    return ""


def _told(ask: Ask, figures: dict[str, Any]) -> str:
    paths = [path for path, _ in (*ask.most, *ask.least)]
    said = [f"{path.removeprefix('checked.')} {figure(figures, path):,}" for path in paths]
    return ", ".join(said) or "passed"
