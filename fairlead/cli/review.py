"""`fairlead review`: the readiness review as a table, as JSON or as a page; and the runs of tests that are evidence for it.

Owns the words. What is asked for is in fairlead/observe/readiness.py, what makes a row green in review.py, where evidence lies in
evidence.py. Exit code 8 while a row is red.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, LazyGroup, Told, World
from fairlead.cli.output import environment, instant_of, json_option, note, put_json, put_table
from fairlead.cli.review_page import page
from fairlead.observe.evidence import Evidence, kept
from fairlead.observe.readiness import CLAIMS, RISKS, TESTS
from fairlead.observe.review import GREEN, Piece, Row, review

ROOT = Path(__file__).resolve().parents[2]  # of a checkout, if this is one


@click.group("review", cls=LazyGroup, invoke_without_command=True)
@click.option(
    "--evidence", metavar="DIR", help="Where evidence lies. [default: $FAIRLEAD_EVIDENCE, or the user's state directory]"
)
@click.option("--html", is_flag=True, help="Print the review as a page, and nothing outside it.")
@click.option("--next", "only_next", is_flag=True, help="Print only what to run to have what is missing, one command a line.")
@json_option
@click.pass_context
def command(ctx: click.Context, evidence: str | None, html: bool, only_next: bool, as_json: bool) -> int | None:
    """Say for each claim and each promise which evidence there is, and what is missing. Exit code 8 while one is red.

    \b
    fairlead review
    fairlead review --html > review.html
    fairlead review --next | sh -x

    Drills, simulation, audits, benchmarks and `review test` leave a record each. A claim is green when every kind of evidence it
    needs is there, of this build, under seven days old, and passed. Nobody ticks anything off: what is missing is red by itself.
    """
    if ctx.invoked_subcommand is not None:
        return None
    store = _evidence_of(ctx.obj)
    folder = Path(evidence) if evidence else store.folder
    rows = review(CLAIMS, kept(folder), store.now_s(), store.build())
    told = _told(rows, str(folder), store.build(), store.now_s())
    if as_json:
        put_json(told)
    elif html:
        click.echo(page(told))
    elif only_next:
        for line in _next(rows):
            click.echo(line)
    else:
        _tell(rows, store.build())
    return OK if all(row.status == GREEN for row in rows) else CHECK_FAILED


def _evidence_of(world: World) -> Evidence:
    assert world.evidence is not None, "the composition root knows where evidence lies"
    return world.evidence()


def _next(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(line for row in rows for line in row.next))


def _told(rows: list[Row], folder: str, build: str, now_s: float) -> dict[str, Any]:
    claims = [
        {
            "id": row.id,
            "claim": row.claim,
            "status": row.status,
            "evidence": [_piece(piece) for piece in row.pieces],
            "next": row.next,
        }
        for row in rows
    ]
    green = sum(row.status == GREEN for row in rows)
    return {
        "name": "review",
        "params": {"evidence": folder},
        "environment": environment(),
        "results": {
            "build": build,
            "time": instant_of(int(now_s * 1000)),
            "green": green,
            "red": len(rows) - green,
            "claims": claims,
            "risks": [risk._asdict() for risk in RISKS],
            "next": _next(rows),
        },
    }


def _piece(piece: Piece) -> dict[str, Any]:
    when = instant_of(int(piece.time_s * 1000)) if piece.time_s is not None else None
    told = {"kind": piece.kind, "record": piece.record, "state": piece.state}
    return told | {"command": piece.command, "time": when, "figure": piece.detail, "build": piece.build}


def _tell(rows: list[Row], build: str) -> None:
    lines: list[tuple[str, ...]] = []
    for row in rows:
        lines.append((row.id, row.status, row.claim, "", ""))
        for piece in row.pieces:
            when = instant_of(int(piece.time_s * 1000)) if piece.time_s is not None else "-"
            said = piece.detail if piece.is_present else f"{piece.state}: {piece.detail}"
            lines.append(("", "", f"  {piece.kind}: {said}", when, piece.command or "-"))
    put_table(("ID", "STATUS", "CLAIM AND EVIDENCE", "WHEN", "COMMAND"), lines)
    click.echo()
    put_table(("RISK", "WHAT IS LEFT", "WHY"), [(risk.id, risk.risk, risk.because) for risk in RISKS])
    red = [row.id for row in rows if row.status != GREEN]
    note(f"build {build}: {len(rows) - len(red)} green, {len(red)} red{': ' + ' '.join(red) if red else ''}")
    if red:
        note("`fairlead review --next` lists what to run")


# --- tests as evidence -------------------------------------------------------------------------------------------------------


@command.command("test")
@click.argument("name", type=click.Choice(sorted(TESTS)))
@json_option
@click.pass_obj
def test(world: World, name: str, as_json: bool) -> int:
    """Run tests of the source checkout that a claim rests on, and keep what came of it."""
    if not (ROOT / "tests").is_dir():
        raise Told("tests need a source checkout: they are not part of the installed package", code=NOT_FOUND)
    begun = keeping.begin(world)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *TESTS[name]],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    figures = counted(done.stdout)
    well = done.returncode == 0 and figures["passed"] > 0
    keeping.keep(world, begun, f"test {name}", well, figures)
    if as_json:
        results = {"test": name, "well": well, **figures}
        put_json(
            {"name": "review test", "params": {"tests": list(TESTS[name])}, "environment": environment(), "results": results}
        )
    else:
        click.echo(done.stdout, nl=False)
    return OK if well else CHECK_FAILED


def counted(text: str) -> dict[str, int]:
    """From pytest's last line."""
    last = next((line for line in reversed(text.splitlines()) if re.search(r"\d+ (passed|failed|error)", line)), "")
    found = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    return {
        "passed": found.get("passed", 0),
        "failed": found.get("failed", 0) + found.get("error", 0),
        "skipped": found.get("skipped", 0),
    }
