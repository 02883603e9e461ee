"""Where rows go: to the queue they name, to that of their sharding key, to that of their key, or to any.

Equal keys go to one queue, so their messages stay in order. Rows that may go anywhere are spread evenly.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyromq.errors import BadMessage
from pyromq.protocol.java_hash import java_string_hash
from pyromq.spark.encode import OutgoingMessages
from pyromq.spark.queues import Queue

_ANY = -1
_ZERO = pa.scalar(0, pa.int32())
_NOT_ASCII = 0x80


class Destination(NamedTuple):
    topic: str
    queue: Queue | None
    """None for any."""
    rows: NDArray[np.int64]


class Destinations:
    def __init__(
        self, topic: str | None, queues_of: Callable[[str], list[Queue]], *, keys_choose: bool
    ) -> None:
        """`topic` goes before a row's own; `keys_choose`: a key chooses the queue of its row."""
        self._topic = topic
        self._queues_of = queues_of
        self._keys_choose = keys_choose

    def of(self, messages: OutgoingMessages) -> Iterator[Destination]:
        """The rows of each destination, in their order."""
        every = np.arange(messages.count)
        for topic, rows in self._by_topic(messages, every):
            places = self._places(topic, messages, rows)
            if places is None:
                yield Destination(topic, None, rows)
                continue
            queues = self._queues_of(topic)
            for place in (np.flatnonzero(np.bincount(places - _ANY)) + _ANY).tolist():
                queue = None if place == _ANY else queues[place]
                yield Destination(topic, queue, rows[places == place])

    def _by_topic(
        self, messages: OutgoingMessages, every: NDArray[np.int64]
    ) -> Iterator[tuple[str, NDArray[np.int64]]]:
        column = messages.column("topic")
        if self._topic is not None or column is None:
            assert self._topic is not None
            yield self._topic, every
            return
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            if not topic:
                raise BadMessage("a row has no topic, and the option topic is not set")
            yield topic, every[codes == code]

    def _places(
        self, topic: str, messages: OutgoingMessages, rows: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """For each row the place of its queue among those of its topic; None if all may go anywhere."""
        numbers = messages.column("queueId")
        texts = [messages.column("shardingKey")] if numbers is None else []
        if self._keys_choose and (key := messages.column("key")) is not None:
            texts.append(key.cast(pa.string()))
        texts = [text for text in texts if text is not None]
        if numbers is None and not texts:
            return None
        places = np.full(len(rows), _ANY, np.int64)
        chosen = pa.array(rows)
        for text in reversed(texts):  # a sharding key goes before a key
            values = text if len(rows) == len(text) else text.take(chosen)
            is_given = np.asarray(pc.fill_null(pc.binary_length(values), _ZERO)) > 0
            if is_given.any():
                given = values if is_given.all() else values.filter(pa.array(is_given))
                places[is_given] = shards(given, len(self._queues_of(topic)))
        if numbers is not None:
            self._put_named(topic, places, numbers.take(chosen), messages.column("brokerName"), chosen)
        return places

    def _put_named(
        self,
        topic: str,
        places: NDArray[np.int64],
        numbers: pa.Int32Array,
        brokers: pa.StringArray | None,
        chosen: pa.Array,
    ) -> None:
        names = [None] * len(numbers) if brokers is None else brokers.take(chosen).to_pylist()
        found: dict[tuple[int, str | None], int] = {}
        for row, wish in enumerate(zip(numbers.to_pylist(), names, strict=True)):
            number, broker = wish
            if number is not None:
                if wish not in found:
                    found[wish] = self._place_of(topic, number, broker)
                places[row] = found[wish]

    def _place_of(self, topic: str, number: int, broker: str | None) -> int:
        fitting = [
            place
            for place, queue in enumerate(self._queues_of(topic))
            if queue.queue_id == number and broker in (None, queue.broker)
        ]
        if len(fitting) != 1:
            where = f"{broker}:{number}" if broker is not None else f"queue {number}"
            why = "several brokers have it: add a column brokerName" if fitting else "no such queue"
            raise BadMessage(f"{where} of topic {topic}: {why}")
        return fitting[0]


def shards(keys: pa.StringArray, queues: int) -> NDArray[np.int64]:
    """Which of some queues each key goes to; there are no nulls."""
    # java: the absolute value, and the one number that has none counts as 0
    values = np.abs(_java_hashes(keys).astype(np.int64))
    values[values > 0x7FFFFFFF] = 0
    return values % queues


def _java_hashes(texts: pa.StringArray) -> NDArray[np.int32]:
    """java: String.hashCode of each text; texts of one length are hashed together."""
    _, edge_buffer, data_buffer = texts.buffers()
    edges = np.frombuffer(edge_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    if (data[edges[0] : edges[-1]] >= _NOT_ASCII).any():
        return np.array([java_string_hash(text) for text in texts.to_pylist()], np.int32)
    lengths = np.diff(edges)
    hashes = np.zeros(len(texts), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        starts = edges[rows]
        total = np.zeros(len(rows), np.uint32)
        for place in range(length):
            total = total * np.uint32(31) + data[starts + place]
        hashes[rows] = total
    return hashes.view(np.int32)
