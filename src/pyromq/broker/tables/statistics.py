"""How many messages and bytes came and went, by topic, queue and group, over the last minute, hour and day.

Counting costs one look-up and a few additions; everything else is worked out when somebody asks.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple

from pyromq.clock import Clock
from pyromq.protocol.bodies.statistics import BrokerStatsData, BrokerStatsItem


@dataclass(frozen=True, slots=True)
class _Span:
    """A window over which figures are given, and how it is sampled."""

    period_ms: int
    samples: int


_SPANS: Final = (_Span(10_000, 7), _Span(600_000, 7), _Span(3_600_000, 25))
"""Minute, hour, day. java: a day is 24 samples of an hour, and so on; each span needs one more."""

_RATES_KEPT_S: Final = 600
_RATE_SPANS_S: Final = (10, 60, 600)

SENT_BACK, DEAD_LETTERS, SENT_TO_DEAD_LETTERS = "SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS", "SNDBCK2DLQ_TIMES"
GROUP_FROM_DISK, GROUP_FROM_DISK_BYTES = "GROUP_GET_FROM_DISK_NUMS", "GROUP_GET_FROM_DISK_SIZE"
BROKER_FROM_DISK, BROKER_FROM_DISK_BYTES = "BROKER_GET_FROM_DISK_NUMS", "BROKER_GET_FROM_DISK_SIZE"
TOPIC_PUT_LATENCY, GROUP_GET_LATENCY = "TOPIC_PUT_LATENCY", "GROUP_GET_LATENCY"
"""Names of counters kept with `add`; the others are derived from what `put` and `got` count."""


class _Sample(NamedTuple):
    at_ms: int
    calls: int
    messages: int
    size_bytes: int

    @property
    def totals(self) -> tuple[int, int, int]:
        return self[1:]


class Series:
    """Running totals of one thing, and what they were at the last samples."""

    __slots__ = ("calls", "is_system", "messages", "samples", "size_bytes")

    def __init__(self, is_system: bool = False) -> None:
        self.calls = 0
        self.messages = 0
        self.size_bytes = 0
        self.is_system = is_system
        self.samples: tuple[deque[_Sample], ...] = tuple(deque() for _ in _SPANS)

    def sample(self, which: int, now_ms: int) -> None:
        span, samples = _SPANS[which], self.samples[which]
        newest = _Sample(now_ms, self.calls, self.messages, self.size_bytes)
        if not samples:
            samples.append(_Sample(now_ms - span.period_ms, 0, 0, 0))
        samples.append(newest)
        if len(samples) > span.samples:
            samples.popleft()
        if samples[0].totals == newest.totals:
            # Nothing happened in the whole window: one sample says it all, and costs little memory.
            samples.clear()
            samples.append(newest)


Measure = Callable[[_Sample], int]


def _messages(sample: _Sample) -> int:
    return sample.messages


def _size_bytes(sample: _Sample) -> int:
    return sample.size_bytes


def _item(all_series: Iterable[Series], which: int, measure: Measure) -> BrokerStatsItem:
    total, calls, tps = 0, 0, 0.0
    for series in all_series:
        samples = series.samples[which]
        if len(samples) > 1:
            first, last = samples[0], samples[-1]
            difference = measure(last) - measure(first)
            total += difference
            calls += last.calls - first.calls
            tps += difference * 1000 / max(1, last.at_ms - first.at_ms)
    return BrokerStatsItem(sum=total, tps=tps, avgpt=total / calls if calls > 0 else 0.0)


class _Totals(NamedTuple):
    """Totals of the whole broker at one moment."""

    at_ms: int
    puts: int
    gets: int
    found: int
    missed: int


class Statistics:
    def __init__(self, clock: Clock, *, is_system: Callable[[str], bool] = lambda _: False) -> None:
        """`is_system` says which topics do not count as users'."""
        self._clock = clock
        self._is_system = is_system
        self._puts: dict[tuple[str, int], Series] = {}
        self._gets: dict[tuple[str, str, int], Series] = {}
        self._topics: dict[str, dict[int, Series]] = {}
        self._groups: dict[tuple[str, str], dict[int, Series]] = {}
        self._others: dict[tuple[str, str], Series] = {}
        self.put_messages = self.put_bytes = self.put_failures = 0
        self.got_messages = 0
        self.pulls_found = self.pulls_missed = 0
        """Pulls that were answered with messages, and those that found nothing."""
        self.start_ms = clock.now_ms()
        self._sampled_ms = [self.start_ms] * len(_SPANS)
        self._totals: deque[_Totals] = deque([self._now()], maxlen=_RATES_KEPT_S + 1)
        self._today = self._date()
        self.put_until_today = self.put_until_yesterday = 0
        self.got_until_today = self.got_until_yesterday = 0

    def __repr__(self) -> str:
        return f"<Statistics put={self.put_messages} got={self.got_messages} series={self.series_count}>"

    @property
    def series_count(self) -> int:
        return len(self._puts) + len(self._gets) + len(self._others)

    # Counting

    def put(self, topic: str, queue_id: int, messages: int, size_bytes: int) -> None:
        """Messages were stored by one request; callers may add up those of several."""
        series = self._puts.get((topic, queue_id)) or self._new_put(topic, queue_id)
        series.calls += 1
        series.messages += messages
        series.size_bytes += size_bytes
        self.put_messages += messages
        self.put_bytes += size_bytes

    def got(self, group: str, topic: str, queue_id: int, messages: int, size_bytes: int) -> None:
        """Messages were handed out by one request."""
        series = self._gets.get((group, topic, queue_id)) or self._new_get(group, topic, queue_id)
        series.calls += 1
        series.messages += messages
        series.size_bytes += size_bytes
        self.got_messages += messages

    def add(self, name: str, key: str, value: int = 1, calls: int = 1) -> None:
        """Count something that happens less often, under Apache's name for it."""
        series = self._others.get((name, key))
        if series is None:
            series = self._others[name, key] = Series()
        series.calls += calls
        series.messages += value

    def _new_put(self, topic: str, queue_id: int) -> Series:
        series = Series(self._is_system(topic))
        self._puts[topic, queue_id] = series
        self._topics.setdefault(topic, {})[queue_id] = series
        return series

    def _new_get(self, group: str, topic: str, queue_id: int) -> Series:
        series = Series(self._is_system(topic))
        self._gets[group, topic, queue_id] = series
        self._groups.setdefault((topic, group), {})[queue_id] = series
        return series

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda each: each == topic, lambda _: False)

    def forget_group(self, group: str) -> None:
        self._forget(lambda _: False, lambda each: each == group)

    def _forget(self, is_topic: Callable[[str], bool], is_group: Callable[[str], bool]) -> None:
        for topic, queue_id in [key for key in self._puts if is_topic(key[0])]:
            del self._puts[topic, queue_id]
            self._topics.pop(topic, None)
        for group, topic, queue_id in [key for key in self._gets if is_group(key[0]) or is_topic(key[1])]:
            del self._gets[group, topic, queue_id]
            self._groups.pop((topic, group), None)
        for name, key in list(self._others):
            parts = key.split("@")
            # java: keys end with topic@group, or are a topic alone
            if any(map(is_topic, parts)) or is_group(parts[-1]):
                del self._others[name, key]

    # Sampling

    def sample(self) -> None:
        """Look at the counters; called every second."""
        now_ms = self._clock.now_ms()
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
            self._clock.now_ms(), self.put_messages, self.got_messages, self.pulls_found, self.pulls_missed
        )

    def _date(self) -> date:
        # java: days change at midnight of the machine's own time zone
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).date()

    # Asking

    def data(self, name: str, key: str) -> BrokerStatsData | None:
        """A counter over the last minute, hour and day; None if there is no such counter."""
        found = self._find(name, key)
        if found is None:
            return None
        series, measure = found
        minute, hour, day = (_item(series, which, measure) for which in range(len(_SPANS)))
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def topic_put_tps(self, topic: str) -> float:
        return _item(self._topics.get(topic, {}).values(), 0, _messages).tps

    def group_get_tps(self, group: str, topic: str) -> float:
        return _item(self._groups.get((topic, group), {}).values(), 0, _messages).tps

    def _find(self, name: str, key: str) -> tuple[list[Series], Measure] | None:
        if (other := self._others.get((name, key))) is not None:
            return [other], _messages
        finder = _FINDERS.get(name)
        if finder is None:
            return None
        series = finder(self, key)
        return (series, _size_bytes if name.endswith("_SIZE") else _messages) if series else None

    def _of_topic(self, key: str) -> list[Series]:
        return list(self._topics.get(key, {}).values())

    def _of_queue(self, key: str) -> list[Series]:
        topic, _, queue_id = key.rpartition("@")
        series = self._puts.get((topic, int(queue_id))) if queue_id.isdecimal() else None
        return [] if series is None else [series]

    def _of_group(self, key: str) -> list[Series]:
        topic, _, group = key.partition("@")
        return list(self._groups.get((topic, group), {}).values())

    def _of_group_queue(self, key: str) -> list[Series]:
        topic, _, rest = key.partition("@")
        queue_id, _, group = rest.partition("@")
        series = self._gets.get((group, topic, int(queue_id))) if queue_id.isdecimal() else None
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
        """What the broker's runtime information tells about traffic, under Apache's names."""
        figures = {
            "bootTimestamp": self.start_ms,
            "putMessageTimesTotal": self.put_messages,
            "putMessageSizeTotal": self.put_bytes,
            "putMessageAverageSize": self.put_bytes / max(1, self.put_messages),
            "putMessageFailedTimes": self.put_failures,
            "msgPutTotalYesterdayMorning": self.put_until_yesterday,
            "msgPutTotalTodayMorning": self.put_until_today,
            "msgPutTotalTodayNow": self.put_messages,
            "msgGetTotalYesterdayMorning": self.got_until_yesterday,
            "msgGetTotalTodayMorning": self.got_until_today,
            "msgGetTotalTodayNow": self.got_messages,
            "putTps": self._rates(lambda totals: totals.puts),
            "getFoundTps": self._rates(lambda totals: totals.found),
            "getMissTps": self._rates(lambda totals: totals.missed),
            "getTotalTps": self._rates(lambda totals: totals.found + totals.missed),
            "getTransferredTps": self._rates(lambda totals: totals.gets),
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
    # java: their key is the name of the cluster, of which a broker knows only one
    "BROKER_PUT_NUMS": Statistics._all_puts,
    "BROKER_GET_NUMS": Statistics._all_gets,
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": Statistics._user_puts,
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": Statistics._user_gets,
}
