"""Owns how a run is told to people: as lines, and as one HTML page that needs nothing but itself.

The page has a lane for each machine and each plane; what broke is a bar for as long as it lasted, commits and what programs said
are ticks, findings are red lines across all lanes. Pure: verdicts in, text out. Called by campaign.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from fairlead.sim.world import Verdict

WIDTH: Final = 1600
LEFT: Final = 190
ROW: Final = 22
_LASTS: Final = re.compile(r", for ([0-9.]+) s")
_SOMEBODY: Final = re.compile(r"[a-z][a-z-]*(?:/[a-z0-9-]+)?(?:-n?[0-9]+)?")

STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.3rem; margin: 0 0 .3rem }
.note { color: #57606a; margin: 0 0 1rem }
code { background: #f3f4f6; padding: 0 .3em }
svg { border: 1px solid #d0d7de; max-width: 100%; height: auto; display: block }
text { font: 11px system-ui, sans-serif; fill: #24292f }
table { border-collapse: collapse; margin-top: 1rem; font-size: 13px }
td { padding: .1rem .7rem .1rem 0; vertical-align: top }
td:first-child { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td:nth-child(2) { white-space: nowrap }
tr.chaos td { color: #9a3412 }
tr.people td { color: #1d4ed8 }
tr.checker td { color: #b91c1c; font-weight: 600 }
tr.commit td { color: #57606a }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3 } text { fill: #e6edf3 } code { background: #21262d } .note { color: #8b949e }
  tr.chaos td { color: #fdba74 } tr.people td { color: #93c5fd } tr.checker td { color: #fca5a5 } tr.commit td { color: #8b949e }
}
"""


class Mark(NamedTuple):
    lane: str
    at_s: float
    lasts_s: float
    kind: str  # chaos, people, checker, commit or program
    text: str


def lines(verdict: Verdict) -> Iterator[str]:
    for at_s, who, what in verdict.timeline:
        yield f"{at_s:10.3f}  {who:<24}  {what}"


def marks_of(verdict: Verdict) -> list[Mark]:
    known = _lanes(verdict.timeline)
    out = []
    for at_s, who, what in verdict.timeline:
        lasts = _LASTS.search(what)
        kind = who if who in ("chaos", "people", "checker") else "commit" if who.startswith("plane ") else "program"
        lane = _about(what, known) if kind == "chaos" else who if kind != "program" else who.partition(".")[0]
        out.append(Mark(lane, at_s, float(lasts.group(1)) if lasts else 0.0, kind, what))
    return out


def _lanes(timeline: Sequence[tuple[float, str, str]]) -> list[str]:
    """Whom the chaos speaks of: the first words of what it says."""
    found: dict[str, None] = {}
    for _, who, what in timeline:
        if who == "chaos":
            name = _subject(what)
            if name:
                found[name] = None
    return sorted(found, key=len, reverse=True)


def _subject(what: str) -> str:
    words = what.removeprefix("the wall clock of ").removeprefix("the disk of ").removeprefix("all connections of ")
    if words.startswith(("store ", "agent ")):
        return " ".join(words.split()[:2]).rstrip(",")
    name = words.split()[0].partition(".")[0] if words else ""
    return name if _SOMEBODY.fullmatch(name) and name != "everything" else ""


def _about(what: str, known: Sequence[str]) -> str:
    return _subject(what) or next((name for name in known if name in what), "everything")


def page(verdict: Verdict, command: str) -> str:
    marks = marks_of(verdict)
    lanes = list(dict.fromkeys(mark.lane for mark in sorted(marks, key=lambda m: (m.kind != "commit", m.lane))))
    title = f"seed {verdict.seed}, profile {verdict.profile}"
    found = "".join(
        f"<p><strong>{escape(f.invariant)}</strong> {escape(f.plane)} at {f.at_s} s: {escape(f.detail)}</p>"
        for f in verdict.findings
    )
    rows = "".join(
        f'<tr class="{mark.kind}"><td>{mark.at_s:.3f}</td><td>{escape(mark.lane)}</td><td>{escape(mark.text)}</td></tr>\n'
        for mark in marks
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        f'<p class="note">{verdict.simulated_s:.0f} simulated seconds, {verdict.steps:,} steps, {verdict.commits:,} commits. '
        f"Reproduce: <code>{escape(command)}</code></p>\n{found or '<p>Nothing was found.</p>'}\n"
        f"{_drawing(marks, lanes, verdict.simulated_s)}\n<table>{rows}</table></body></html>\n"
    )


def _drawing(marks: Sequence[Mark], lanes: Sequence[str], length_s: float) -> str:
    scale = (WIDTH - LEFT - 20) / max(length_s, 1.0)
    row_of = {lane: number for number, lane in enumerate(lanes)}
    height = ROW * (len(lanes) + 2)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="what happened, by machine and time">']
    step_s = max(1, round(length_s / 12 / 5) * 5)
    for second in range(0, int(length_s) + 1, step_s):
        x = LEFT + second * scale
        parts.append(f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height - ROW}" stroke="#8884"/>')
        parts.append(f'<text x="{x + 2:.1f}" y="{height - 6}">{second} s</text>')
    parts += [f'<text x="4" y="{ROW * row + 15}">{escape(lane[:28])}</text>' for lane, row in row_of.items()]
    parts += [_drawn(mark, LEFT + mark.at_s * scale, ROW * row_of[mark.lane] + 3, scale, height) for mark in marks]
    return "\n".join([*parts, "</svg>"])


def _drawn(mark: Mark, x: float, y: float, scale: float, height: int) -> str:
    told = f"<title>{mark.at_s:.3f} s: {escape(mark.text)}</title>"
    if mark.kind == "checker":
        return f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height - ROW}" stroke="#dc2626" stroke-width="2">{told}</line>'
    colour = {"chaos": "#ea580c", "people": "#2563eb", "commit": "#64748b"}.get(mark.kind, "#7c3aed")
    width, opacity = max(2.0, mark.lasts_s * scale), 0.55 if mark.lasts_s else 1.0
    size = f'width="{width:.1f}" height="{ROW - 8}"'
    return f'<rect x="{x:.1f}" y="{y}" {size} fill="{colour}" fill-opacity="{opacity}">{told}</rect>'
