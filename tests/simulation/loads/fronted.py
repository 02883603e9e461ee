"""Clients of the gRPC front: a producer, simple consumers, and push consumers for whom the front renews.

A send that the front has answered with OK is stored. A message that came for the first time and was
acknowledged in time does not come again. Whoever fails at anything connects again, as RocketMQ's clients do.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from tests.simulation.cluster import BROKER_PORT, FRONT_PORT, Server
from tests.simulation.contents import Contents
from tests.simulation.grpc_channel import CallFailed, SimulatedChannel
from tests.simulation.loads.load import RunningLoad
from tests.support.front_user import CLIENT_TYPES, CODES, FrontUser

from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.errors import PyroError
from pyromq.protocol.requests.topics import TopicConfig

_SIMPLE, _PUSH = "front-receivers", "front-pushers"
_INVISIBLE_S = {_SIMPLE: 10, _PUSH: 15}
_UNKNOWN = ["PROXY_TIMEOUT"]
_WAIT_S = 2.0
_CALL_S = 8.0
_HEARTBEAT_S = 10.0
_LONGEST_S = 20.0
_SOON_S = 60.0


class _Acknowledged(NamedTuple):
    """A message that came for the first time, and was acknowledged before others could get it."""

    body: str
    group: str
    at_s: float


class FrontedLoad(RunningLoad):
    def start(self) -> None:
        self._acknowledged: dict[tuple[str, str], _Acknowledged] = {}
        self._again: list[tuple[str, str]] = []
        self.reads(_SIMPLE, commits=False)
        self.reads(_PUSH, commits=False)
        self.sender("producer", self._begin())
        for number in (1, 2):
            self.member(
                f"simple {number}",
                lambda: self._session("SIMPLE_CONSUMER", lambda user: self._receive(user, _SIMPLE)),
            )
            self.member(
                f"push {number}",
                lambda: self._session("PUSH_CONSUMER", lambda user: self._receive(user, _PUSH)),
            )

    async def finish_sending(self) -> None:
        try:
            async with asyncio.timeout(_SOON_S):
                await super().finish_sending()
        except TimeoutError:
            text = f"nothing was acknowledged in {_SOON_S} s, although everything has healed"
            self.recorder.violation("the front takes no messages", text)

    async def _session(self, kind: str, work: Callable[[FrontUser], Awaitable[None]]) -> None:
        """Work as a client of this kind until that ends; after a failure as another one."""
        assert self.cluster.front is not None
        options = self.options()
        number = 0
        while True:
            number += 1
            channel = SimulatedChannel(self.cluster.front.host.address, FRONT_PORT)
            user = FrontUser(channel, f"{options['client_ip']}@{options['instance_name']}@{number}@sim")
            try:
                async with asyncio.timeout(_CALL_S):
                    group = _SIMPLE if kind == "SIMPLE_CONSUMER" else _PUSH
                    if kind == "PRODUCER":
                        await user.publish(self.topic)
                    else:
                        await user.subscribe(group, self.topic, kind=kind)
                beating = asyncio.create_task(self._beat(user, kind, group))
                try:
                    await work(user)
                finally:
                    beating.cancel()
                return
            except (CallFailed, TimeoutError):
                await self.pause(has_failed=True)
            finally:
                channel.close()

    async def _beat(self, user: FrontUser, kind: str, group: str) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            named = {} if kind == "PRODUCER" else {"group": {"name": group}}
            try:
                await user.call("Heartbeat", timeout=_CALL_S, client_type=CLIENT_TYPES[kind], **named)
            except CallFailed:
                continue  # the next call fails, too

    # The producer

    async def _begin(self) -> None:
        """A front creates no topics."""
        async with Cluster(
            self.cluster.name_server_address, timeout_s=_CALL_S, clock=self.cluster.loop.clock
        ) as cluster:
            while (master := self.cluster.master()) is None or not await self._create(cluster, master):
                await self.pause(has_failed=True)
        await self._session("PRODUCER", self._produce)

    async def _create(self, cluster: Cluster, master: Server) -> bool:
        try:
            wanted = TopicConfig(topic_name=self.topic, read_queue_nums=4, write_queue_nums=4)
            await topics.put(cluster, [f"{master.host.address}:{BROKER_PORT}"], wanted)
        except PyroError:
            return False
        return True

    async def _produce(self, user: FrontUser) -> None:
        """Until the load is over, and then until one more message is acknowledged."""
        is_last = False
        while not is_last:
            is_last = self.is_over
            body, began_s = self.next_body("p"), self.recorder.now_s
            message = user.message(self.topic, body.encode(), message_id=f"01{self._numbers:032X}")
            message.system_properties.born_timestamp.FromMilliseconds(self.cluster.names.host.clock.now_ms())
            offset = None
            try:
                answer = await user.call("SendMessage", timeout=_CALL_S, messages=[message])
                if CODES[answer.status.code] == "OK":
                    offset = answer.entries[0].offset
            finally:
                self.answered(body, "p", began_s, -1, offset)
            is_last = is_last and offset is not None
            await self.pause(has_failed=offset is None)

    # The consumers

    async def _receive(self, user: FrontUser, group: str) -> None:
        while True:
            began_s = self.recorder.now_s
            found = await user.receive(
                group,
                self.topic,
                wait_s=_WAIT_S,
                timeout=_WAIT_S + _CALL_S,
                invisible_s=_INVISIBLE_S[group],
                auto_renew=group == _PUSH,
                batch_size=8,
            )
            if found.code == "UNRECOGNIZED_CLIENT_TYPE":
                raise CallFailed("the front has forgotten the client, which has to send its settings again")
            for each in found.messages:
                self._arrived(group, each.body.decode(), began_s)
            for each in found.messages:
                # In the end they catch up: while they are slow, a quick producer is far ahead of them.
                if group == _PUSH and not self.is_over and self.chance.random() < 0.05:
                    await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
                codes = _UNKNOWN
                try:
                    codes = await user.ack(group, self.topic, each)
                finally:
                    if codes == ["OK"]:
                        self._done(group, each, began_s)
                    elif codes == _UNKNOWN:  # it has arrived, and may not come again
                        self._got[group].add(each.body.decode())
            if not found.messages and found.code != "MESSAGE_NOT_FOUND":
                await self.pause(has_failed=True)

    def _arrived(self, group: str, body: str, began_s: float) -> None:
        self._got[group].add(
            body
        )  # also if its acknowledgement is refused: the broker may have it all the same
        before = self._acknowledged.get((group, body))
        if before is not None and began_s > before.at_s:
            self._again.append(
                (
                    body,
                    f"{body!r} came to {group} again in a call of {began_s:.3f} s, and was acknowledged"
                    f" at {before.at_s:.3f} s",
                )
            )

    def _done(self, group: str, message: Any, began_s: float) -> None:
        body, now_s = message.body.decode(), self.recorder.now_s
        self.recorder.totals.delivered += 1
        is_first = message.system_properties.delivery_attempt == 1
        if is_first and now_s < began_s + _INVISIBLE_S[group]:
            self._acknowledged.setdefault((group, body), _Acknowledged(body, group, now_s))

    # Judging

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        sent = {each.body for each in self.history.sent}
        stored = {
            each.broker: [message.body.decode() for message in each.messages(self.topic)] for each in contents
        }
        for each in self.history.sent:
            if each.offset is None:
                continue
            for broker, bodies in stored.items():
                if each.body not in bodies:
                    yield "acknowledged by the front and lost", f"{each.body!r} is not at {broker}"
            for group, got in self._got.items():
                if each.body not in got:
                    yield "not delivered by the front", f"{each.body!r} to {group}"
        for broker, bodies in stored.items():
            for body in set(bodies) - sent:
                yield "never sent", f"{body!r} at {broker}"
        copies = Counter(next(iter(stored.values()), []))
        for body, text in self._again:
            if copies[body] == 1 and not self._clocks_leapt:
                yield "acknowledged at the front, and again", text

    @property
    def _clocks_leapt(self) -> bool:
        """Then a message is visible again earlier than its consumer thinks."""
        return any(fault.kind == "clock" for fault in self.cluster.plan.faults)
