"""Quotas: how much a topic, a group and a user may send to this broker and read from it in a second.

Answers to sends over a quota come later, and reads over one wait, up to `quotaMaxDelayMillis`. Requests
further over it are refused with SYSTEM_BUSY, and that answer is as late. The compiled path charges sends to
a topic that has a quota; users and readers that have one take the general path.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from pyromq.broker.flow.token_bucket import TokenBucket
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.quotas import READING, SENDING, rates

_MAX_IDLE = 4096
"""Buckets that are kept; beyond it all are forgotten, which at most gives everyone a second's worth."""

Reply = RawAnswer | asyncio.Future[RawAnswer]
_Key = tuple[str, str, tuple[str, str]]


class Limit(NamedTuple):
    """The limits of one topic, group or user."""

    whose: str
    """topic, group or user."""
    name: str
    quotas: tuple[str, str]
    buckets: tuple[TokenBucket | None, TokenBucket | None]
    """Of messages and of bytes."""

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        for bucket, amount in zip(self.buckets, (messages, size_bytes), strict=True):
            if bucket is not None:
                bucket.take(amount, now_s)

    def debts(self, now_s: float) -> list[tuple[float, str, int]]:
        """By quota: how long it takes to pay, its name and its rate."""
        return [
            (bucket.debt_s(now_s), quota, bucket.rate)
            for quota, bucket in zip(self.quotas, self.buckets, strict=True)
            if bucket is not None
        ]


