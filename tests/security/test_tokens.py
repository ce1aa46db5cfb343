"""Bearer tokens: their form, their hash, and what is said about wrong ones."""

from __future__ import annotations

import re

import pytest

from fairlead.ports import SystemIds
from fairlead.security import tokens
from fairlead.security.hidden import Hidden


class Counted:
    """Ids one can foresee."""

    def __init__(self) -> None:
        self.given = 0

    def token(self) -> str:
        self.given += 1
        return f"{self.given:016x}"


def test_a_token_has_256_bits_of_its_own_and_only_their_hash_is_for_keeping() -> None:
    ids = Counted()
    minted = tokens.mint(ids, "risk")
    assert ids.given == 5, "a name, and four times 64 bits"
    text = minted.text.reveal()
    presented = tokens.parse(text)
    assert presented is not None
    assert (presented.join, presented.tenant, presented.name) == (False, "risk", minted.name)
    secret = presented.secret.reveal()
    assert len(bytes.fromhex(secret)) == 32
    assert secret not in repr(minted) + minted.hash + minted.name
    assert tokens.matches(presented, minted.hash)
    assert tokens.mint(SystemIds(), "risk").text != tokens.mint(SystemIds(), "risk").text


def test_scanners_find_every_token() -> None:
    for join in (False, True):
        text = tokens.mint(SystemIds(), "fairlead-system", join=join).text.reveal()
        assert re.search(tokens.LEAK_PATTERN, f'export TOKEN="{text}"') is not None
        assert text.startswith("flj_" if join else "flt_")


@pytest.mark.parametrize(
    "text",
    ["", "flt_", "abc", "flt_risk.name", "flx_risk.name." + "0" * 64, "flt_risk.name." + "0" * 63, "flt_risk.name." + "0" * 65,
     "flt_risk.name." + "G" * 64, "flt_Risk.name." + "0" * 64, "flt_risk.na.me." + "0" * 64, " flt_risk.name." + "0" * 64,
     "flt_risk.name." + "0" * 64 + "\n", "flt_" + "a" * 10_000],
)  # fmt: skip
def test_what_does_not_look_like_a_token_is_none(text: str) -> None:
    assert tokens.parse(text) is None


def test_a_wrong_secret_and_an_unknown_token_do_not_match() -> None:
    minted = tokens.mint(SystemIds(), "risk")
    presented = tokens.parse(minted.text.reveal())
    assert presented is not None
    wrong = presented._replace(secret=Hidden("0" * 64))
    assert not tokens.matches(wrong, minted.hash)
    assert not tokens.matches(presented, None)
    assert not tokens.matches(presented, "")
    assert not tokens.matches(presented, minted.hash[:-1])
