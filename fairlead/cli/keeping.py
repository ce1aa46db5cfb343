"""What commands leave as evidence for `fairlead review`: which figures of a drill, a campaign, an audit or a benchmark are kept.

Owns the choice of figures, and that a record which cannot be written fails nothing: the command's own answer stands. Judges
nothing. Called by those commands when they have their result.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.cli.frame import World
from fairlead.cli.output import note
from fairlead.observe.evidence import Begun
from fairlead.observe.readiness import EXCUSED

NAMES_MAX: Final = 20  # planted bugs named in a record that were not found; one is enough to turn a claim red


def begin(world: World) -> Begun | None:
    """Before the work: which build this is must be known from before somebody may have edited it."""
    return world.evidence().begin() if world.evidence is not None else None


def keep(world: World, begun: Begun | None, name: str, passed: bool, figures: dict[str, Any], key: str = "") -> None:
    if begun is None or world.evidence is None:
        return
    try:
        world.evidence().keep(begun, name, passed, figures, key)
    except OSError as error:
        note(f"no evidence was kept: {error.filename}: {error.strerror}")


# --- figures -----------------------------------------------------------------------------------------------------------------


def of_drill(results: dict[str, Any]) -> dict[str, Any]:
    failed = [check["name"] for check in results["checks"] if not check["passed"]]
    return {"timings_s": results["timings_s"], "serving": results["serving"], "checks": len(results["checks"]), "failed": failed}


def of_drill_audit(results: dict[str, Any]) -> dict[str, Any] | None:
    """A drill ends with the audit of every plane: that is evidence of its own."""
    planes = results.get("audit")
    if not planes:
        return None
    checked: dict[str, int] = {}
    broken = [{"invariant": name, "where": plane} for plane, told in planes.items() for name in told["violations"]]
    unread = [f"{plane}: {said}" for plane, told in planes.items() for said in told.get("unread", ())]
    if unread:
        return _in_part(broken, unread)
    for plane in planes.values():
        for name, count in plane["checked"].items():
            checked[name] = checked.get(name, 0) + count
    return {"revisions": sum(plane["revisions"] for plane in planes.values()), "checked": checked, "violations": broken}


def of_audit(results: dict[str, Any], directory: str) -> dict[str, Any]:
    rows = results["invariants"]
    broken = [{"invariant": name, "where": directory} for name, row in rows.items() if row["violations"]]
    if results["unread"]:
        return _in_part(broken, results["unread"])
    return {
        "revisions": results["revisions"],
        "checked": {name: row["checked"] for name, row in rows.items()},
        "violations": broken,
    }


def _in_part(broken: list[dict[str, str]], unread: list[str]) -> dict[str, Any]:
    """What was found broken in a part of a history stands; that nothing else was proves nothing."""
    return {"revisions": 0, "checked": {}, "violations": broken, "unread": unread}


def of_campaign(results: dict[str, Any]) -> dict[str, Any]:
    first = {one["invariant"]: f"seed {one['seed']}" for one in reversed(results["violations"])}  # of each, the first
    same = (
        "seeds",
        "simulated_s",
        "commits",
        "checked",
        "faults",
        "refusals",
        "recovered",
        "recovered_max_s",
        "agreed_max_s",
        "resumed",
    )
    return {name: results[name] for name in same if results.get(name) is not None} | {
        "violations": [{"invariant": name, "where": where} for name, where in first.items()],
        "mismatches": len(results.get("mismatches") or ()),
        "void": [EXCUSED if one["kind"] == EXCUSED else one["name"] for one in results["void"]],
    }


def key_of_campaign(params: dict[str, Any]) -> str:
    seeds = params.get("seeds") or ("-", "-")
    return f"{params.get('profile')} {seeds[0]}-{seeds[-1]} {params.get('minutes')}"


def of_mutants(rows: list[dict[str, Any]]) -> dict[str, Any]:
    lost = [row["name"] for row in rows if not row["found"] or row["late"] or row["control"]]
    return {"planted": len(rows), "lost": len(lost), "names": lost[:NAMES_MAX]}


def of_sieve(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tried": sum(row["tried"] for row in rows), "failed": sum(len(row["failed"]) for row in rows)}


def of_replay(results: dict[str, Any]) -> dict[str, Any]:
    return {name: results[name] for name in ("plane", "region", "judged", "different")}


def of_bench(result: dict[str, Any]) -> dict[str, Any]:
    return {**result["results"], "params": result.get("params") or {}}
