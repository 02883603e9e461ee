"""Messages and bytes in and out by topic, queue and group, over the last minute, hour and day.

Counting costs one look-up and a few additions; rates are computed on request.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple

from pyromq.clock import Clock, elapsed_ms
from pyromq.protocol.requests.inspection import BrokerStatsData, BrokerStatsItem


@dataclass(frozen=True, slots=True)
class _Span:
    """A time window and its sampling."""

    period_ms: int
    samples: int


_SPANS: Final = (_Span(10_000, 7), _Span(600_000, 7), _Span(3_600_000, 25))
"""Minute, hour, day. java: a day is 24 samples of an hour, and so on; each span needs one more."""

_MAX_QUEUE_DIGITS: Final = 9
_RATES_KEPT_S: Final = 600
_RATE_SPANS_S: Final = (10, 60, 600)

SENT_BACK, DEAD_LETTERS, SENT_TO_DEAD_LETTERS = "SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS", "SNDBCK2DLQ_TIMES"
"""Counters of `add`; the others are derived from `put` and `got`."""


_Sample = tuple[int, int, int, int]
"""A monotonic time, and the calls, messages and bytes counted until then."""

_CALLS, _MESSAGES, _BYTES = 1, 2, 3


class Series:
    """Running totals, and their values at the last samples.

    Hot code may keep a series and add to it directly; it must then count `calls`, too.
    """

    __slots__ = ("calls", "is_system", "messages", "samples", "size_bytes")

    def __init__(self, is_system: bool = False) -> None:
        self.calls = 0
        self.messages = 0
        self.size_bytes = 0
        self.is_system = is_system
        self.samples: tuple[deque[_Sample], ...] = tuple(deque() for _ in _SPANS)

    def sample(self, which: int, now_ms: int) -> None:
        """Remember the totals. While they do not change, only one sample is kept."""
        samples, calls = self.samples[which], self.calls
        if len(samples) == 1 and samples[0][_CALLS] == calls:
            return
        span = _SPANS[which]
        if len(samples) < 2:
            _, *before = samples.pop() if samples else (0, 0, 0, 0)
            samples.append((now_ms - span.period_ms, before[0], before[1], before[2]))
        samples.append((now_ms, calls, self.messages, self.size_bytes))
        if len(samples) > span.samples:
            samples.popleft()
        if samples[0][_CALLS] == calls:
            newest = samples[-1]
            samples.clear()
            samples.append(newest)


def _item(all_series: Iterable[Series], which: int, measure: int) -> BrokerStatsItem:
    total, calls, tps = 0, 0, 0.0
    for series in all_series:
        samples = series.samples[which]
        if len(samples) > 1:
            first, last = samples[0], samples[-1]
            difference = last[measure] - first[measure]
            total += difference
            calls += last[_CALLS] - first[_CALLS]
            tps += difference * 1000 / max(1, last[0] - first[0])
    return BrokerStatsItem(sum=total, tps=tps, avgpt=total / calls if calls > 0 else 0.0)


def _queue_number(text: str) -> int:
    """A queue id; -1 for a text that is none."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_QUEUE_DIGITS else -1


class _Totals(NamedTuple):
    """Totals of the whole broker at one moment."""

    at_ms: int
    puts: int
    gets: int
    found: int
    missed: int


