"""A small simulated platform on which one race is played: a global plane, one region, a script instead of chaos.

The checkers of every run look on; `played` fails with what they found. Used by the races in this folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.controllers.gathering import is_true
from fairlead.model import codec
from fairlead.model.commands import Body, Caller, Command, Outcome
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.kinds.capacity import Reservation
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.registry import GLOBAL
from fairlead.observe.checkers import JournalChecker
from fairlead.scheduler.scheduler import Scheduler
from fairlead.sim import loop as sim
from fairlead.sim.hearing import quiet
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Machine, Program
from fairlead.sim.platform import Agent
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.strays import caller_of
from fairlead.sim.walls import unheard, walls
from fairlead.sim.world import World
from fairlead.store.contract import Batch, CommitResult, Fence, Fenced

REGION = "us-east"
API = "/apis/fairlead.dev/v1alpha1"
TENANT = "risk"
PLACES: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "bindings": codec.decoder(Binding), "reservations": codec.decoder(Reservation)
}  # fmt: skip

T = TypeVar("T")


class Stage:
    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop
        self.platform = world.platform
        self.store = world.platform.planes[REGION].store
        self.cuts = 0

    # --- what people do --------------------------------------------------------------------------------------------------------

    async def create(
        self, name: str, replicas: int, *, exclusive: bool | Literal["global"] = False, cpu: str = "400m", memory: str = "512Mi",
        labels: dict[str, str] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        spec: dict[str, Any] = {
            "replicas": replicas,
            "template": {"command": ["serve", name]},
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
            **more,
        }
        if exclusive:
            spec["execution"] = "Exclusive"
        if exclusive == "global":
            spec["exclusive"] = "global"
        metadata = {"name": name, "labels": labels or {}}
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Workload", "metadata": metadata, "spec": spec}
        answer = await self.world.people.write("POST", f"{API}/namespaces/{TENANT}/workloads", body, name)
        assert answer is None or answer.status < 300, answer

    async def cordon(self, node: str) -> None:
        await self.world.people._cordon(node, True)

    async def drain(self, node: str) -> None:
        await self.world.people._drain(node)

    async def promote(self, revision: int) -> None:
        await self.world.people._promote(revision)

    def scheduler(self) -> Caller:
        """Another one, under the lease of the region's own."""
        caller = caller_of(self.world.watches[REGION].objects, Role.SCHEDULER)
        assert caller is not None
        return caller

    async def said(self, caller: Caller, *bodies: Body) -> list[Outcome]:
        """To whoever leads the region."""
        (server,) = self.platform.planes[REGION].leaders()
        return await server.authority.submit([Command(caller, body) for body in bodies])

    def count_tries(self) -> list[str]:
        """Of people, from now on: where each request went, copies with it."""
        people, tried = self.world.people, list[str]()
        choose = people._some_server

        def chosen() -> str:
            tried.append(choose())
            return tried[-1]

        setattr(people, "_some_server", chosen)  # noqa: B010
        return tried

    # --- what is there ---------------------------------------------------------------------------------------------------------

    def objects(self, plane: str, plural: str) -> Mapping[tuple[str, str], Any]:
        return self.world.watches[plane].objects.get(plural, {})

    def bindings(self, name: str = "", region: str = REGION) -> list[Any]:
        found = self.world.watches[region].objects["bindings"].values()
        return [binding for binding in found if binding.spec.slot.workload == name or not name]

    def serving(self, name: str, region: str = REGION) -> int:
        return sum(binding.status.state is SlotState.SERVING for binding in self.bindings(name, region))

    def rooms_held(self, budget: str) -> int:
        """In how many regions everything that a budget of this tenant should hold is held."""
        found = [each for (tenant, _), each in self.objects(GLOBAL, "holdings").items() if tenant == TENANT]
        mine = [holding for holding in found if holding.spec.budget == budget and holding.status.shapes]
        return sum(all(shape.held == 12 for shape in holding.status.shapes) for holding in mine)

    def leader(self) -> Program:
        plane = self.platform.planes[REGION]
        (server,) = plane.leaders()
        return next(program for program in plane.servers if program.name == server.config.name)

    def agent_of(self, node: str) -> Agent:
        return self.platform.agents[node]

    def machines(self, *, servers: bool) -> list[Machine]:
        if servers:
            return [program.machine for program in self.platform.planes[REGION].servers]
        return [agent.program.machine for agent in self.platform.agents.values()]

    def refused(self, reason: str) -> int:
        return self.platform.tally.total()[reason]

    def walk(self, look: Callable[[JournalChecker, str, str], None]) -> None:
        """Through the region's journal: `look` is shown each effect's kind and key after it was applied."""
        checker = JournalChecker()
        for batch in self.world.watches[REGION].batches:
            checker.feed(batch)
            for entry in decode_blob(batch.blob).entries:
                for key, _ in entry.effects:
                    look(checker, *key.split("/", 1))

    def suspected(self) -> set[str]:
        """Nodes of whose silence the region said that it may be its own deafness."""
        found = set[str]()

        def look(checker: JournalChecker, plural: str, key: str) -> None:
            node = checker.objects[plural].get(("", key.rpartition("/")[2])) if plural == "nodes" else None
            if node is not None and is_true(node.status.conditions, "ObservationSuspect"):
                found.add(node.metadata.name)

        self.walk(look)
        return found

    def hide(self, plural: str, for_s: float) -> None:
        """Changes of that kind reach the region's schedulers only later: what they know of it is history meanwhile."""
        for scheduler in self._schedulers():
            if scheduler.feed is not None:
                _hidden(scheduler.feed, plural, self.loop, for_s)

    def place_one_by_one(self) -> None:
        """The region's schedulers decide on one slot at a time and wait until it is bound: placing takes several commits."""
        for scheduler in self._schedulers():
            scheduler._settings = replace(scheduler._settings, cycle_slots=1, in_flight=1)

    def lose_answer(self, *kinds: type[Any], for_s: float) -> list[Batch]:
        """Of the first batch with such a command: the store has it, and for so long says nothing of this one or of any other.
        It is in what is returned once that has happened."""
        faults = self.store.faults

        def mute() -> None:
            faults.unheard = 1.0
            self.loop.after(for_s, setattr, faults, "unheard", 0.0)

        return self.once(self.store.disk, "committed", mute, *kinds)

    def hold_back(self, link: tuple[Machine, Machine], *kinds: type[Any]) -> list[Batch]:
        """The first batch with such a command does not reach the store, nor does what comes after it, until the link is mended.
        It is in what is returned once it is under way."""
        return self.once(self.store, "sent", lambda: self.platform.network.block(*link), *kinds)

    @staticmethod
    def once(teller: Any, name: str, then: Callable[[], None], *kinds: type[Any]) -> list[Batch]:
        """When the first batch with such a command is told of: kept in what is returned, and `then`."""
        tell, struck = getattr(teller, name), list[Batch]()

        def told(batch: Batch) -> None:
            tell(batch)
            if not struck and any(isinstance(body, kinds) for body in bodies_of(batch)):
                struck.append(batch)
                then()

        setattr(teller, name, told)
        return struck

    def turned_down(self) -> list[Batch]:
        """Batches that the store refuses from now on, as they come, because somebody else leads."""
        disk, refused = self.store.disk, list[Batch]()
        commit = disk.commit

        def told(fence: Fence, batch: Batch) -> CommitResult:
            result = commit(fence, batch)
            if isinstance(result, Fenced):
                refused.append(batch)
            return result

        setattr(disk, "commit", told)  # noqa: B010  of this one disk alone
        return refused

    async def until_in_doubt(self, struck: list[Batch]) -> Batch:
        """Until its leader has given up waiting for that answer, and nobody knows what came of it."""
        await self.until(lambda: struck and struck[0].hash in self.store.in_doubt, 20.0)
        return struck[0]

    def _schedulers(self) -> list[Scheduler]:
        parts = [part for server in self.platform.planes[REGION].leaders() for part in server._parts]
        return [part for part in parts if isinstance(part, Scheduler)]

    def lose(self, region: str) -> None:
        """The whole region goes dark; the checkers count from here."""
        self._power(region, self.world.chaos.power_off, True)

    def light(self, region: str) -> None:
        """It has power again."""
        self._power(region, self.world.chaos.power_on, False)

    def _power(self, region: str, switch: Callable[[Machine], None], lost: bool) -> None:
        for name, machine in self.platform.machines.all.items():
            if name.startswith(f"{region}/"):
                switch(machine)
        assert self.world.chaos.on_loss is not None
        self.world.chaos.on_loss(region, lost)

    def isolate(self, region: str) -> Callable[[], None]:
        """The region is cut off from everything else and goes on by itself, until what is returned is called."""
        machines = self.platform.machines.all
        own = [machine for name, machine in machines.items() if name.startswith(f"{region}/")]
        others = [machine for name, machine in machines.items() if not name.startswith(f"{region}/")]
        return self._cut([pair for a in own for b in others for pair in ((a, b), (b, a))])

    def _cut(self, pairs: list[tuple[Machine, Machine]]) -> Callable[[], None]:
        """Counted, so that `played` can ask of each cut that it held something back (F5)."""
        self.cuts += 1
        return self.platform.network.cut(pairs)

    async def look_on(self) -> None:
        """What the checkers ask of all planes together, once a second: quota, recovery in time, one binding a slot."""
        while True:
            await sleep(1.0)
            self.world.look_at_quota()
            for invariant, detail in self.world.losses.findings(self.loop.now, strict=False):
                self.world.found(invariant, "", detail)

    # --- waiting ---------------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], limit_s: float = 90.0) -> float:
        """Simulated seconds that it took."""
        began = self.loop.now
        while not condition():
            assert self.loop.now < began + limit_s, f"not within {limit_s} s; {self.world.findings}"
            await sleep(0.01)
        return self.loop.now - began

    async def cut(self, ones: list[Machine], others: list[Machine], for_s: float) -> None:
        pairs = [(a, b) for a in ones for b in others] + [(b, a) for a in ones for b in others]
        self.loop.after(for_s, self._cut(pairs))


