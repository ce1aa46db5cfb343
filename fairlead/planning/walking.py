"""One production controller over a copied plane: told of changes, asked about keys, its commands judged at once.

Owns the order of its looks (the runtime's own KeyQueue) and nothing else: what follows from a key is the controller's. Never
waits: time is told. Called by trial.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from fairlead.controllers.cache import Cache, Item
from fairlead.controllers.contract import Controller, View
from fairlead.controllers.queue import KeyQueue
from fairlead.model.commands import Delete, Refused
from fairlead.model.controllers import CONTROLLERS
from fairlead.planning.copied import Copy
from fairlead.ports import Random

log = logging.getLogger(__name__)

KEYS_MAX = 64  # looked at before everybody hears what came of them


class Walker:
    def __init__(self, controller: Controller, writes: Copy, other: Copy | None, random: Random) -> None:
        self.controller = controller
        self.writes = writes
        self.other = other
        info = CONTROLLERS[controller.name]
        self._caller = writes.lease(getattr(controller, "lease", "") or controller.name, info.role)
        self._follows = frozenset(controller.follows)
        self._follows_other = frozenset(controller.follows_other)
        self._named = frozenset(getattr(controller, "named", ()))
        self.queue = KeyQueue(random)
        self.view = view = View(controller.indexes, controller.indexes_other)
        view.incarnation = writes.incarnation
        view.since_ms = 0  # it is taken to have watched for long
        view.cache = Cache(controller.indexes, writes.objects, controller.follows)
        if other is not None:
            view.other = Cache(controller.indexes_other, other.objects, controller.follows_other)
        self.queue.add(controller.resync(view), writes.now_ms)

    def told(self, copy: Copy, old: Item | None, new: Item | None) -> None:
        item = new or old
        assert item is not None, "something has changed"
        if copy is self.writes and item.plural in self._follows:
            self.view.cache.told(old, new)
            self._concerns(old, new, False)
        if copy is self.other and item.plural in self._follows_other:
            self.view.other.told(old, new)
            self._concerns(old, new, True)

    def _concerns(self, old: Item | None, new: Item | None, other: bool) -> None:
        item = new or old
        assert item is not None, "something has changed"
        for version in (item,) if item.plural in self._named else (old, new):
            if version is not None:
                self.queue.add(self.controller.keys(self.view, version, other), self.writes.now_ms)

    def look(self, now_ms: int) -> Iterator[None]:
        """At the keys that are due, with a pause after each. The copies must have told their news before."""
        self.view.other_ms = now_ms
        taken = self.queue.take(now_ms, KEYS_MAX)
        for each in taken:
            try:
                result = self.controller.reconcile(each.key, self.view, now_ms)
            except Exception:  # as in the runtime: one bad object must not keep all others waiting
                log.exception("a trial of %s cannot reconcile %s", self.controller.name, each.key)
                self.queue.failed(each.key, now_ms)
                yield
                continue
            if result.wake_ms is not None:
                self.queue.add((each.key,), max(result.wake_ms, now_ms + 1))
            refused = False
            for body in result.bodies:
                outcome = self.writes.send(self._caller, body)
                refused |= isinstance(outcome, Refused) and not (isinstance(body, Delete) and outcome.reason == "NotFound")
            if refused:
                self.queue.failed(each.key, now_ms)
            else:
                self.queue.succeeded(each.key)
            yield