class Statistics:
    def __init__(self, clock: Clock, *, is_system: Callable[[str], bool] = lambda _: False) -> None:
        """`is_system(topic)`: whether a topic is excluded from the users' totals."""
        self._clock = clock
        self._is_system = is_system
        self._puts: dict[tuple[str, int], Series] = {}
        self._gets: dict[tuple[str, str, int], Series] = {}
        self._topics: dict[str, dict[int, Series]] = {}
        self._groups: dict[tuple[str, str], dict[int, Series]] = {}
        self._others: dict[tuple[str, str], Series] = {}
        self._forgotten_puts = self._forgotten_bytes = self._forgotten_gets = self._forgotten_pulls = 0
        self.put_failures = 0
        self.pulls_missed = 0
        self.bodies_unread = 0
        """Bodies of which a filter could not read the fields: too large, or badly compressed."""
        """Reads that found nothing; `got` counts the others."""
        self.start_ms = clock.now_ms()
        self._sampled_ms = [elapsed_ms(clock)] * len(_SPANS)
        self._totals: deque[_Totals] = deque([self._now()], maxlen=_RATES_KEPT_S + 1)
        self._today = self._date()
        self.put_until_today = self.put_until_yesterday = 0
        self.got_until_today = self.got_until_yesterday = 0

    def __repr__(self) -> str:
        return f"<Statistics put={self.put_messages} got={self.got_messages} series={self.series_count}>"

    @property
    def series_count(self) -> int:
        return len(self._puts) + len(self._gets) + len(self._others)

    @property
    def put_messages(self) -> int:
        """Messages stored since the start."""
        return self._forgotten_puts + sum([series.messages for series in self._puts.values()])

    @property
    def put_bytes(self) -> int:
        return self._forgotten_bytes + sum([series.size_bytes for series in self._puts.values()])

    @property
    def got_messages(self) -> int:
        """Messages read since the start."""
        return self._forgotten_gets + sum([series.messages for series in self._gets.values()])

    @property
    def pulls_found(self) -> int:
        return self._forgotten_pulls + sum([series.calls for series in self._gets.values()])

    # Counting

    def put(self, topic: str, queue_id: int, messages: int, size_bytes: int) -> None:
        """Count the messages that one request stored."""
        try:
            series = self._puts[topic, queue_id]
        except KeyError:
            series = self.puts_of(topic, queue_id)
        series.calls += 1
        series.messages += messages
        series.size_bytes += size_bytes

    def got(self, group: str, topic: str, queue_id: int, messages: int, size_bytes: int) -> None:
        """Count the messages that one request read."""
        try:
            series = self._gets[group, topic, queue_id]
        except KeyError:
            series = self.gets_of(group, topic, queue_id)
        series.calls += 1
        series.messages += messages
        series.size_bytes += size_bytes

    def add_dead_letter(self, topic: str, group: str) -> None:
        """A group gave up a message of a topic; whoever made it a dead letter calls this."""
        self.add(DEAD_LETTERS, f"{topic}@{group}")
        self.add(SENT_TO_DEAD_LETTERS, f"{topic}@{group}")

    def add(self, name: str, key: str, value: int = 1, calls: int = 1) -> None:
        """Add to a rarer counter, under Apache's name."""
        series = self._others.get((name, key))
        if series is None:
            series = self._others[name, key] = Series()
        series.calls += calls
        series.messages += value

    def puts_of(self, topic: str, queue_id: int) -> Series:
        """The counters of stores into a queue; valid until `forget_topic`."""
        series = self._puts.get((topic, queue_id))
        if series is None:
            series = self._puts[topic, queue_id] = Series(self._is_system(topic))
            self._topics.setdefault(topic, {})[queue_id] = series
        return series

    def gets_of(self, group: str, topic: str, queue_id: int) -> Series:
        """The counters of a group's reads from a queue; valid until `forget_topic` or `forget_group`."""
        series = self._gets.get((group, topic, queue_id))
        if series is None:
            series = self._gets[group, topic, queue_id] = Series(self._is_system(topic))
            self._groups.setdefault((topic, group), {})[queue_id] = series
        return series

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda each: each == topic, lambda _: False)

    def forget_group(self, group: str) -> None:
        self._forget(lambda _: False, lambda each: each == group)

    def _forget(self, is_topic: Callable[[str], bool], is_group: Callable[[str], bool]) -> None:
        for topic, queue_id in [key for key in self._puts if is_topic(key[0])]:
            forgotten = self._puts.pop((topic, queue_id))
            self._forgotten_puts += forgotten.messages
            self._forgotten_bytes += forgotten.size_bytes
            self._topics.pop(topic, None)
        for group, topic, queue_id in [key for key in self._gets if is_group(key[0]) or is_topic(key[1])]:
            forgotten = self._gets.pop((group, topic, queue_id))
            self._forgotten_gets += forgotten.messages
            self._forgotten_pulls += forgotten.calls
            self._groups.pop((topic, group), None)
        for name, key in list(self._others):
            parts = key.split("@")
            # java: keys end with topic@group, or are a topic alone
            if any(map(is_topic, parts)) or is_group(parts[-1]):
                del self._others[name, key]

    # Sampling

    def sample(self) -> None:
        """Sample the counters; called every second."""
        now_ms = elapsed_ms(self._clock)
        self._totals.append(self._now())
        for which, span in enumerate(_SPANS):
            if now_ms - self._sampled_ms[which] >= span.period_ms:
                self._sampled_ms[which] = now_ms
                for table in (self._puts, self._gets, self._others):
                    for series in table.values():
                        series.sample(which, now_ms)
        if (today := self._date()) != self._today:
            self._today = today
            self.put_until_yesterday, self.put_until_today = self.put_until_today, self.put_messages
            self.got_until_yesterday, self.got_until_today = self.got_until_today, self.got_messages

    def _now(self) -> _Totals:
        return _Totals(
            elapsed_ms(self._clock), self.put_messages, self.got_messages, self.pulls_found, self.pulls_missed
        )

    def _date(self) -> date:
        # java: days change at midnight of the local time zone
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).date()

    # Queries

    def data(self, name: str, key: str) -> BrokerStatsData | None:
        """A counter over the last minute, hour and day; None if there is no such counter."""
        found = self._find(name, key)
        if found is None:
            return None
        series, measure = found
        minute, hour, day = (_item(series, which, measure) for which in range(len(_SPANS)))
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def puts(self) -> Iterable[tuple[tuple[str, int], Series]]:
        """Stores since the start, by topic and queue."""
        return self._puts.items()

    def gets(self) -> Iterable[tuple[tuple[str, str, int], Series]]:
        """Reads since the start, by group, topic and queue."""
        return self._gets.items()

    def counted(self, name: str) -> dict[str, int]:
        """The totals of `add` under a name since the start, by key."""
        return {key: series.messages for (each, key), series in self._others.items() if each == name}

    def stored(self, topic: str) -> tuple[int, int]:
        """Messages and bytes stored in a topic since the start."""
        series = self._topics.get(topic, {}).values()
        return sum(each.messages for each in series), sum(each.size_bytes for each in series)

    def read(self, group: str, topic: str) -> int:
        """Messages that a group has read from a topic since the start."""
        return sum(each.messages for each in self._groups.get((topic, group), {}).values())

    def topic_put_tps(self, topic: str) -> float:
        return _item(self._topics.get(topic, {}).values(), 0, _MESSAGES).tps

    def group_get_tps(self, group: str, topic: str) -> float:
        return _item(self._groups.get((topic, group), {}).values(), 0, _MESSAGES).tps

    def _find(self, name: str, key: str) -> tuple[list[Series], int] | None:
        if (other := self._others.get((name, key))) is not None:
            return [other], _MESSAGES
        finder = _FINDERS.get(name)
        if finder is None:
            return None
        series = finder(self, key)
        return (series, _BYTES if name.endswith("_SIZE") else _MESSAGES) if series else None

    def _of_topic(self, key: str) -> list[Series]:
        return list(self._topics.get(key, {}).values())

    def _of_queue(self, key: str) -> list[Series]:
        topic, _, queue_id = key.rpartition("@")
        series = self._puts.get((topic, _queue_number(queue_id)))
        return [] if series is None else [series]

    def _of_group(self, key: str) -> list[Series]:
        topic, _, group = key.partition("@")
        return list(self._groups.get((topic, group), {}).values())

    def _of_group_queue(self, key: str) -> list[Series]:
        topic, _, rest = key.partition("@")
        queue_id, _, group = rest.partition("@")
        series = self._gets.get((group, topic, _queue_number(queue_id)))
        return [] if series is None else [series]

    def _all_puts(self, _: str) -> list[Series]:
        return list(self._puts.values())

    def _all_gets(self, _: str) -> list[Series]:
        return list(self._gets.values())

    def _user_puts(self, _: str) -> list[Series]:
        return [series for series in self._puts.values() if not series.is_system]

    def _user_gets(self, _: str) -> list[Series]:
        return [series for series in self._gets.values() if not series.is_system]

    def runtime_figures(self) -> dict[str, str]:
        """The traffic part of the broker's runtime information, under Apache's names."""
        put, put_bytes, got = self.put_messages, self.put_bytes, self.got_messages
        figures = {
            "bootTimestamp": self.start_ms,
            "putMessageTimesTotal": put,
            "putMessageSizeTotal": put_bytes,
            "putMessageAverageSize": put_bytes / max(1, put),
            "putMessageFailedTimes": self.put_failures,
            "msgPutTotalYesterdayMorning": self.put_until_yesterday,
            "msgPutTotalTodayMorning": self.put_until_today,
            "msgPutTotalTodayNow": put,
            "msgGetTotalYesterdayMorning": self.got_until_yesterday,
            "msgGetTotalTodayMorning": self.got_until_today,
            "msgGetTotalTodayNow": got,
            "putTps": self._rates(lambda totals: totals.puts),
            "getFoundTps": self._rates(lambda totals: totals.found),
            "getMissTps": self._rates(lambda totals: totals.missed),
            "getTotalTps": self._rates(lambda totals: totals.found + totals.missed),
            "getTransferredTps": self._rates(lambda totals: totals.gets),
            # java: the tools of 4.9 read only this name
            "getTransferedTps": self._rates(lambda totals: totals.gets),
        }
        return {name: str(figure) for name, figure in figures.items()}

    def _rates(self, measure: Callable[[_Totals], int]) -> str:
        """Per second over the last 10 s, minute and ten minutes, or since the start."""
        last = self._totals[-1]
        rates = []
        for span_s in _RATE_SPANS_S:
            first = self._totals[max(0, len(self._totals) - 1 - span_s)]
            rates.append((measure(last) - measure(first)) * 1000 / max(1, last.at_ms - first.at_ms))
        return " ".join(map(str, rates))


_FINDERS: Final[dict[str, Callable[[Statistics, str], list[Series]]]] = {
    "QUEUE_PUT_NUMS": Statistics._of_queue,
    "QUEUE_PUT_SIZE": Statistics._of_queue,
    "QUEUE_GET_NUMS": Statistics._of_group_queue,
    "QUEUE_GET_SIZE": Statistics._of_group_queue,
    "TOPIC_PUT_NUMS": Statistics._of_topic,
    "TOPIC_PUT_SIZE": Statistics._of_topic,
    "GROUP_GET_NUMS": Statistics._of_group,
    "GROUP_GET_SIZE": Statistics._of_group,
    # java: their key is the cluster name, and a broker has only one
    "BROKER_PUT_NUMS": Statistics._all_puts,
    "BROKER_GET_NUMS": Statistics._all_gets,
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": Statistics._user_puts,
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": Statistics._user_gets,
}
