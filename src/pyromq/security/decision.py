"""The answer to "may they do this?": yes or no, with the rule that decided."""

from typing import Protocol

import msgspec

from pyromq.protocol.names import TOOLS_GROUP, reply_topic
from pyromq.protocol.needs import PUB, SUB, Need, ResourceType


class Decision(msgspec.Struct, frozen=True):
    is_allowed: bool
    rule: str
    """The rule that decided, for people: error texts, the audit log and `pyromq acl check`."""


class Rules(Protocol):
    """The accounts of a server and their rights; a change makes a new value."""

    def free_pass(self, who: str, address: str) -> str:
        """The rule that lets this address in without a signature and without rights; empty if none does."""
        ...

    def secrets_of(self, who: str) -> tuple[str, ...]:
        """The keys that this account may sign with; none if there is no such account, or it is disabled."""
        ...

    def is_administrator(self, who: str) -> bool:
        """Whether this account may do everything, and change accounts and rights."""
        ...

    def has_quota(self, who: str) -> bool:
        """Whether the fast path must leave this account's requests alone, so that they are counted."""
        ...

    def decide(self, who: str, need: Need, address: str) -> Decision: ...


def described(need: Need) -> str:
    """`Pub on Topic:orders`."""
    return f"{' or '.join(need.actions)} on {need.resource_type}:{need.name or '*'}"


def is_to_read_as_tool(need: Need) -> bool:
    """Whether it is to read as the group of tools, which keeps no offsets: the rights to the topic decide."""
    return need.resource_type is ResourceType.GROUP and need.name == TOOLS_GROUP and need.actions == (SUB,)


def is_to_reply(need: Need, cluster: str = "") -> bool:
    """Whether it is for a reply to a request; with the name of a cluster, to one of that cluster.

    java: brokers never ask whether someone may reply. Who can has read the request, which has the id that the
    waiting client compares.
    """
    if need.resource_type is not ResourceType.TOPIC or PUB not in need.actions:
        return False
    return need.name == reply_topic(cluster) if cluster else need.name.endswith(reply_topic(""))
