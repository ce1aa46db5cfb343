"""The openb fleet twice: as the scheduler's snapshot, where pods are placed, and as plain books that check every placement.

`Placer` uses production code alone: snapshot, compiled needs, the one feasibility function, the ranking and the score. `Books`
shares none of it. Called by bench/openb.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.planes import REGION
from bench.policies import shipped
from bench.traces import OpenbNode, OpenbPod
from fairlead.decide.devices import pick_devices
from fairlead.decide.policy import CompiledPolicy, compile_policy
from fairlead.decide.scores import fill
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceAsk, DeviceHold, Resources
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.shapes import Shape, ShapeBook
from fairlead.scheduler.snapshot import FIRM, Snapshot, Use

MIB = 1 << 20
TENANT = "openb"


def _node(node: OpenbNode) -> Node:
    devices = tuple(Device(id=f"gpu-{n}", model=node.model) for n in range(node.gpus))
    capacity = Resources(node.cpu_millis, node.memory_mib * MIB)
    spec = NodeSpec(region=REGION, zone="z0", allocatable=capacity, max_slots=10_000, devices=devices)
    status = NodeStatus(schedulable=True, health="Ready", session=1)
    return Node(metadata=Metadata(name=node.name), spec=spec, status=status)


def _request(pod: OpenbPod) -> SchedulingRequest:
    devices: tuple[DeviceAsk, ...] = ()
    if pod.gpus:
        devices = (DeviceAsk(models=pod.models, count=pod.gpus, share_thousandths=pod.gpu_thousandths),)
    ask = Ask(requests=Resources(pod.cpu_millis, pod.memory_mib * MIB), devices=devices)
    spec = SchedulingRequestSpec(slot=SlotRef(workload="w", uid="u", index=0), ask=ask)
    return SchedulingRequest(metadata=Metadata(name="w-0", namespace=TENANT), spec=spec)


class Placer:
    def __init__(self, nodes: list[OpenbNode]) -> None:
        policy = compile_policy(shipped("expected-fill"))
        assert isinstance(policy, CompiledPolicy), policy
        self.policy = policy
        self.snapshot = Snapshot()
        self.snapshot.now_ms = 1
        for node in nodes:
            self.snapshot.set_node(node.name, _node(node))
        self.snapshot.heard([(node.name, 1) for node in nodes], 30_000)
        self._book = ShapeBook(self.snapshot, Policies())
        self._requests: dict[OpenbPod, SchedulingRequest] = {}
        self._epochs: dict[int, int] = {}

    def place(self, pod: OpenbPod, number: int) -> tuple[int, tuple[int, ...]] | None:
        """Row and numbers of its GPUs; None where it fits nowhere."""
        shape = self._shape(pod)
        row = shape.ranking.best()
        if row < 0:
            return None
        fleet = self.snapshot.fleet
        devices: tuple[DeviceHold, ...] = ()
        if shape.need.devices:
            picked = shape.pick_devices(row) or pick_devices(shape.need.devices, fleet.devices[row], fleet.device_used[row])
            assert picked is not None, "the gates let it through"
            devices = picked
        requests = Resources(pod.cpu_millis, pod.memory_mib * MIB)
        self.snapshot.set_use((TENANT, f"w-{number}"), Use(row, FIRM, requests, devices))
        return row, tuple(int(hold.id.removeprefix("gpu-")) for hold in devices)

    def _shape(self, pod: OpenbPod) -> Shape:
        """Its shape with the ranking brought up to date."""
        request = self._requests.get(pod)
        if request is None:
            request = self._requests[pod] = _request(pod)
        shape = self._book.shape_of(request, self.policy)
        assert shape is not None
        fill.SCORE.observe(shape.need, self.snapshot)
        epoch = fill.SCORE.epoch(self.snapshot)
        if self._epochs.get(id(shape)) != epoch:
            self._epochs[id(shape)] = epoch
            shape.ranking.refresh()
        shape.ranking.sync()
        return shape


class Books:
    """What each node has left, kept apart from everything under test."""

    def __init__(self, nodes: list[OpenbNode]) -> None:
        self._cpu = np.array([node.cpu_millis for node in nodes])
        self._memory = np.array([node.memory_mib for node in nodes])
        self._rooms = np.array([[1000] * node.gpus + [0] * (8 - node.gpus) for node in nodes])
        self._models = [node.model for node in nodes]
        self._model = np.array(self._models)

    def fits(self, pod: OpenbPod) -> Any:
        ok = (self._cpu >= pod.cpu_millis) & (self._memory >= pod.memory_mib)
        if pod.gpus:
            ok &= (self._rooms >= pod.gpu_thousandths).sum(axis=1) >= pod.gpus
        if pod.models:
            ok &= np.isin(self._model, pod.models)
        return ok

    def take(self, pod: OpenbPod, row: int, gpus: tuple[int, ...]) -> None:
        assert len(set(gpus)) == len(gpus) == pod.gpus, "as many GPUs as it asked for"
        self._cpu[row] -= pod.cpu_millis
        self._memory[row] -= pod.memory_mib
        for gpu in gpus:
            self._rooms[row, gpu] -= pod.gpu_thousandths
        assert min(self._cpu[row], self._memory[row], *self._rooms[row]) >= 0, "a node was oversold"
        assert not pod.models or self._models[row] in pod.models, "a GPU of another model"