def bodies_of(batch: Batch) -> list[Body]:
    commands = (decode_command(entry.command) for entry in decode_blob(batch.blob).entries)
    return [command.body for command in commands if command is not None]


def placed_in(batch: Batch) -> dict[str, tuple[str, Token]]:
    """Where, and in which life, the slots and rooms are that this batch places, by TENANT/NAME."""
    out = {}
    for key, raw in (effect for entry in decode_blob(batch.blob).entries for effect in entry.effects):
        plural, _, name = key.partition("/")
        if plural in PLACES and raw is not None:
            out[name] = where(PLACES[plural].decode(raw))
    return out


def where(placed: Any) -> tuple[str, Token]:
    return placed.spec.node, placed.spec.token


def _hidden(feed: Any, plural: str, loop: SimLoop, for_s: float) -> None:
    taken, until = feed.take_nowait, loop.now + for_s
    kept: list[Any] = []

    def take_nowait() -> list[Any]:
        changes = list(taken())
        if loop.now < until:
            kept.extend(change for change in changes if change.plural == plural)
            return [change for change in changes if change.plural != plural]
        told, kept[:] = [*kept, *changes], []
        return told

    feed.take_nowait = take_nowait
    loop.after(for_s + 0.1, feed.poke)


def played(script: Callable[[Stage], Awaitable[T]], seed: int = 1, **fields: Any) -> T:
    """Plays it to its end and demands that no checker found anything."""
    work = Work(workloads=0, actions=0.001, operators=0.0, replays=0.0)
    scenario = replace(Scenario(seed, "race", 1, 1, 3, work=work, lease_s=5.0, node_lease_s=6.0), **fields)

    async def main(loop: SimLoop) -> tuple[T, World]:
        world = World(loop, scenario)
        world.platform.start()
        stage = Stage(world)
        await stage.until(lambda: all(plane.leaders() for plane in world.platform.planes.values()))
        await stage.until(lambda: all(n.status.schedulable for n in world.watches[REGION].objects["nodes"].values()))
        await stage.until(lambda: ("", "default") in world.watches[REGION].objects["policychannels"])
        looking = loop.spawn(None, stage.look_on(), "look on")
        value = await script(stage)
        looking.cancel()
        world._safe()
        assert world.platform.machines.counts["F5"] == stage.cuts, "each cut held something back"
        return value, world

    with quiet(), unheard(), walls():
        return _ended(sim.run(main, seed))


def _ended(outcome: sim.Outcome[tuple[T, World]]) -> T:
    """Its value. The world must not outlive this: what its dead processes leave is destroyed with it, unheard."""
    value, world = outcome.value
    assert not world.findings, world.findings
    assert not world.platform.machines.exits
    assert world.watches[GLOBAL].checked["S18"] > 0, "the checkers looked on"
    return value
