"""The security page names tests that exist, and describes the roles as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fairlead.decide.access_roles import BUILT_IN
from fairlead.security.tokens import LEAK_PATTERN

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))
ROWS = re.findall(r"^\| ([STRIDE]) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
BOUNDARIES = ("Users and the API", "API and store", "Region and global", "Agent and API", "Workload and agent")


@pytest.mark.parametrize("named", NAMED)
def test_every_test_the_page_names_exists(named: str) -> None:
    path, _, name = named.partition("::")
    text = (ROOT / path).read_text()
    assert not name or re.search(rf"^(?:async )?def {re.escape(name)}\(", text, re.MULTILINE)


def test_every_threat_names_its_test() -> None:
    assert len(ROWS) > 40
    assert [row for row in ROWS if not re.fullmatch(r"`tests/.+`", row[3])] == []


def test_the_bill_of_materials_has_every_pin_and_the_hashes_that_are_accepted_for_it() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "requirements" / "sbom.py")], capture_output=True, text=True, check=True)
    made = {each["purl"]: each for each in msgspec.json.decode(done.stdout)["components"]}
    pins = (ROOT / "requirements" / "runtime.txt").read_text()
    assert len(made) == len(re.findall(r"^[a-z]\S*==", pins, re.MULTILINE)) > 10
    assert sum(len(each["properties"]) for each in made.values()) == pins.count("--hash=sha256:")
    assert [purl for purl in made if re.fullmatch(r"pkg:pypi/cryptography@[0-9.]+", purl)]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", p["value"]) for each in made.values() for p in each["properties"])


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_every_trust_boundary_has_its_table(boundary: str) -> None:
    assert f"\n### {boundary}\n" in PAGE


def test_the_roles_are_described_as_they_are() -> None:
    told = {
        name: (scope, about) for name, scope, about in re.findall(r"^\| `([\w-]+)` \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    }
    scopes = {"Cluster": "cluster", "Tenant": "tenants by name"}
    assert {name: (scopes[role.scope], role.about) for name, role in BUILT_IN.items()} == told
    assert LEAK_PATTERN in PAGE
