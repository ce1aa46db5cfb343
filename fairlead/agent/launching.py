"""From a binding to a launch: its Revision's template, its ports, its environment, its mounted files.

Owns what an instance is given. Reads the region; starts nothing. Called by fairlead/agent/host.py before every run.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from fairlead.agent.drivers.contract import InstanceId, Launch, MountedFile
from fairlead.agent.port_range import NoPort, PortRange
from fairlead.agent.region import Region
from fairlead.agent.settings import NodeDeclaration
from fairlead.agent.slot import Slot
from fairlead.client.plane import Expired
from fairlead.model import codec
from fairlead.model.kinds.intent import Config, FileMount, Secret, Template
from fairlead.model.kinds.work import Binding, Revision
from fairlead.ports import Clock

TEMPLATES_MAX: Final = 2_000
# A Revision never changes, but another may come under its name and its workload's uid, if the global plane loses the end of its
# history. What starts a minute later starts that; and what starts together with others reads it once.
TEMPLATE_FRESH_S: Final = 60.0
DEFAULT_PORT: Final = "default"  # how an unnamed port is called in reports and endpoints

_revision: Final = codec.decoder(Revision).decode
_config: Final = codec.decoder(Config).decode
_secret: Final = codec.decoder(Secret).decode
_template: Final = codec.decoder(Template).decode


class NotYet(Exception):
    """Something it needs is not there; asked again later."""


class Never(Exception):
    """It cannot run on this node at all."""


def decode_template(raw: bytes) -> Template | None:
    return _template(raw) if raw else None


class _Read(NamedTuple):
    template: Template
    asked_at: float  # when the region was asked for it last


class Launcher:
    def __init__(self, region: Region, ports: PortRange, drivers: tuple[str, ...], clock: Clock) -> None:
        self._region = region
        self._clock = clock
        self._ports = ports
        self._drivers = drivers
        self._holders: dict[tuple[str, int], list[InstanceId]] = {}  # of the ports of each node
        self._templates: dict[tuple[str, str, str], _Read] = {}  # with the workload's uid: another may take its name

    async def template(self, binding: Binding) -> Template:
        tenant, slot = binding.metadata.namespace, binding.spec.slot
        name = f"{slot.workload}.g{binding.spec.generation}"
        key, now = (tenant, slot.uid, name), self._clock.monotonic()
        known = self._templates.get(key)
        if known is not None and now < known.asked_at + TEMPLATE_FRESH_S:
            return known.template
        try:
            template = _revision(await self._get("revisions", tenant, name)).spec.template
        except NotYet:
            if known is None:
                raise
            template = known.template  # cut off, or on its way out: what runs it is restarted all the same
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        self._templates[key] = _Read(template, now)
        return template

    async def prepare(self, slot: Slot, node: NodeDeclaration) -> Launch:
        """Everything for the next run. Raises NotYet or Never."""
        assert slot.binding is not None
        binding, spec = slot.binding, slot.binding.spec
        template = slot.template = await self.template(binding)
        if template.driver not in self._drivers:
            raise Never(f"driver {template.driver!r} is not allowed on this node")
        slot.driver = template.driver
        files = await self._files(slot, template)
        if not slot.ports and template.ports:
            slot.ports = self._take_ports(slot, template)
            self._note(slot)
        slot.told_lasts = slot.lasts
        return Launch(
            slot.id,
            template.command,
            environment(binding, template, slot.ports, node),
            slot.run + 1,
            template.working_dir,
            files,
            spec.requests.cpu,
            spec.requests.memory,
            spec.exclusive if spec.execution == "Exclusive" else "",
            slot.ports,
            codec.encode(template),
            spec.slot.uid,
            spec.supersedes,
            slot.lasts,
        )

    def release(self, slot: Slot) -> None:
        self._ports.give_back(slot.ports.values())
        for port in slot.ports.values():
            self._holders[slot.node, port].remove(slot.id)
            if not self._holders[slot.node, port]:
                del self._holders[slot.node, port]
        slot.ports = {}

    def hold(self, slot: Slot) -> None:
        """What it was found with."""
        self._ports.hold(slot.ports.values())
        self._note(slot)

    def _note(self, slot: Slot) -> None:
        for port in slot.ports.values():
            self._holders.setdefault((slot.node, port), []).append(slot.id)

    def _take_ports(self, slot: Slot, template: Template) -> dict[str, int]:
        for port in template.ports:
            holders = self._holders.get((slot.node, port.port), []) if port.port else []
            if holders:
                raise NotYet(f"port {port.port} is taken by {holders[0].tenant}/{holders[0].name}")
        taken: dict[str, int] = {}
        try:
            for port in template.ports:
                if port.port:
                    self._ports.hold([port.port])
                taken[port.name or DEFAULT_PORT] = port.port or self._ports.take()
        except NoPort as error:
            self._ports.give_back(taken.values())
            raise NotYet(str(error)) from error
        return taken

    async def _files(self, slot: Slot, template: Template) -> tuple[MountedFile, ...]:
        """Cut off from the region, a restart finds the files its earlier run was given."""
        try:
            found: list[MountedFile] = []
            for mount in template.files:
                found += await self._mounted(slot.id.tenant, mount)
            return tuple(found)
        except Expired as error:
            if slot.run:
                return ()
            raise NotYet(str(error)) from error

    async def _mounted(self, tenant: str, mount: FileMount) -> list[MountedFile]:
        if mount.secret:
            data, hidden = _secret(await self._read("secrets", tenant, mount.secret)).spec.data, True
        else:
            data, hidden = _config(await self._read("configs", tenant, mount.config)).spec.data, False
        return [MountedFile(f"{mount.path}/{name}", text.encode(), hidden) for name, text in sorted(data.items())]

    async def _read(self, plural: str, tenant: str, name: str) -> bytes:
        change = await self._region.get(plural, tenant, name)
        if change is None or change.raw is None:
            raise NotYet(f"there is no {plural}/{name} yet")
        return change.raw

    async def _get(self, plural: str, tenant: str, name: str) -> bytes:
        try:
            return await self._read(plural, tenant, name)
        except Expired as error:
            raise NotYet(str(error)) from error


def environment(binding: Binding, template: Template, ports: dict[str, int], node: NodeDeclaration) -> dict[str, str]:
    """What every instance may want to know of itself, and then what the template says, which may name the former and cannot
    override it."""
    spec = binding.spec
    given = {f"PORT_{name.upper().replace('-', '_')}": str(port) for name, port in ports.items()}
    if ports:
        given["PORT"] = str(next(iter(ports.values())))
    if spec.devices:
        given["FAIRLEAD_DEVICES"] = ",".join(hold.id for hold in spec.devices)
    own = {
        "FAIRLEAD_TENANT": binding.metadata.namespace,
        "FAIRLEAD_WORKLOAD": spec.slot.workload,
        "FAIRLEAD_SLOT": str(spec.slot.index),
        "FAIRLEAD_GENERATION": str(spec.generation),
        "FAIRLEAD_TOKEN": ".".join(str(part) for part in msgspec.structs.astuple(spec.token)),
        "FAIRLEAD_NODE": node.name,
        "FAIRLEAD_REGION": node.region,
        "FAIRLEAD_ZONE": node.zone,
        "FAIRLEAD_ADDRESS": node.address,
    }
    known = {**given, **own}
    return known | {variable.name: variable.value for variable in template.env if variable.name not in known}