class Quotas:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        clock: Clock,
        of_user: Callable[[str], Mapping[str, str]],
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """`of_user`: the attributes of a user. `call_later`: the loop's, if not given."""
        self._live = live
        self._topics = tables.topics
        self._groups = tables.groups
        self._of_user = of_user
        self._monotonic = clock.monotonic
        self.call_later = call_later if call_later is not None else _call_later
        self._kept: dict[_Key, Limit] = {}
        self.delayed: Counter[tuple[str, ...]] = Counter()
        """Requests that waited, by whose quota, its owner and its name."""
        self.refused: Counter[tuple[str, ...]] = Counter()

    def __repr__(self) -> str:
        return (
            f"<Quotas kept={len(self._kept)} delayed={self.delayed.total()} refused={self.refused.total()}>"
        )

    def figures(self) -> dict[str, str]:
        return {
            "quotaDelayedRequests": str(self.delayed.total()),
            "quotaRefusedRequests": str(self.refused.total()),
        }

    # Who has limits

    def of_sends(self, topic: str, user: str) -> list[Limit]:
        config = self._topics.get(topic)
        found = [] if config is None else self._limit("topic", topic, config.attributes, SENDING)
        return found + self._limit("user", user, self._of_user(user), SENDING) if user else found

    def of_reads(self, topic: str, group: str, user: str) -> list[Limit]:
        found = self.of_readers(topic, group)
        return found + self._limit("user", user, self._of_user(user), READING) if user else found

    def of_readers(self, topic: str, group: str) -> list[Limit]:
        """The limits of a topic and a group, whoever reads."""
        config, settings = self._topics.get(topic), self._groups.get(group)
        found = [] if config is None else self._limit("topic", topic, config.attributes, READING)
        if settings is not None:
            found += self._limit("group", group, settings.attributes, READING)
        return found

    def _limit(
        self, whose: str, name: str, attributes: Mapping[str, str], quotas: tuple[str, str]
    ) -> list[Limit]:
        wanted = rates(attributes, quotas)
        if wanted is None:
            return []
        key = whose, name, quotas
        limit = self._kept.get(key)
        if limit is None or tuple(bucket.rate if bucket else 0 for bucket in limit.buckets) != wanted:
            if len(self._kept) >= _MAX_IDLE:
                self._kept.clear()
            now_s = self._monotonic()
            messages, size_bytes = (TokenBucket(rate, now_s) if rate else None for rate in wanted)
            limit = self._kept[key] = Limit(whose, name, quotas, (messages, size_bytes))
        return [limit]

    # What limits do

    def send(self, limits: list[Limit], body: bytes, is_batch: bool, attempt: Callable[[], Reply]) -> Reply:
        """Store at once, and answer when the debt is paid."""
        if (refusal := self._refusal(limits)) is not None:
            return self._later(self._max_delay_s, refusal)
        reply = attempt()
        self._charge(limits, count_sized(body) if is_batch else 1, len(body))
        delay_s = self._delay(limits)
        if not delay_s:
            return reply
        self._note(self.delayed, limits)
        return self._later(delay_s, lambda: reply)

    def account_of(self, topic: str) -> tuple[list[int], list[float], float]:
        """Rates and levels of a topic, of messages and of bytes, and the longest delay; the compiled path
        counts on by itself until a read is over. A rate of 0 means no limit."""
        buckets = [bucket for limit in self.of_sends(topic, "") for bucket in limit.buckets] or [None, None]
        now_s = self._monotonic()
        rates = [0 if bucket is None else bucket.rate for bucket in buckets]
        levels = [0.0 if bucket is None else bucket.level(now_s) for bucket in buckets]
        return rates, levels, self._max_delay_s

    def charge(self, topic: str, messages: int, size_bytes: int, delayed: tuple[int, int]) -> None:
        """Counts what the compiled path has stored in a read, and how many sends it delays, by quota."""
        for limit in self.of_sends(topic, ""):
            limit.take(messages, size_bytes, self._monotonic())
            for quota, count in zip(limit.quotas, delayed, strict=True):
                if count:
                    self.delayed[limit.whose, limit.name, quota] += count

    def read(
        self,
        limits: list[Limit],
        most: int,
        attempt: Callable[[int], Reply],
        is_open: Callable[[], bool],
        deadline_s: float | None = None,
    ) -> Reply:
        """Read when no debt is left, and no more than `most` messages and than there is for messages."""
        if deadline_s is None and (refusal := self._refusal(limits)) is not None:
            return self._later(self._max_delay_s, refusal)
        delay_s = self._delay(limits)
        if delay_s:
            if deadline_s is None:
                self._note(self.delayed, limits)
                deadline_s = self._monotonic() + self._max_delay_s
            # Others may read before this one's turn comes: then it waits again, but not for ever.
            left_s = deadline_s - self._monotonic()
            if left_s <= 0:
                return self._later(0, self._refuse(limits))
            again = partial(self.read, limits, most, attempt, is_open, deadline_s)
            return self._later(min(delay_s, left_s), again, is_open)
        now_s = self._monotonic()
        left = [limit.buckets[0].level(now_s) for limit in limits if limit.buckets[0] is not None]
        reply = attempt(max(1, min([most, *map(int, left)])))
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(partial(self._charge_answer, limits))
        else:
            self._charge(limits, count_sized(reply.body), len(reply.body))
        return reply

    def _charge_answer(self, limits: list[Limit], answered: "asyncio.Future[RawAnswer]") -> None:
        if not answered.cancelled() and answered.exception() is None:
            body = answered.result().body
            self._charge(limits, count_sized(body), len(body))

    def _charge(self, limits: list[Limit], messages: int, size_bytes: int) -> None:
        now_s = self._monotonic()
        for limit in limits:
            limit.take(messages, size_bytes, now_s)

    @property
    def _max_delay_s(self) -> float:
        return self._live.now.quota_max_delay_ms / 1000

    def _worst(self, limits: list[Limit]) -> tuple[float, Limit, str, int]:
        now_s = self._monotonic()
        debts = [
            (debt_s, limit, quota, rate) for limit in limits for debt_s, quota, rate in limit.debts(now_s)
        ]
        return max(debts, key=lambda debt: debt[0])

    def _delay(self, limits: list[Limit]) -> float:
        return min(self._worst(limits)[0], self._max_delay_s)

    def _note(self, counts: Counter[tuple[str, ...]], limits: list[Limit]) -> None:
        _, limit, quota, _ = self._worst(limits)
        counts[limit.whose, limit.name, quota] += 1

    def _refusal(self, limits: list[Limit]) -> Callable[[], RawAnswer] | None:
        """A function that raises Refused, if the debt is already too high."""
        return self._refuse(limits) if self._worst(limits)[0] > self._max_delay_s else None

    def _refuse(self, limits: list[Limit]) -> Callable[[], RawAnswer]:
        _, limit, quota, rate = self._worst(limits)
        self._note(self.refused, limits)

        def refuse() -> RawAnswer:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[QUOTA]the {limit.whose} {limit.name} is over its {quota} of {rate} a second here",
            )

        return refuse

    def _later(
        self, delay_s: float, attempt: Callable[[], Reply], is_open: Callable[[], bool] = lambda: True
    ) -> "asyncio.Future[RawAnswer]":
        """The result of an attempt that is made later, or not at all if the caller has left."""
        answered: asyncio.Future[RawAnswer] = asyncio.get_running_loop().create_future()

        def tell(found: "asyncio.Future[RawAnswer]") -> None:
            if answered.done():
                return
            if found.cancelled():
                answered.cancel()
            elif (problem := found.exception()) is not None:
                answered.set_exception(problem)
            else:
                answered.set_result(found.result())

        def go_on() -> None:
            if answered.done():
                return
            if not is_open():
                answered.cancel()
                return
            try:
                reply = attempt()
            except Exception as problem:
                answered.set_exception(problem)
                return
            if isinstance(reply, asyncio.Future):
                reply.add_done_callback(tell)
            else:
                answered.set_result(reply)

        self.call_later(delay_s, go_on)
        return answered


def _call_later(delay_s: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, call)


def count_sized(data: bytes) -> int:
    """How many records, or messages of a batch, there are: each begins with its size in bytes."""
    count = position = 0
    while position + 4 <= len(data):
        size_bytes = int.from_bytes(data[position : position + 4])
        if size_bytes <= 4:
            break
        position += size_bytes
        count += 1
    return max(count, 1) if data else 0
