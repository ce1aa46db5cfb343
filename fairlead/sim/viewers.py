"""Owns the objects of people beside the administrator: a viewer of each tenant, and a second person who agrees to what was asked
for, each with a token. Records only. Called by platform.py where a scenario has them; readers.py and emergencies.py speak in
their names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fairlead.model.kinds.access import SYSTEM_TENANT, AccessBinding, AccessBindingSpec, Subject, Token, TokenSpec
from fairlead.model.meta import Metadata
from fairlead.ports import Ids
from fairlead.security import tokens
from fairlead.sim.born import TENANTS, Born

APPROVER: Final = "bob"


def viewer_of(tenant: str) -> str:
    return f"viewer-of-{tenant}"


def viewers(ids: Ids) -> tuple[Born, dict[str, str]]:
    """A viewer of each tenant, with a token: the objects, and the tokens by tenant."""
    made: Born = []
    texts: dict[str, str] = {}
    for tenant in TENANTS:
        texts[tenant] = _person(made, ids, viewer_of(tenant), "tenant-viewer", tenant)
    return made, texts


def approver(ids: Ids) -> tuple[Born, str]:
    """Whoever agrees to overrides that another asked for, and may do nothing else: the objects, and the token."""
    made: Born = []
    return made, _person(made, ids, APPROVER, "approver", "*")


def _person(made: Born, ids: Ids, name: str, role: str, tenant: str) -> str:
    minted = tokens.mint(ids, SYSTEM_TENANT)
    subject = Subject(name=name)
    token = TokenSpec(hash=minted.hash, subject=subject, expiry_time=datetime(2100, 1, 1, tzinfo=UTC))
    made.append(("Token", Token(Metadata(name=minted.name, namespace=SYSTEM_TENANT), token)))
    binding = AccessBindingSpec(role=role, subjects=(subject,), tenants=(tenant,))
    made.append(("AccessBinding", AccessBinding(Metadata(name=name), binding)))
    return minted.text.reveal_bytes().decode()
