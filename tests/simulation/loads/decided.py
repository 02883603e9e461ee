"""Messages that become visible later: each body says what must become of it, whatever happens to brokers.

Bodies begin with `timed`, `commit` or `rollback`; `tests/campaign/checker.py` has the rule for each.
"""

from collections import Counter
from collections.abc import Iterator

from tests.campaign.checker import check
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq import SendResult


class DecidedLoad(RunningLoad):
    """`decided` messages are in their topic in the end, at every broker, and the group gets them."""

    def decided(self, body: str, result: SendResult | None) -> None:
        """A send has ended; its message counts if it was acknowledged."""
        if result is not None and result.is_ok:
            self.history.decided.append(body)
            self.acknowledged("producer")
        else:
            self.recorder.totals.unacknowledged += 1

    @property
    def is_delivered(self) -> bool:
        return all(self.history.due <= got for got in self._got.values())

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        self.history.copies = {
            each.broker: Counter(message.body.decode() for message in each.messages(self.topic))
            for each in contents
        }
        self.history.sent = []
        deliveries, self.history.delivered = self.history.delivered, []
        self.history.groups = {}
        for invariant, sentences in check(self.history).violations.items():
            for sentence in sentences:
                yield f"{invariant} ({self.load.kind})", sentence
        got = {each.body for each in deliveries}
        for body in sorted(self.history.due - got):
            yield f"not delivered ({self.load.kind})", f"{body!r} never came to its group"
        for body in sorted(body for body in got if body.startswith("rollback")):
            yield f"rolled back, but delivered ({self.load.kind})", repr(body)
