"""The local platform on disk: certificates, tokens, seeds and one configuration per process, written once into a state directory.

Owns the names and ports of everything. Nothing here starts anything. Called by local.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fairlead.client.contexts import ClientConfig, Context
from fairlead.compose.agent import AgentConfig
from fairlead.compose.config import Peer, PlaneConfig, TlsFiles
from fairlead.compose.config import read_config as read_config
from fairlead.compose.endpoints import EndpointsConfig
from fairlead.compose.links import LinksConfig
from fairlead.compose.own_users import of_node
from fairlead.compose.wiring import ENDPOINTS, LINKS, PEOPLE, PLANES, REGIONS, Wiring
from fairlead.decide.access_roles import ENDPOINT_READER, FRONT_DOOR, PLANE_SERVER
from fairlead.model.kinds.access import SYSTEM_TENANT, AccessBinding, AccessBindingSpec, Subject, Token, TokenSpec
from fairlead.model.kinds.capacity import Node
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata, Record
from fairlead.model.registry import BY_KIND
from fairlead.ports import Ids
from fairlead.samples.manifests import manifests
from fairlead.security import tokens
from fairlead.security.certificates import LocalAuthority, Named, Pair
from fairlead.security.files import write, write_private
from fairlead.security.sealing import Keyring
from fairlead.wire import json_codec
from fairlead.wire.manifest import decode_objects
from fairlead.wire.yaml_codec import encode_yaml

TENANTS: Final = ("risk", "billing", "search", "fraud", "analytics")
TOKEN_LIFETIME: Final = timedelta(days=90)
TOKEN_RENEWED: Final = TOKEN_LIFETIME / 3  # before its end
AUTHORITY_NAME: Final = "fairlead local platform"
_PRIVATE: Final = ("pki", "config", "logs", "run", "seed", "endpoints")
_ACCESS: Final = "05-access.yaml"
_HOSTS: Final = ("127.0.0.1", "localhost")
_PORTS_PER_NODE: Final = 200
_FIRST_PORT: Final = 21_000

VERSION: Final = b"2\n"  # of what is written here

# People of the local platform: name, built-in role, tenants.
PERSONS: Final = (
    ("admin", "admin", ("*",)),
    ("approver", "approver", ("*",)),
    ("metrics", "metrics-reader", ("*",)),
    *((f"{tenant}-admin", "tenant-admin", (tenant,)) for tenant in TENANTS),
)


class Layout:
    def __init__(self, state: Path, python: str) -> None:
        self.state = state
        self._python = python
        self._own_users = False
        self._wiring: Wiring | None = None  # holds the ports that were chosen here

    @property
    def is_ready(self) -> bool:
        """Raises ValueError where another version of Fairlead has written it."""
        found = self.path("ready")
        if found.exists() and found.read_bytes() != VERSION:
            raise ValueError(f"{self.state} was written by another version of Fairlead; remove it, or name another with --state")
        return found.exists()

    def path(self, *parts: str) -> Path:
        return self.state.joinpath(*parts)

    def config_of(self, process: str) -> Path:
        return self.path("config", f"{process}.json")

    def address_of(self, plane: str) -> str:
        config: PlaneConfig = read_config(self.config_of(plane), PlaneConfig)
        return f"https://{config.listen}"

    # --- writing it once -------------------------------------------------------------------------------------------------

    def write(
        self, now: datetime, ids: Ids, stores: dict[str, str], node_lease_s: float, *, own_users: bool = False
    ) -> None:  # fmt: skip
        """`stores` names the store of a plane where it is not the SQLite file beside it. `own_users`: of instances."""
        self._own_users = own_users
        self.path().mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (*_PRIVATE, "data"):
            self.path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.guard()
        if own_users:
            self.let_through()
        pair = LocalAuthority.create(AUTHORITY_NAME, now)
        write(self.path("pki", "ca.pem"), pair.certificate)
        write_private(self.path("pki", "ca.key"), pair.key.reveal_bytes())
        Keyring.create(self.path("pki", "secrets.keys"), ids)
        authority = LocalAuthority(pair)
        nodes = self._write_seeds(now, ids)
        wiring = self._wiring = Wiring([(f"agent-{node.metadata.name}", node.spec.region) for node in nodes])
        for plane in PLANES:
            self._write_plane(authority, now, plane, wiring, stores.get(plane, ""), node_lease_s)
        for number, node in enumerate(nodes):
            self._write_agent(authority, now, node, number, wiring, node_lease_s)
        self._write_endpoints(authority, now, wiring)
        links = LinksConfig(wiring.links(), str(self.path("run", "faults.json")), str(self.path("run", "in-force.json")))
        self._write_config(LINKS, links)
        self._write_contexts(wiring.address(PEOPLE, "global"))
        write(self.path("ready"), VERSION)

    def let_through(self) -> None:
        """Users of instances, on the way to their own directories; to anything else there is none."""
        for path in (self.path(), self.path("data"), self.path("data", "nodes")):
            with suppress(FileNotFoundError):
                path.chmod(0o711)

    def guard(self) -> None:
        """Keys, tokens and what is said are for whoever started it, whatever the umask was when they were first written."""
        for folder in _PRIVATE:
            with suppress(FileNotFoundError):
                self.path(folder).chmod(0o700)

    def _write_config(self, process: str, config: Any) -> None:
        write_private(self.config_of(process), json_codec.encode(config))  # the URL of a store may hold a password

    def _pair(self, name: str, pair: Pair) -> TlsFiles:
        certificate, key = self.path("pki", f"{name}.pem"), self.path("pki", f"{name}.key")
        write(certificate, pair.certificate)
        write_private(key, pair.key.reveal_bytes())
        return TlsFiles(str(certificate), str(key), str(self.path("pki", "ca.pem")))

    def _write_plane(
        self, authority: LocalAuthority, now: datetime, plane: str, wiring: Wiring, store: str, node_lease_s: float
    ) -> None:
        server = Named("server", f"{plane}-server")
        role = FRONT_DOOR if plane == "global" else Role.MIRROR.value
        component = Named("component", f"{plane}-server", (role, PLANE_SERVER), "" if plane == "global" else plane)
        others = REGIONS if plane == "global" else ("global",)
        config = PlaneConfig(
            plane="global" if plane == "global" else "region",
            region="" if plane == "global" else plane,
            name=f"{plane}-server",
            store=store or f"sqlite:{self.path('data', f'{plane}.db')}",
            data=str(self.path("data", plane)),
            listen=wiring.listen(plane),
            tls=self._pair(f"{plane}-server", authority.issue(server, now, hosts=_HOSTS)),
            identity=self._pair(f"{plane}-component", authority.issue(component, now)),
            peers=tuple(Peer("" if o == "global" else o, (wiring.address(plane, o),)) for o in others),
            seed=str(self.path("seed", "global" if plane == "global" else plane)),
            seal_keys=str(self.path("pki", "secrets.keys")),
            join_key="" if plane == "global" else str(self.path("pki", "ca.key")),
            local_nodes="" if plane == "global" else str(self.state),
            node_lease_s=node_lease_s,
        )
        self._write_config(plane, config)

    def _write_endpoints(self, authority: LocalAuthority, now: datetime, wiring: Wiring) -> None:
        reader = Named("component", ENDPOINTS, (ENDPOINT_READER,))
        config = EndpointsConfig(
            regions=tuple(Peer(region, (wiring.address(ENDPOINTS, region),)) for region in REGIONS),
            dns=wiring.dns,
            files=str(self.path("endpoints")),
            identity=self._pair(ENDPOINTS, authority.issue(reader, now)),
        )
        self._write_config(ENDPOINTS, config)

    def _write_agent(
        self, authority: LocalAuthority, now: datetime, node: Node, number: int, wiring: Wiring, node_lease_s: float
    ) -> None:
        named = Named("agent", node.metadata.name, region=node.spec.region)
        process = f"agent-{node.metadata.name}"
        first = _FIRST_PORT + number * _PORTS_PER_NODE
        quantities = node.spec.allocatable.as_quantities()
        config = AgentConfig(
            node=node.metadata.name,
            region=node.spec.region,
            addresses=(wiring.address(process, node.spec.region),),
            state=str(self.path("data", "nodes", node.metadata.name)),
            zone=node.spec.zone,
            pool=node.spec.pool,
            cpu=quantities.get("cpu", ""),
            memory=quantities.get("memory", ""),
            devices=node.spec.devices,
            labels=node.metadata.labels,
            tls=self._pair(process, authority.issue(named, now)),
            ports=(first, first + _PORTS_PER_NODE - 1),
            node_lease_s=node_lease_s,
            heartbeat_s=node_lease_s / 3,
            max_slots=node.spec.max_slots,
            hourly_cost_millis=node.spec.hourly_cost_millis,
            stop_instances=True,
            renews=True,
            uids=self._own_users,
            uid_range=of_node(number),
        )
        self._write_config(process, config)

    def _write_seeds(self, now: datetime, ids: Ids) -> list[Node]:
        """The samples for the plane they live on, and who may do what."""
        nodes: list[Node] = []
        for plane in PLANES:
            self.path("seed", plane).mkdir(parents=True, exist_ok=True)
        for name, text in manifests(self._python).items():
            decoded = decode_objects(text, media="yaml")
            assert not isinstance(decoded, tuple), decoded
            for one in decoded:
                if isinstance(one.record, Node):
                    nodes.append(one.record)
            for plane in PLANES:
                kept = [one.record for one in decoded if _belongs(one.info.planes, one.record, plane)]
                self._write_seed(plane, name, kept)
        self._write_seed("global", _ACCESS, self._access(now, ids))
        return nodes

    def _write_seed(self, plane: str, name: str, records: Sequence[Any]) -> None:
        if records:
            write_private(self.path("seed", plane, name), "---\n".join(_yaml(record) for record in records).encode())

    def _access(self, now: datetime, ids: Ids) -> list[Record]:
        out: list[Record] = []
        for person, role, reach in PERSONS:
            subject = Subject(name=person)
            out.append(self._token(subject, now, ids))
            binding = AccessBindingSpec(role=role, subjects=(subject,), tenants=reach)
            out.append(AccessBinding(metadata=Metadata(name=person), spec=binding))
        return out

    def _token(self, subject: Subject, now: datetime, ids: Ids) -> Token:
        minted = tokens.mint(ids, SYSTEM_TENANT)
        spec = TokenSpec(hash=minted.hash, subject=subject, expiry_time=now + TOKEN_LIFETIME)
        write_private(self.path("run", f"{subject.name}.token"), minted.text.reveal_bytes())
        return Token(metadata=Metadata(name=minted.name, namespace=SYSTEM_TENANT), spec=spec)

    def renew_tokens(self, now: datetime, ids: Ids) -> list[str]:
        """Whose tokens were made anew, because they have ended or end soon: in their files and in the seed, of which the global
        plane takes what it does not have when it starts. The seed last: cut off before that, the next start does all again."""
        decoded = decode_objects(self.path("seed", "global", _ACCESS).read_bytes(), media="yaml")
        if isinstance(decoded, tuple):
            raise ValueError(f"{_ACCESS}: {decoded[0].path}: {decoded[0].message}")
        records, renewed = [one.record for one in decoded], []
        for number, record in enumerate(records):
            if isinstance(record, Token) and record.spec.subject is not None and _ends_soon(record.spec, now):
                records[number] = self._token(record.spec.subject, now, ids)
                renewed.append(record.spec.subject.name)
        if renewed:
            self._write_seed("global", _ACCESS, records)
        return renewed

    def _write_contexts(self, server: str) -> None:
        """A kubeconfig and a file of `fairlead`'s own, each with a context for everybody."""
        authority = str(self.path("pki", "ca.pem"))
        users = [{"name": p, "user": {"tokenFile": str(self.path("run", f"{p}.token"))}} for p, _, _ in PERSONS]
        contexts = [
            {"name": p, "context": {"cluster": "local", "user": p, **({} if reach == ("*",) else {"namespace": reach[0]})}}
            for p, _, reach in PERSONS
        ]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority": authority}}],
            "users": users,
            "contexts": contexts,
            "current-context": "admin",
        }
        write_private(self.path("kubeconfig"), encode_yaml(config).encode())
        ours = ClientConfig(
            current_context="admin",
            contexts=tuple(
                Context(
                    name=person,
                    server=server,
                    namespace="" if reach == ("*",) else reach[0],
                    certificate_authority=authority,
                    token_file=str(self.path("run", f"{person}.token")),
                )
                for person, _, reach in PERSONS
            ),
        )
        write_private(self.path("client.json"), json_codec.encode(ours))


def _ends_soon(spec: TokenSpec, now: datetime) -> bool:
    return spec.expiry_time is not None and spec.expiry_time - TOKEN_RENEWED <= now


def _belongs(planes: frozenset[str], record: Any, plane: str) -> bool:
    if plane == "global":
        return "global" in planes
    if "global" in planes:
        return False  # comes down from there
    region = getattr(record.spec, "region", "") or record.metadata.name.rpartition("-")[0]
    return bool(region == plane)


def _yaml(record: Any) -> str:
    info = BY_KIND[type(record).__name__]
    return encode_yaml(json_codec.plain_object(info, record))
