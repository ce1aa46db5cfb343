"""Watches. One shared log per topic, and each watcher only a position in it: a stuck watcher costs the others nothing, because
nothing is ever queued for it; when the log has moved on, it is told to list again.

Topics exist while somebody watches: a kind, a kind in one tenant, or the bindings of one node. Catching up from an earlier
revision reads the state's ring. Called by the pipeline when a batch is durable, and by readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from fairlead.authority.state import Rec, State, by_kind
from fairlead.client.plane import Expired as Expired
from fairlead.ports import Signal

TOPICS_MAX = 16  # of one follower; one who cares for more nodes than that looks at all bindings
TOPIC_EVENTS_MAX = 10_000  # How far a watcher may fall behind before it must list again.


class Topic:
    __slots__ = ("base", "events", "pictures", "signals", "waiters", "watchers")

    def __init__(self) -> None:
        self.events: list[Rec] = []
        self.base = 0  # how many events were dropped from the front
        self.waiters: list[asyncio.Future[None]] = []
        self.pictures: list[Signal] = []  # of those who keep a picture of several kinds: other planes, agents, controllers
        self.signals: list[Signal] = []  # of watches that follow one kind here or through another server
        self.watchers = 0

    def wake_pictures(self) -> None:
        for signal in self.pictures:
            signal.set()

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for signal in self.signals:
            signal.set()

    def trim(self) -> None:
        """Halves the log when it is full: dropping from the front costs once per many events."""
        if len(self.events) > 2 * TOPIC_EVENTS_MAX:
            drop = len(self.events) - TOPIC_EVENTS_MAX
            del self.events[:drop]
            self.base += drop


TopicKey = tuple[str, str]  # ("", "") all, ("tenant", T), ("node", N)
EVERYTHING: TopicKey = ("", "")


class Watch:
    """One watcher. `next` gives the events since the last call, oldest first."""

    def __init__(self, hub: Hub, plural: str, topic_key: TopicKey, backlog: list[Rec], accepts: Callable[[Rec], bool] | None):
        self._hub = hub
        self._plural = plural
        self._topic_key = topic_key
        self.topic = hub.topic(plural, topic_key)
        self.topic.watchers += 1
        self._cursor = self.topic.base + len(self.topic.events)
        self._backlog = backlog
        self._accepts = accepts
        self.closed = False

    def take_nowait(self) -> list[Rec]:
        """What is there now, possibly nothing. Raises Expired when this watcher fell too far behind."""
        topic = self.topic
        if self._cursor < topic.base:
            self.close()
            raise Expired("this watch fell too far behind; list again", self._hub.horizon)
        events = topic.events[self._cursor - topic.base :]
        self._cursor = topic.base + len(topic.events)
        if self._accepts is not None:
            events = [rec for rec in events if self._accepts(rec)]
        if self._backlog:  # together with what came since: whoever waits after this waits for something new
            events, self._backlog = [*self._backlog, *events], []
        return events

    def oldest(self) -> int | None:
        """The position of the first event that was not taken yet."""
        waiting = self._backlog or self.topic.events[max(0, self._cursor - self.topic.base) :][:1]
        return waiting[0].position if waiting else None

    async def wait(self) -> list[Rec]:
        """The next events, at least one."""
        while True:
            events = self.take_nowait()
            if events:
                return events
            if self.closed:
                raise Expired("this server stopped leading; list again from another", self._hub.horizon)
            waiter = asyncio.get_running_loop().create_future()
            self.topic.waiters.append(waiter)
            await waiter

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.topic.watchers -= 1
            self.topic.wake_pictures()
            self.topic.wake()
            if self.topic.watchers == 0:
                self._hub.forget(self._plural, self._topic_key)


class Feed:
    """Several kinds followed together, by one who keeps a picture of a plane."""

    def __init__(self, hub: Hub, plurals: Sequence[str], after: int, nodes: Sequence[str] = ()) -> None:
        self._hub = hub
        self._signal = Signal()
        self._signal.set()
        self._watches = [watch for plural in plurals for watch in _watches(hub, plural, after, nodes)]
        # What another plane or an agent makes of a change takes longest, and they are few: they are told before anybody else.
        self._pictures = len(plurals) > 1
        for watch in self._watches:
            self._woken_by(watch).append(self._signal)
        self.position = after

    def _woken_by(self, watch: Watch) -> list[Signal]:
        return watch.topic.pictures if self._pictures else watch.topic.signals

    def take_nowait(self) -> list[Rec]:
        self.position = self._hub.durable
        if not self._signal.is_set():  # whatever is told, and every end, comes with the signal
            return []
        self._signal.clear()
        out: list[Rec] = []
        for watch in self._watches:
            out += watch.take_nowait()
        return out

    def wait(self) -> Coroutine[Any, Any, None]:
        return self._signal.wait()

    def poke(self) -> None:
        self._signal.set()

    def oldest_untaken(self) -> int | None:
        """The position of the oldest change that waits here; None: everything was taken."""
        return min((found for watch in self._watches if (found := watch.oldest()) is not None), default=None)

    def close(self) -> None:
        for watch in self._watches:
            self._woken_by(watch).remove(self._signal)
            watch.close()


def _watches(hub: Hub, plural: str, after: int, nodes: Sequence[str]) -> list[Watch]:
    """Of a follower that cares for some nodes only: their bindings, and the nodes themselves."""
    wanted = frozenset(nodes)
    if nodes and plural == "bindings":
        if len(nodes) > TOPICS_MAX:
            return [hub.watch(plural, after, accepts=lambda rec: node_of(rec) in wanted)]
        return [hub.watch(plural, after, node=node) for node in nodes]
    if nodes and plural == "nodes":
        return [hub.watch(plural, after, accepts=lambda rec: rec.name in wanted)]
    return [hub.watch(plural, after)]


class Hub:
    def __init__(self, state: State) -> None:
        self._state = state
        self._topics: dict[str, dict[TopicKey, Topic]] = {}
        self._touched: list[Topic] = []  # whose watchers do not know yet

    @property
    def horizon(self) -> int:
        return self._state.horizon

    @property
    def durable(self) -> int:
        return self._state.durable

    def topic(self, plural: str, topic_key: TopicKey) -> Topic:
        return self._topics.setdefault(plural, {}).setdefault(topic_key, Topic())

    def forget(self, plural: str, topic_key: TopicKey) -> None:
        topics = self._topics.get(plural, {})
        topics.pop(topic_key, None)
        if not topics:
            self._topics.pop(plural, None)

    def watch(
        self,
        plural: str,
        after: int,
        *,
        tenant: str | None = None,
        node: str | None = None,
        accepts: Callable[[Rec], bool] | None = None,
    ) -> Watch:
        """Events after position `after`. Raises Expired when that is further back than memory reaches."""
        state = self._state
        if after < state.horizon:
            raise Expired(f"position {after} is older than the oldest in memory, {state.horizon}", state.horizon)
        topic_key = ("node", node) if node is not None else ("tenant", tenant) if tenant is not None else EVERYTHING
        backlog = [
            rec
            for rec in state.changes_since(after)
            if rec.position <= state.durable and rec.plural == plural and _belongs(rec, topic_key)
        ]
        if accepts is not None:
            backlog = [rec for rec in backlog if accepts(rec)]
        return Watch(self, plural, topic_key, backlog, accepts)

    def publish(self, recs: list[Rec]) -> None:
        """The changes of one durable batch. Whoever keeps a picture is woken; everybody else by `wake`."""
        if not self._topics:
            return
        for plural, same_kind in by_kind(recs).items():
            topics = self._topics.get(plural)
            if topics is not None:
                self._touched += _tell(topics, same_kind)
        for topic in self._touched:
            topic.trim()
            topic.wake_pictures()

    def wake(self) -> None:
        """The watchers of what was published. There may be thousands: answers go before them."""
        touched, self._touched = self._touched, []
        for topic in touched:
            topic.wake()

    def end(self) -> None:
        """Leadership is over: every watcher learns that it must go elsewhere."""
        for topics in self._topics.values():
            for topic in topics.values():
                topic.base += len(topic.events) + 1
                topic.events.clear()
                topic.wake_pictures()
                topic.wake()
        self._topics.clear()


def _tell(topics: dict[TopicKey, Topic], recs: list[Rec]) -> Iterable[Topic]:
    """Puts the changes of one kind into its topics, and says which those were."""
    touched: dict[TopicKey, Topic] = {}
    everything = topics.get(EVERYTHING)
    if everything is not None:
        everything.events += recs
        touched[EVERYTHING] = everything
        if len(topics) == 1:
            return touched.values()
    for rec in recs:
        for topic_key in (("tenant", rec.tenant), ("node", node_of(rec))):
            topic = topics.get(topic_key)
            if topic is not None:
                topic.events.append(rec)
                touched[topic_key] = topic
    return touched.values()


def node_of(rec: Rec) -> str:
    """The node a slot's object lies on, for watches by node; empty for everything else."""
    if rec.plural != "bindings":
        return ""
    hot = rec.hot if rec.raw is not None else rec.previous.hot if rec.previous is not None else None
    return hot.node if hot is not None else ""


def _belongs(rec: Rec, topic_key: TopicKey) -> bool:
    kind, value = topic_key
    if kind == "tenant":
        return rec.tenant == value
    if kind == "node":
        return node_of(rec) == value
    return True
