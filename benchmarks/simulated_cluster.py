"""A large cluster over real sockets, for the console's benchmark: servers that only tell figures, and count.

    python -m benchmarks.simulated_cluster --brokers 100 --topics 10000 --groups 2000 [--apache]

All servers are in one process. It writes the name server's address, and then for each line that it reads the
requests so far, by name, as JSON. A tenth of the topics is written to and read; all of it moves on with time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass

from tests.support.told_cluster import RUNTIME, ToldBroker, ToldCluster

from pyromq.protocol import json_body
from pyromq.protocol.catalogue import BROKER, NAMESERVER, RawAnswer
from pyromq.protocol.requests.inspection import Figures, GetFigures, StoreFigures
from pyromq.protocol.requests.routes import GetRouteDigests, RouteDigests
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server

BROKERS_PER_TOPIC = 4
QUEUES = 4
TOPICS_PER_GROUP = 2
BUSY_SHARE = 10
RATE = 50


@dataclass(frozen=True)
class Size:
    brokers: int
    topics: int
    groups: int

    def topics_of(self, broker: int) -> list[int]:
        return [topic for topic in range(self.topics) if (broker - topic) % self.brokers < BROKERS_PER_TOPIC]

    def groups_of(self, topic: int) -> list[int]:
        """Group g reads the topics g, g + groups, …"""
        return [topic % self.groups] if topic < self.groups * TOPICS_PER_GROUP else []


class FiguresBroker(ToldBroker):
    """A broker of ours: everything once, then the tenth that moves."""

    def prepare(self, size: Size, number: int) -> None:
        self.runtime = dict(RUNTIME) | {"pyromqVersion": "simulated"}
        self.size = size
        self.mine = size.topics_of(number)
        self.began_ms = time.time_ns() // 1_000_000
        self.server = Server(Routes(self, serving=BROKER), ConnectionTerms(observer=self.counting))

    @handles(GetFigures)
    def _figures(self, request: GetFigures, caller: Caller) -> RawAnswer:
        now_ms = time.time_ns() // 1_000_000
        passed = (now_ms - self.began_ms) // 1000
        told = Figures(at=now_ms, has_all=request.since is None, store=StoreFigures(retention_hours=72))
        for topic in self.mine:
            is_busy = topic % BUSY_SHARE == 0
            if not (is_busy or told.has_all):
                continue
            name = f"topic-{topic:05}"
            stored = 1000 + (RATE * passed if is_busy else 0)
            told.queues[name] = [0, stored // QUEUES] * QUEUES
            told.stored[name] = [stored, stored * 100]
            for group in self.size.groups_of(topic):
                read = stored - (topic % 7) * 100
                told.lags[f"{name}@group-{group:04}"] = [stored - read, now_ms - 60_000, read, 0]
            if told.has_all:
                told.topics[name] = [QUEUES, QUEUES, 6, 0]
        if told.has_all:
            online = {group for topic in self.mine for group in self.size.groups_of(topic)}
            told.groups = {
                f"group-{group:04}": [2, 0] if group in online else [0, -1]
                for group in range(self.size.groups)
            }
        return RawAnswer(json_body.encode(told), {"version": f"boot:{passed}"})


class FiguresCluster(ToldCluster):
    def prepare(self, size: Size) -> None:
        self._digests = json_body.encode(
            RouteDigests(digests={f"topic-{topic:05}": f"{topic:016x}" for topic in range(size.topics)})
        )
        self._server = Server(Routes(self, serving=NAMESERVER), ConnectionTerms(observer=self.counting))

    @handles(GetRouteDigests)
    def _route_digests(self, request: GetRouteDigests, caller: Caller) -> RawAnswer:
        return RawAnswer(self._digests)


def of_ours(size: Size) -> ToldCluster:
    brokers = []
    for number in range(size.brokers):
        broker = FiguresBroker(f"broker-{number:03}")
        broker.prepare(size, number)
        brokers.append(broker)
    cluster = FiguresCluster(*brokers)
    cluster.prepare(size)
    return cluster


def of_apache(size: Size) -> ToldCluster:
    brokers = []
    for number in range(size.brokers):
        broker = ToldBroker(f"broker-{number:03}", last_ms=time.time_ns() // 1_000_000)
        for topic in size.topics_of(number):
            name = f"topic-{topic:05}"
            broker.add_topic(name, QUEUES)
            for group in size.groups_of(topic):
                broker.read[name, f"group-{group:04}"] = dict.fromkeys(range(QUEUES), (1000, 900))
        brokers.append(broker)
    return ToldCluster(*brokers)


async def serve(cluster: ToldCluster) -> None:
    async with cluster:
        sys.stdout.write(cluster.namesrv + "\n")
        sys.stdout.flush()
        while await asyncio.to_thread(sys.stdin.readline):
            counted: Counter[str] = cluster.requests
            sys.stdout.write(json.dumps(counted) + "\n")
            sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--apache", action="store_true")
    options = parser.parse_args()
    size = Size(options.brokers, options.topics, options.groups)
    asyncio.run(serve((of_apache if options.apache else of_ours)(size)))


if __name__ == "__main__":
    main()
