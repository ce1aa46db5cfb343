"""The one point of decision about access, with the facts it needs at hand. Every verb, row, command, metric and log asks here;
the answer itself is decided in fairlead/decide/access*.py.

Keeps no answer beyond the change of a rule, and looks at the credential again each time: an identity whose token was revoked is
refused from that moment on, on requests, rows of a watch and commands of a standing channel alike. Unknown callers and unknown
rules mean no. Made by the server; it is handed to `make_app` as `authorise`, and `gate` of it to the component channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.api import access
from fairlead.api.identity import Proven
from fairlead.client.plane import Change
from fairlead.client.resources import Unreachable
from fairlead.decide.access import BREAK_GLASS, Answer, Identity, Question, decide
from fairlead.decide.access_agent import Holdings, NoHoldings, decide_agent, refuse_own_node
from fairlead.decide.access_commands import Facts, caller_for, refuse_command
from fairlead.decide.access_objects import Rules, refuse_object
from fairlead.decide.access_roles import FORWARDERS, PLANE_SERVER
from fairlead.model.commands import Caller, Command, Refused
from fairlead.model.kinds.capacity import Node
from fairlead.security.directory import AccessDirectory, NotReady
from fairlead.security.holdings import Get
from fairlead.security.sealing import CannotOpen
from fairlead.security.strongbox import Strongbox

CORRELATION_MAX: Final = 256
_ROWS_MAX: Final = 10_000
Accepts = Callable[[Change], bool]


class Access:
    def __init__(
        self, directory: AccessDirectory, plane: str, get: Get, holdings: Holdings | None = None, region: str = "",
        secrets: Strongbox | None = None,
    ) -> None:  # fmt: skip
        """`get` reads the present state, such as `authority.view().get`; `holdings` is a PlaneHoldings in a region."""
        self._directory = directory
        self._secrets = secrets
        self._plane = plane
        self._region = region
        self._get = get
        self._holdings = holdings or NoHoldings()

    def __call__(self, identity: access.Identity, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
        """For `make_app`. A collection is allowed only if all of it is; see `filter` for the rest."""
        if not isinstance(identity, Proven) or identity.who is None:
            return False
        return self.authorise(identity.who, verb, plural, tenant, name, subresource)

    def authorise(self, who: Identity, verb: str, plural: str, tenant: str = "", name: str = "", subresource: str = "") -> bool:
        return self.answer(who, Question(verb, plural, tenant, name, subresource)).allowed

    def answer(self, who: Identity, question: Question, row_node: str = "") -> Answer:
        try:
            why, statements = self._directory.standing(who)
            if why:
                return Answer(False, why)
            if who.kind == "agent":
                return decide_agent(who, question, self._holdings, row_node)
            return decide(who, statements, question)
        except NotReady as error:
            return Answer(False, str(error))

    # --- reading ----------------------------------------------------------------------------------------------------------

    def filter(self, who: Identity, verb: str, plural: str, subresource: str = "") -> Accepts | None:
        """Which rows of a list or watch may be shown; None: not even an empty list. Good for as long as the stream lasts."""
        whole = self.answer(who, Question(verb, plural, "", "", subresource))
        if not whole.allowed and not whole.some:
            return None

        return Rows(self, self._directory, who, verb, subresource)

    def rows(self, who: Identity) -> Accepts:
        """What the other end of a channel is shown of what it reads and follows."""
        return Rows(self, self._directory, who, "get")

    def why_not_valid(self, who: Identity) -> str:
        """For streams: when this says something, end them with 401."""
        try:
            return self._directory.why_not_valid(who)
        except NotReady:
            return ""  # rows are held back meanwhile; the stream may live

    def version(self, who: Identity) -> int | None:
        """Of the rules: while it stands, so do their answers. None: they are just read again, and nobody can be judged."""
        if who.kind == BREAK_GLASS:
            return 0  # judged without them
        return self._directory.version if self._directory.ready else None

    # --- writing ----------------------------------------------------------------------------------------------------------

    def caller(self, who: Identity, question: Question) -> Caller | Refused:
        """As whom the authority is asked for this change."""
        answer = self.answer(who, question)
        if not answer.allowed:
            return Refused("Forbidden", answer.reason)
        if who.kind == "component":
            return Refused("Forbidden", "components send commands over the channel")
        return caller_for(who, answer, question)

    def refuse_object(self, who: Identity, new: Any, old: Any) -> Refused | None:
        """What the resolved object may not say. Asked before every write of people, whatever the verb."""
        if who.kind == "agent":
            why = (
                refuse_own_node(new, old, self._directory.profile_of(who)) if isinstance(new, Node) else "agents write nodes only"
            )
            return Refused("Forbidden", why) if why else None
        directory = self._directory
        if who.kind == BREAK_GLASS:  # asked of nothing that could be away, as everything of it
            return refuse_object(Rules(who, directory.statements(who), (), {}), new, old)
        return refuse_object(Rules(who, directory.statements(who), directory.bindings(), directory.roles()), new, old)

    def correlation(self, who: Identity, given: str = "") -> str:
        """For Command.correlation: with the command's caller and body the audit record then says who, what, on what, from where
        and by which credential."""
        proof = f"token {'/'.join(who.token)}" if who.token and who.kind != "agent" else f"certificate {who.fingerprint[7:23]}"
        if not who.token and not who.fingerprint:
            proof = "the local socket" if who.kind == BREAK_GLASS else "a provider's token"
        return f"{given + ' ' if given else ''}from {who.source or 'unknown'} by {proof}"[:CORRELATION_MAX]

    # --- the component channel --------------------------------------------------------------------------------------------

    def gate(self, who: Identity) -> Gate:
        return Gate(self, who, self._secrets)

    def refuse_command(self, who: Identity, command: Command) -> Refused | None:
        try:
            why, statements = self._directory.standing(who)
            if why:
                return Refused("Forbidden", why)
            return refuse_command(who, command, statements, self._facts(who))
        except NotReady as error:
            return Refused("NotLeader", str(error), retry_after_s=1.0)

    def _facts(self, who: Identity) -> Facts:
        if who.kind != "agent":
            return Facts(self._plane, self._holdings, region=self._region)
        row = self._get("nodes", "", who.node)
        node: Node | None = row.hot if row is not None and row.raw is not None else None
        return Facts(self._plane, self._holdings, node, self._directory.profile_of(who), self._region)


class Rows:
    """Which rows somebody may see. The credential is looked at for each; what the rules say of a kind in a tenant is kept until
    a rule changes, unless one of them names single objects."""

    def __init__(self, decisions: Access, directory: AccessDirectory, who: Identity, verb: str, subresource: str = "") -> None:
        self._access = decisions
        self._directory = directory
        self._who = who
        self._verb = verb
        self._subresource = subresource
        self._known: dict[tuple[str, str], bool] = {}  # (kind, tenant)
        self._version = -1  # of the rules
        self._by_name = False

    def __call__(self, row: Change) -> bool:
        who, plural, tenant = self._who, row.plural, row.tenant
        question = Question(self._verb, plural, tenant, row.name, self._subresource)
        if who.kind == "agent":
            return self._access.answer(who, question, _node_of(row)).allowed
        try:
            why, statements = self._directory.standing(who)
        except NotReady:
            return False
        if why:
            return False
        if self._version != self._directory.version or len(self._known) > _ROWS_MAX:
            self._known.clear()
            self._version = self._directory.version
            self._by_name = any(statement.names is not None for statement in statements)
        if self._by_name or plural == "tenants":  # a Tenant is in the tenant that it is: its name counts
            return decide(who, statements, question).allowed
        known = self._known.get((plural, tenant))
        if known is None:
            known = self._known[plural, tenant] = decide(who, statements, question).allowed
        return known


class Gate:
    """What one end of a channel may do: `may` is the service's May; `sees` is asked for each row of get, list and follow;
    `speaks` before heartbeats and the bindings of nodes."""

    def __init__(self, decisions: Access, who: Identity, secrets: Strongbox | None = None) -> None:
        self._access = decisions
        self._secrets = secrets
        self.who = who
        self.sees = decisions.rows(who)

    def may(self, command: Command) -> Refused | None:
        return self._access.refuse_command(self.who, command)

    def shows(self, row: Change) -> bytes | None:
        """Secrets are opened for the agent whose node needs them. Components pass them on as they are."""
        if row.raw is None or self._secrets is None or self.who.kind != "agent":
            return row.raw
        try:
            return self._secrets.open_for_node(row.raw)
        except CannotOpen as error:
            raise Unreachable(str(error)) from error

    def lists(self, plural: str) -> bool:
        """Is there any use in a list or a feed of that kind?"""
        answer = self._access.answer(self.who, Question("list", plural))
        return answer.allowed or answer.some

    def speaks(self, nodes: Iterable[str]) -> Refused | None:
        why = self._access.why_not_valid(self.who)
        if why:
            return Refused("Forbidden", why)
        if self.who.kind == "component" and PLANE_SERVER in self.who.roles:
            return None  # a standby passes on what it has heard
        others = [node for node in nodes if self.who.kind != "agent" or node != self.who.node]
        return Refused("WrongNode", f"{self.who.name} may not speak for {others[0]}") if others else None

    def hears(self) -> bool:
        """May it be told when each node was heard? Not by agents: those are all the others' names."""
        return self.who.kind == "component" and not self._access.why_not_valid(self.who)

    def asks(self, actor: str) -> bool:
        """May it ask what became of that sender's commands?"""
        if self._access.why_not_valid(self.who):
            return False
        own = actor == self.who.actor or actor.startswith(self.who.actor + "/")
        return own or (self.who.kind == "component" and not FORWARDERS.isdisjoint(self.who.roles))


def _node_of(row: Change) -> str:
    """A binding says itself where it is; of one that is gone, what was there before says it, or its agent would never learn that
    it is gone. What else is on a node is found through its binding."""
    if row.plural != "bindings":
        return ""
    hot = row.hot if row.raw is not None else getattr(getattr(row, "previous", None), "hot", None)
    return str(hot.node) if hot is not None else ""
