"""The page of alerts, read from deploy/alerts.yml: what each means, how urgent it is, where to begin.

Owns the words around them. Called by reference.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from fairlead.wire.yaml_codec import parse_yaml

RULES: Final = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yml"
Table = Callable[[Sequence[str], Iterable[Sequence[object]]], str]

WORDS: Final = """Every rule of `deploy/alerts.yml` that calls somebody. Names in capitals stand for labels of the alert, or are
yours to fill in. How to load the rules, and which objectives have an error budget: [observing](../observing.md#alerts)."""
_SEVERITIES: Final = {"page": "wakes somebody", "ticket": "waits for the morning"}
_TEMPLATE: Final = re.compile(r"\{\{ \$(?:labels\.)?(\w+) \}\}")


def alerts() -> list[dict[str, Any]]:
    documents = parse_yaml(RULES.read_bytes())
    assert isinstance(documents, list), documents
    tree: Any = documents[0]
    return [rule for group in tree["groups"] for rule in group["rules"] if "alert" in rule]


def sections(table: Table) -> list[str]:
    out = [WORDS]
    for severity, words in _SEVERITIES.items():
        rows = [_row(rule) for rule in alerts() if rule["labels"]["severity"] == severity]
        out.append(f"## {severity}: {words}\n" + table(["alert", "it says", "which means", "begin with", "runbook"], rows))
    return out


def _row(rule: dict[str, Any]) -> tuple[str, ...]:
    said = rule["annotations"]
    runbook = Path(said["runbook"])
    link = f"[{runbook.stem if runbook.stem != 'README' else 'runbooks'}](../{runbook.relative_to('docs')})"
    return f"`{rule['alert']}`", _plain(said["summary"]), said["description"], f"`{_plain(said['command'])}`", link


def _plain(text: str) -> str:
    return _TEMPLATE.sub(lambda found: found[1].upper(), text)
