"""A region's plane with everything that guards it, for the tests of access."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from starlette.requests import HTTPConnection

from fairlead.api.authz import Access
from fairlead.api.identity import Authenticator
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.decide.access import Identity
from fairlead.model.commands import Accepted, Caller, Put
from fairlead.model.kinds.access import SYSTEM_TENANT, NodeProfile, Subject, Token, TokenSpec
from fairlead.model.kinds.intent import FileMount, Secret, SecretSpec, Template
from fairlead.model.kinds.work import Ask, Revision, RevisionSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemIds
from fairlead.security import tokens
from fairlead.security.directory import AccessDirectory
from fairlead.security.holdings import PlaneHoldings
from fairlead.security.joining import Joining
from tests.authority.planes import GI, OPERATOR, REGION, FakeClock, PlaneForTest, bind_of, ok, running_plane
from tests.security.places import Place
from tests.security.rules import bound

CI = Subject(kind="ServiceAccount", name="ci", tenant="risk")


class Guarded:
    """A region's plane with everything that guards it."""

    def __init__(self, plane: PlaneForTest, place: Place) -> None:
        self.plane = plane
        self.place = place
        authority = plane.authority
        self.local = LocalPlane(authority, plane.clock)
        self.directory = AccessDirectory(self.local, plane.clock)
        self.authenticator = Authenticator(self.directory, region=REGION)
        holdings = PlaneHoldings(self.get, authority.bound_to)
        self.access = Access(self.directory, "region", self.get, holdings, REGION)
        self.joining = Joining(self.local, plane.clock, place.issuer, REGION)

    def get(self, plural: str, tenant: str, name: str) -> Any:
        return self.plane.authority.view().get(plural, tenant, name)

    def now(self) -> datetime:
        return self.directory.now()

    async def put(self, kind: str, value: Any, by: Caller = OPERATOR) -> Accepted:
        return ok(await self.plane.send(by, Put(kind, value)))

    async def bind_role(self, role: str, tenants: str, *subjects: Subject) -> None:
        name = f"{role}-{len(self.directory.bindings())}"
        await self.put("AccessBinding", bound(role, tenants, *subjects, name=name))

    async def token(self, subject: Subject, lifetime: timedelta = timedelta(hours=1), **spec: Any) -> tuple[str, Token]:
        """(what its owner has, what is stored)"""
        tenant = subject.tenant or SYSTEM_TENANT
        minted = tokens.mint(SystemIds(), tenant)
        stored = Token(
            metadata=Metadata(name=minted.name, namespace=tenant),
            spec=TokenSpec(hash=minted.hash, subject=subject, expiry_time=self.now() + lifetime, **spec),
        )
        await self.put("Token", stored)
        return minted.text.reveal(), stored

    async def join_token(
        self, node: str, region: str = REGION, lifetime: timedelta = timedelta(hours=1), **more: Any
    ) -> tuple[str, Token]:
        """`more` of its profile, but for `annotations`."""
        annotations = more.pop("annotations", {})
        minted = tokens.mint(SystemIds(), SYSTEM_TENANT, join=True)
        fields: dict[str, Any] = {"zone": "a", "labels": {"disk": "ssd"}, "capacity": Resources(8000, 16 * GI)} | more
        profile = NodeProfile(node=node, region=region, **fields)
        spec = TokenSpec(purpose="Join", hash=minted.hash, expiry_time=self.now() + lifetime, profile=profile)
        stored = Token(metadata=Metadata(name=minted.name, namespace=SYSTEM_TENANT, annotations=annotations), spec=spec)
        await self.put("Token", stored, await self.plane.as_role(Role.MIRROR) if annotations else OPERATOR)
        return minted.text.reveal(), stored

    async def revoke(self, token: Token) -> None:
        await self.put("Token", replace(token, spec=replace(token.spec, revoked=True)))

    def asked(self, text: str | None = None, *, scheme: str = "https", host: str = "10.0.0.9", **more: str) -> HTTPConnection:
        headers = [(b"authorization", f"Bearer {text}".encode())] if text is not None else []
        headers += [(name.encode(), value.encode()) for name, value in more.items()]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers, "scheme": scheme}
        return HTTPConnection({**scope, "server": ("plane", 443), "client": (host, 5000), "state": {}})

    def identify(self, text: str, **more: str) -> Identity:
        return self.authenticator.identify(self.asked(text, **more))


@asynccontextmanager
async def guarded(tmp_path: Path, clock: FakeClock | None = None) -> AsyncIterator[Guarded]:
    async with running_plane(clock=clock, settings=Settings(region=REGION)) as plane:
        made = Guarded(plane, Place(tmp_path))
        await made.directory.load()
        yield made


async def placed(world: Guarded) -> None:
    """api-0 of risk on n1 with secret db and config c; api-1 on n2 with secret other."""
    await world.plane.add_node("n1")
    await world.plane.add_node("n2")
    await world.plane.grant("risk")
    for tenant, name in (("risk", "db"), ("risk", "other"), ("search", "db")):
        await world.put("Secret", Secret(metadata=Metadata(name=name, namespace=tenant), spec=SecretSpec(data={"k": name})))
    workload = await world.plane.as_role(Role.WORKLOAD)
    for generation, secret in ((1, "db"), (2, "other")):
        template = Template(command=("/bin/api",), files=(FileMount(path="s", secret=secret), FileMount(path="c", config="c")))
        ask = Ask(requests=Resources(1000, GI))
        spec = RevisionSpec(workload="api", workload_uid="u-risk-api", generation=generation, template=template, ask=ask)
        revision = Revision(metadata=Metadata(name=f"api.g{generation}", namespace="risk"), spec=spec)
        ok(await world.plane.send(workload, Put("Revision", revision)))
        twin = replace(revision, metadata=replace(revision.metadata, namespace="search"), spec=replace(spec, workload_uid="u-2"))
        ok(await world.plane.send(workload, Put("Revision", twin)))  # another tenant's workload of the same name, elsewhere
    assigner, scheduler = await world.plane.as_role(Role.ASSIGNMENT), await world.plane.as_role(Role.SCHEDULER)
    for index, node in ((0, "n1"), (1, "n2")):
        ok(await world.plane.request("risk", "api", index, assigner, generation=index + 1))
        ok(await world.plane.send(scheduler, bind_of("risk", f"api-{index}", node, generation=index + 1)))
