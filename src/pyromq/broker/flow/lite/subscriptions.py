"""The clients that read lite topics, and the lite topics that may have messages for each of them.

This is in memory only: clients say every half minute what they subscribe to.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyromq.protocol.names import lite_parts
from pyromq.remoting.channel import Channel

EVERYTHING = "*"
"""In the place of a client id: all clients of a group that reads all lite topics wait in one line."""


class LiteClient:
    """A client of a group; its lite topics are given by the names of their light queues."""

    __slots__ = (
        "attempt_id",
        "attempted",
        "channel",
        "client_id",
        "group",
        "line",
        "queues",
        "ready",
        "seen_ms",
        "topic",
    )

    def __init__(self, client_id: str, group: str, topic: str, channel: Channel, line: str) -> None:
        self.client_id = client_id
        self.group = group
        self.topic = topic
        self.channel = channel
        self.line = line
        """In which line its pops wait."""
        self.queues: dict[str, None] = {}
        self.ready: OrderedDict[str, None] = OrderedDict()
        """Those that may have messages; clients of a group that reads everything share them."""
        self.attempt_id: str | None = None
        self.attempted: list[str] = []
        """The lite topics of its last pop, and the attempt of that pop."""
        self.seen_ms = 0

    def __repr__(self) -> str:
        return f"<LiteClient {self.client_id} of {self.group} {len(self.queues)} lite topics>"


class LiteSubscriptions:
    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], LiteClient] = {}
        self._readers: dict[str, tuple[LiteClient, ...] | LiteClient] = {}
        """By light queue; most have one."""
        self._everything: dict[str, dict[str, dict[LiteClient, None]]] = {}
        """The clients that read all lite topics, by parent topic and group."""
        self.count = 0
        """Pairs of a client and a lite topic."""

    def __repr__(self) -> str:
        return f"<LiteSubscriptions {self.count} of {len(self._clients)} clients>"

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[LiteClient]:
        return iter(list(self._clients.values()))

    def get(self, group: str, client_id: str) -> LiteClient | None:
        return self._clients.get((group, client_id))

    def join(
        self, group: str, client_id: str, topic: str, channel: Channel, *, reads_all: bool
    ) -> LiteClient:
        """The client; it is made if it is new, or if what it reads was changed by an operator."""
        client = self._clients.get((group, client_id))
        line = EVERYTHING if reads_all else client_id
        if client is not None and (client.topic, client.line) != (topic, line):
            self.leave(client)
            client = None
        if client is None:
            client = self._clients[group, client_id] = LiteClient(client_id, group, topic, channel, line)
            if reads_all:
                others = self._everything.setdefault(topic, {}).setdefault(group, {})
                if others:
                    client.ready = next(iter(others)).ready
                others[client] = None
        client.channel = channel
        return client

    def leave(self, client: LiteClient) -> None:
        for queue in list(client.queues):
            self.unsubscribe(client, queue)
        if self._clients.get((client.group, client.client_id)) is client:
            del self._clients[client.group, client.client_id]
        groups = self._everything.get(client.topic, {})
        if client in groups.get(client.group, {}):
            del groups[client.group][client]
            if not groups[client.group]:
                del groups[client.group]
            if not groups:
                del self._everything[client.topic]

    def subscribe(self, client: LiteClient, queue: str) -> bool:
        """False if it has subscribed before."""
        if queue in client.queues:
            return False
        client.queues[queue] = None
        readers = self.readers(queue)
        self._readers[queue] = (*readers, client) if readers else client
        self.count += 1
        return True

    def unsubscribe(self, client: LiteClient, queue: str) -> bool:
        """False if it had not subscribed."""
        if queue not in client.queues:
            return False
        del client.queues[queue]
        client.ready.pop(queue, None)
        left = tuple(each for each in self.readers(queue) if each is not client)
        if not left:
            del self._readers[queue]
        else:
            self._readers[queue] = left if len(left) > 1 else left[0]
        self.count -= 1
        return True

    def read_of(self, queues: Mapping[str, object]) -> Iterable[str]:
        """Those of these light queues that anybody may read."""
        return queues if self._everything else self._readers.keys() & queues.keys()

    def readers(self, queue: str) -> Sequence[LiteClient]:
        """The clients that have subscribed to a light queue by its name."""
        found = self._readers.get(queue, ())
        return (found,) if isinstance(found, LiteClient) else found

    def readers_of_all(self, queue: str) -> Iterator[LiteClient]:
        """One client of each group that reads all lite topics of this one's parent."""
        if self._everything and (parts := lite_parts(queue)) is not None:
            for clients in self._everything.get(parts[0], {}).values():
                yield next(iter(clients))
