"""Owns the objects of people who may see one tenant: a viewer of each, with a token. Records only. Called by platform.py where a
scenario has readers; readers.py speaks in their names."""

from __future__ import annotations

from datetime import UTC, datetime

from fairlead.model.kinds.access import SYSTEM_TENANT, AccessBinding, AccessBindingSpec, Subject, Token, TokenSpec
from fairlead.model.meta import Metadata
from fairlead.ports import Ids
from fairlead.security import tokens
from fairlead.sim.born import TENANTS, Born


def viewer_of(tenant: str) -> str:
    return f"viewer-of-{tenant}"


def viewers(ids: Ids) -> tuple[Born, dict[str, str]]:
    """A viewer of each tenant, with a token: the objects, and the tokens by tenant."""
    made: Born = []
    texts: dict[str, str] = {}
    for tenant in TENANTS:
        minted = tokens.mint(ids, SYSTEM_TENANT)
        subject = Subject(name=viewer_of(tenant))
        token = TokenSpec(hash=minted.hash, subject=subject, expiry_time=datetime(2100, 1, 1, tzinfo=UTC))
        made.append(("Token", Token(Metadata(name=minted.name, namespace=SYSTEM_TENANT), token)))
        binding = AccessBindingSpec(role="tenant-viewer", subjects=(subject,), tenants=(tenant,))
        made.append(("AccessBinding", AccessBinding(Metadata(name=subject.name), binding)))
        texts[tenant] = minted.text.reveal_bytes().decode()
    return made, texts
