"""Counts of a consumer for each topic, and the rates of the last minute for operators."""

from collections import deque
from dataclasses import dataclass, fields

from pyromq.protocol.requests.inspection import ConsumeStatus

SAMPLE_S = 10.0
_MINUTE_SAMPLES = 6
_HOUR_SAMPLES = 360


@dataclass(slots=True)
class Counts:
    """Totals since the start; times in milliseconds."""

    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    handled: int = 0
    handle_ms: float = 0.0
    succeeded: int = 0
    failed: int = 0

    def copy(self) -> "Counts":
        return Counts(**{field.name: getattr(self, field.name) for field in fields(self)})


class TopicStats:
    def __init__(self) -> None:
        self.total = Counts()
        self._samples: deque[Counts] = deque([Counts()], maxlen=_HOUR_SAMPLES + 1)

    def __repr__(self) -> str:
        return f"<TopicStats {self.total}>"

    def sample(self) -> None:
        """Called every ten seconds."""
        self._samples.append(self.total.copy())

    def status(self) -> ConsumeStatus:
        now, hour_ago = self.total, self._samples[0]
        minute_ago = self._samples[-min(len(self._samples), _MINUTE_SAMPLES)]
        seconds = max(1, min(len(self._samples), _MINUTE_SAMPLES)) * SAMPLE_S
        # java: if nothing was handled for a minute, the average of the last hour is shown
        handled_since = minute_ago if now.handled > minute_ago.handled else hour_ago
        return ConsumeStatus(
            pull_rt=_mean(now.pull_ms - minute_ago.pull_ms, now.pulls - minute_ago.pulls),
            pull_tps=(now.pulled - minute_ago.pulled) / seconds,
            consume_rt=_mean(now.handle_ms - handled_since.handle_ms, now.handled - handled_since.handled),
            consume_ok_tps=(now.succeeded - minute_ago.succeeded) / seconds,
            consume_failed_tps=(now.failed - minute_ago.failed) / seconds,
            consume_failed_msgs=now.failed - hour_ago.failed,
        )


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


class ConsumerStats:
    def __init__(self) -> None:
        self._topics: dict[str, TopicStats] = {}

    def __repr__(self) -> str:
        return f"<ConsumerStats {self._topics}>"

    def of(self, topic: str) -> TopicStats:
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = TopicStats()
        return stats

    def sample(self) -> None:
        for stats in self._topics.values():
            stats.sample()

    def totals(self) -> Counts:
        summed = Counts()
        # A copy: the application may call this on another thread.
        for stats in list(self._topics.values()):
            for field in fields(Counts):
                value = getattr(summed, field.name) + getattr(stats.total, field.name)
                setattr(summed, field.name, value)
        return summed
