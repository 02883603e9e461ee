"""Simple consumers that forget every other message: it comes again when its time is over, once each time."""

from collections import Counter
from collections.abc import Iterator

from tests.simulation.contents import Contents
from tests.simulation.loads.popped import PoppedLoad

from pyromq import PyroError, aio
from pyromq.protocol import properties as props

_GROUP = "forgetful"
_INVISIBLE_S = 3.0
_MAX_FORGOTTEN = 2
"""A message is acknowledged when it comes for the next time."""


class DroppedLoad(PoppedLoad):
    def start(self) -> None:
        self.reads(_GROUP, commits=False)
        self._times: Counter[str] = Counter()
        self.sender("producer", self.produce("p"))
        for number in (1, 2):
            self.member(f"member {number}", self._receive)

    async def _receive(self) -> None:
        async with aio.SimpleConsumer(
            _GROUP,
            self.cluster.name_server_address,
            start_from="first",
            invisible_s=_INVISIBLE_S,
            **self.options(),
        ) as consumer:
            consumer.subscribe(self.topic)
            while True:
                try:
                    for message in await self.receive(consumer, _GROUP):
                        self.delivered(_GROUP, message)
                        body = message.body.decode()
                        self._times[body] += 1
                        if self._times[body] > _MAX_FORGOTTEN or self.chance.random() < 0.5:
                            self.finished(_GROUP, message)  # the broker may have it if no answer comes
                            await consumer.ack(message)
                except PyroError:
                    await self.pause(has_failed=True)

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        for each in contents:
            for topic in each.topics:
                if not topic.startswith(f"%RETRY%{_GROUP}"):
                    continue
                revived = Counter(
                    (message.get(props.UNIQ_KEY), message.reconsume_times) for message in each.messages(topic)
                )
                for (key, times), count in revived.items():
                    if count > 1:
                        yield (
                            "revived twice",
                            f"{key} after {times} deliveries, {count} times at {each.broker}",
                        )
