"""Resets of offsets that are planned first: where a group stands in each queue, and where it would stand.

A plan and its execution are one list of `Move`s, so that a preview shows what happens. What `moves` found
is also what an undo needs: the same moves, reversed.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from pyromq.admin import brokers, offsets
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Int64


class Move(msgspec.Struct, frozen=True, rename="camel"):
    """A group in one queue: `now` is its offset, None if it has none; `wanted` the one it gets."""

    queue: MessageQueue
    now: Int64 | None
    wanted: Int64
    first: Int64
    end: Int64

    def reversed(self) -> "Move":
        """Back to where the group stood, or to the first message if it stood nowhere."""
        return Move(
            self.queue, self.wanted, self.first if self.now is None else self.now, self.first, self.end
        )


async def moves(
    cluster: Cluster,
    group: str,
    topic: str,
    *,
    time_ms: int | None = None,
    offset: int | None = None,
    broker_name: str | None = None,
    queue_id: int | None = None,
) -> list[Move]:
    """The moves of a reset to a time, to an offset within each queue's limits, or, with neither, to the end.

    `NotFound` if the topic has no such queue.
    """
    queues = await offsets.chosen_queues(cluster, topic, broker_name, queue_id)
    standing = await _standing(cluster, group, topic)

    async def move(queue: MessageQueue) -> Move:
        address = queues[queue]
        first, end = await offsets.limits(cluster, address, queue)
        if time_ms is not None:
            wanted = await offsets.search(cluster, address, queue, time_ms)
        else:
            wanted = end if offset is None else offset
        return Move(queue, standing.get(queue), max(first, min(end, wanted)), first, end)

    return list(await asyncio.gather(*map(move, queues)))


async def _standing(cluster: Cluster, group: str, topic: str) -> dict[MessageQueue, int]:
    # Without the topic: a broker that is asked for a topic answers offset 0 even if the group never read it.
    try:
        stats = await offsets.lag(cluster, group)
    except NotFound:
        return {}
    return {
        queue: place.consumer_offset
        for queue, place in stats.offset_table.items()
        if queue.topic == topic and place.consumer_offset >= 0
    }


async def perform(cluster: Cluster, group: str, planned: Iterable[Move]) -> list[Move]:
    """Make the moves, whether members are online or not; returns those that were made."""
    done: list[Move] = []
    knows_queues: dict[str, bool] = {}
    for move in planned:
        address = await cluster.broker_address(move.queue.broker_name)
        if address not in knows_queues:
            knows_queues[address] = await _resets_single_queues(cluster, address)
        if knows_queues[address]:
            await offsets.reset_queue(cluster, address, group, move.queue, move.wanted)
        else:
            await offsets.commit(cluster, address, group, move.queue, move.wanted)
        done.append(move)
    return done


async def _resets_single_queues(cluster: Cluster, address: str) -> bool:
    """java: a broker of 4.x overlooks which queue is meant, and would reset all of them to the first
    message."""
    version = (await brokers.runtime_info(cluster, address)).get("brokerVersionDesc", "")
    return not version.startswith("V4_")
