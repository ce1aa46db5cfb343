"""The readiness review as one page of HTML with nothing outside it. Owns its looks; decides nothing. Called by review.py."""

from __future__ import annotations

from html import escape
from typing import Any, Final

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #d8dee4; }
tr.claim td { border-top: 2px solid #8c959f; font-weight: 600; }
.green { color: #116329; } .red { color: #a40e26; }
code { font-size: .88em; }
"""


def page(told: dict[str, Any]) -> str:
    results = told["results"]
    title = f"Readiness review of {results['build']}"
    rows = "\n".join(line for claim in results["claims"] for line in _claim(claim))
    risks = "\n".join(
        f"<tr><td>{escape(risk['id'])}</td><td>{escape(risk['risk'])}</td><td>{escape(risk['because'])}</td></tr>"
        for risk in results["risks"]
    )
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n'
        f"<body><h1>{escape(title)}</h1>\n<p>{escape(results['time'])}: {results['green']} green, {results['red']} red.</p>\n"
        f"<table><tr><th>Id</th><th>Status</th><th>Claim and evidence</th><th>When</th><th>Command</th></tr>\n{rows}</table>\n"
        f"<h2>What is left when all is green</h2>\n<table><tr><th>Id</th><th>Risk</th><th>Why</th></tr>\n{risks}</table>\n"
        "</body></html>"
    )


def _claim(claim: dict[str, Any]) -> list[str]:
    status = escape(claim["status"])
    lines = [
        f'<tr class="claim"><td>{escape(claim["id"])}</td><td class="{status}">{status}</td><td colspan="3">'
        f"{escape(claim['claim'])}</td></tr>"
    ]
    for piece in claim["evidence"]:
        present = piece["state"] == "present"
        said = escape(piece["figure"] if present else f"{piece['state']}: {piece['figure']}")
        colour = "green" if present else "red"
        lines.append(
            f'<tr><td></td><td></td><td>{escape(piece["kind"])}: <span class="{colour}">{said}</span></td>'
            f"<td>{escape(piece['time'] or '-')}</td><td><code>{escape(piece['command'] or '-')}</code></td></tr>"
        )
    return lines
