"""Servers under access control, attacked with hostile requests of every code by callers with various rights.

Whoever has no rights gets nothing but refusals and changes nothing. Whoever has few rights changes and reads
nothing else. Whatever an administrator sends, access control stays on and the servers go on serving.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support.access import ALICE, ROOT, SECURE, SERVER, WRONG, client, grant, user_creation
from tests.support.broker_cluster import running_broker
from tests.support.controlled_brokers import controller
from tests.support.hostile_frames import random_frame
from tests.support.name_servers import name_server
from tests.support.signing import signer
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.broker import Broker
from pyromq.protocol.catalogue import BROKER, CATALOGUE, CONTROLLER, NAMESERVER, Peer, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.requests.access import ListUsers
from pyromq.security.signature import Credentials
from pyromq.security.users import UserRules

BOB = Credentials("bob", "the password of bob")
CALLERS = {
    "stranger": None,
    "thief": WRONG,
    "nobody": Credentials("nobody", "x"),
    "user": ALICE,
    "customer": BOB,
    "administrator": ROOT,
}
UNKNOWN = ("stranger", "thief", "nobody")
RIGHTS = ("Pub,Sub on Topic:Orders", "Sub on Group:shop")
"""Of the customer."""
_SECRET = b"what only others may read"
_PROBE = 1_000_000


class Door(NamedTuple):
    """One server: where it is, what kind it is, and what of it nobody may change without rights."""

    address: tuple[str, int]
    peer: Peer
    users: Callable[[], UserRules]
    state: Callable[[], object]


class GuardedServers:
    def __init__(self, broker: Broker, doors: list[Door]) -> None:
        self._broker = broker
        self.doors = doors
        self._is_quiet = True
        """Nobody with rights has sent hostile requests yet, some of which have an effect only later."""

    async def attack(self, random: Random, caller: str) -> int:
        """One hostile request of every code to each server; how many were sent."""
        if caller in ("customer", "administrator"):
            self._is_quiet = False
        return sum([await self._attack(door, random, caller) for door in self.doors])

    async def _attack(self, door: Door, random: Random, caller: str) -> int:
        frames = hostile_requests(door.peer, random, CALLERS[caller])
        before, users, settings = door.state(), door.users(), self._broker.settings
        async with await WireClient.connect(door.address) as wire:
            wire.send(*frames, probe())
            answers = await self._answers(wire, len(frames) if caller in UNKNOWN else 0)
        if caller in UNKNOWN:
            refusals = {answer.code for answer in answers if answer.opaque != _PROBE}
            assert refusals == {ResponseCode.NO_PERMISSION}, (door.peer, refusals)
        if self._is_quiet:
            assert door.state() == before, door.peer
        if caller == "administrator":
            assert door.users().is_administrator(ROOT.access_key)
            assert door.users().is_administrator(SERVER.access_key)
        else:
            assert door.users() == users, door.peer
            assert self._broker.settings == settings
            assert not any(_SECRET in answer.body for answer in answers)
            assert self._broker.store.queues.max_offset("Secrets", 0) == 1
        assert self._broker.settings.deny_by_default
        return len(frames)

    @staticmethod
    async def _answers(wire: WireClient, wanted: int) -> list[Frame]:
        """What comes until the probe and so many others are answered; some requests wait for long."""
        found: list[Frame] = []
        while len(found) < wanted + 1 or not any(answer.opaque == _PROBE for answer in found):
            answer = await wire.frame()
            if answer.is_response:
                found.append(answer)
        return found


def hostile_requests(peer: Peer, random: Random, who: Credentials | None) -> list[Frame]:
    """One of every code, as somebody sends them."""
    sign = signer(who) if who is not None else None
    frames = []
    for opaque, (_, declaration) in enumerate(sorted(CATALOGUE.items())):
        if declaration.to & peer:
            frame = random_frame(declaration, random.choice(list(HeaderForm)), random)
            frame.opaque, frame.flag = opaque, 0
            if sign is not None:
                sign(frame)
            frames.append(frame)
    return frames


def probe() -> Frame:
    """A decent request of the administrator, answered in order: the server still serves."""
    frame = encode_request(ListUsers(), _PROBE)
    sign = signer(ROOT)
    sign(frame)
    return frame


@asynccontextmanager
async def guarded_servers(directory: Path) -> AsyncIterator[GuardedServers]:
    """Each knows the administrator, a user without rights, and a customer of the topic Orders."""
    async with (
        running_broker(directory / "broker", **SECURE, auto_create_topics=True) as broker,
        name_server(directory / "names", **SECURE) as names,
        controller(directory / "controller", **SECURE) as chooser,
    ):

        def of_broker() -> object:
            figures = broker.statistics()
            return figures.topics, figures.groups, broker.store.log.end

        def of_names() -> object:
            figures = names.statistics()
            return figures.tables, figures.kv_entries

        def of_controller() -> object:
            return [path.read_bytes() for path in sorted((directory / "controller").rglob("*.journal"))]

        doors = [
            Door(broker.address, BROKER, lambda: broker.access.users, of_broker),
            Door(names.address, NAMESERVER, lambda: names.access.users, of_names),
            Door(chooser.address, CONTROLLER, lambda: chooser._access.users, of_controller),
        ]
        for door in doors:
            async with client(door.address, ROOT) as root:
                for user in (ALICE, BOB):
                    await root.call(user_creation(user))
                await root.call(grant(BOB, *RIGHTS))
        async with client(broker.address, ROOT) as root:
            await root.create_topic("Orders")
            await root.create_topic("Secrets")
            await root.send(_SECRET, topic="Secrets")
        yield GuardedServers(broker, doors)
