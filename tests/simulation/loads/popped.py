"""Plain sends, and a group whose members pop: brokers divide the messages, and hide them until acknowledged.

A message that a member did not acknowledge comes again, from the group's retry topic: so it is known by its
body, and not by its place.
"""

from collections.abc import Iterator

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

_GROUP = "poppers"


class PoppedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, commits=False)
        self.sender("producer", self.produce("p"))
        for number in (1, 2):
            self.member(f"member {number}", lambda: self.consume(_GROUP, mode="pop", invisible_s=10.0))

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        got = {each.body for each in self.history.delivered}
        sent = [each for each in self.history.sent if each.offset is not None]
        self.history.delivered, self.history.groups = [], {}
        yield from super().judge(contents)
        for each in sent:
            if each.body not in got:
                yield "not delivered (popped)", f"{each.body!r} at {(each.queue, each.offset)}"
