"""What `fairlead auth` does, apart from how it reaches a server and how it prints. Tokens are made here; only their hash leaves.

Owns the shape of the objects that are sent. A secret is made on the caller's machine, shown once and kept nowhere. Called by
fairlead/cli/auth.py with a client; tests call it with one of their own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from fairlead.ports import Ids
from fairlead.security import certificates, tokens
from fairlead.security.hidden import Hidden

API_VERSION: Final = "fairlead.dev/v1alpha1"
SYSTEM_TENANT: Final = "fairlead-system"
REVIEWS: Final = "/apis/authorization.k8s.io/v1"
WHOAMI: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
LIFETIME: Final = timedelta(days=90)
JOIN_LIFETIME: Final = timedelta(hours=1)


class Objects(Protocol):
    """All that is asked of a client here. Errors are the client's own."""

    async def read(self, plural: str, tenant: str, name: str) -> dict[str, Any]: ...

    async def listed(self, plural: str, tenant: str) -> list[dict[str, Any]]: ...

    async def create(self, plural: str, tenant: str, body: dict[str, Any]) -> dict[str, Any]: ...

    async def merge(self, plural: str, tenant: str, name: str, body: dict[str, Any]) -> dict[str, Any]: ...

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


class Issued(NamedTuple):
    tenant: str
    name: str
    expiry: datetime
    text: Hidden


class Wanted(NamedTuple):
    """What a new access token is for. A tenant makes it a service account's."""

    name: str
    tenant: str = ""
    narrowed: tuple[str, ...] = ()
    lifetime: timedelta = LIFETIME

    def subject(self) -> dict[str, str]:
        if self.tenant:
            return {"kind": "ServiceAccount", "name": self.name, "tenant": self.tenant}
        return {"kind": "User", "name": self.name}


async def can_i(client: Objects, verb: str, resource: str, tenant: str, name: str, subresource: str) -> tuple[bool, str]:
    attributes = {"verb": verb, "group": "fairlead.dev", "version": "v1alpha1", "resource": resource}
    attributes |= {key: value for key, value in (("namespace", tenant), ("name", name), ("subresource", subresource)) if value}
    body = {**_head("authorization.k8s.io/v1", "SelfSubjectAccessReview"), "spec": {"resourceAttributes": attributes}}
    status = (await client.ask(f"{REVIEWS}/selfsubjectaccessreviews", body)).get("status", {})
    return bool(status.get("allowed")), str(status.get("reason", ""))


async def rules(client: Objects, tenant: str) -> list[dict[str, Any]]:
    body = {**_head("authorization.k8s.io/v1", "SelfSubjectRulesReview"), "spec": {"namespace": tenant}}
    status = (await client.ask(f"{REVIEWS}/selfsubjectrulesreviews", body)).get("status", {})
    return list(status.get("resourceRules", []))


async def who_am_i(client: Objects) -> dict[str, Any]:
    body = _head("authentication.k8s.io/v1", "SelfSubjectReview")
    user: dict[str, Any] = (await client.ask(WHOAMI, body)).get("status", {}).get("userInfo", {})
    return user


async def create_token(client: Objects, ids: Ids, now: datetime, wanted: Wanted) -> Issued:
    home = wanted.tenant or SYSTEM_TENANT
    minted = tokens.mint(ids, home)
    spec: dict[str, Any] = {"purpose": "Access", "hash": minted.hash, "subject": wanted.subject()}
    spec["expiryTime"] = instant(now + wanted.lifetime)
    if wanted.narrowed:
        spec["tenants"] = list(wanted.narrowed)
    await client.create("tokens", home, _token(home, minted.name, spec))
    return Issued(home, minted.name, now + wanted.lifetime, minted.text)


async def create_join_token(
    client: Objects, ids: Ids, now: datetime, profile: dict[str, Any], lifetime: timedelta = JOIN_LIFETIME
) -> Issued:
    minted = tokens.mint(ids, SYSTEM_TENANT, join=True)
    spec = {"purpose": "Join", "hash": minted.hash, "expiryTime": instant(now + lifetime), "profile": profile}
    await client.create("tokens", SYSTEM_TENANT, _token(SYSTEM_TENANT, minted.name, spec))
    return Issued(SYSTEM_TENANT, minted.name, now + lifetime, minted.text)


async def revoke(client: Objects, tenant: str, name: str, reason: str) -> None:
    await client.merge("tokens", tenant, name, {"spec": {"revoked": True, "reason": reason}})


async def revoke_certificate(client: Objects, ids: Ids, pem: bytes, reason: str) -> str:
    """Refuses one certificate by its fingerprint, wherever it was issued. The name of the token that says so."""
    print_of = certificates.fingerprint_of(certificates.load(pem))
    name = ids.token()
    spec = {"purpose": "Certificate", "hash": print_of, "revoked": True, "reason": reason}
    await client.create("tokens", SYSTEM_TENANT, _token(SYSTEM_TENANT, name, spec))
    return name


async def rotate(client: Objects, ids: Ids, now: datetime, tenant: str, name: str, overlap: timedelta) -> Issued:
    """A new token for the same subject with as long a life. The old one ends after `overlap`, at once if that is nothing: the new
    one is there before, so whatever fails in between leaves a token that works."""
    old = await client.read("tokens", tenant, name)
    spec = old.get("spec", {})
    subject = spec.get("subject") or {}
    if spec.get("purpose", "Access") != "Access" or not subject:
        raise ValueError(f"{tenant}/{name} is no access token; join tokens are used once, issue another")
    born, ends = moment(old.get("metadata", {}).get("creationTimestamp")), moment(spec.get("expiryTime"))
    lifetime = ends - born if born is not None and ends is not None else LIFETIME
    service = subject.get("tenant", "") if subject.get("kind") == "ServiceAccount" else ""
    wanted = Wanted(subject.get("name", ""), service, tuple(spec.get("tenants", ())), lifetime)
    issued = await create_token(client, ids, now, wanted)
    if overlap <= timedelta(0):
        await revoke(client, tenant, name, f"rotated: {issued.name}")
    elif ends is None or ends > now + overlap:
        await client.merge("tokens", tenant, name, {"spec": {"expiryTime": instant(now + overlap)}})
    return issued


def row_of(token: dict[str, Any], now: datetime) -> dict[str, str]:
    """One line of a list. Nothing in it helps whoever reads over the shoulder."""
    metadata, spec, status = token.get("metadata", {}), token.get("spec", {}), token.get("status", {})
    subject, profile = spec.get("subject") or {}, spec.get("profile") or {}
    ends = moment(spec.get("expiryTime"))
    whose = "/".join(part for part in (subject.get("tenant", ""), subject.get("name", "")) if part) or profile.get("node", "-")
    state = "Good"
    if spec.get("revoked"):
        state = "Revoked"
    elif status.get("spentTime"):
        state = "Spent"
    elif ends is not None and ends <= now:
        state = "Expired"
    return {
        "name": metadata.get("name", ""),
        "tenant": metadata.get("namespace", ""),
        "purpose": spec.get("purpose", "Access"),
        "subject": whose,
        "expires": spec.get("expiryTime", "-"),
        "last_used": status.get("lastUsedTime", "never"),
        "state": state,
    }


def instant(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _head(version: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind}


def _token(tenant: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {**_head(API_VERSION, "Token"), "metadata": {"name": name, "namespace": tenant}, "spec": spec}
