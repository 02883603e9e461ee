"""Plain sends of two producers to all queues, and a group of two members that gets everything."""

from tests.simulation.loads.load import RunningLoad

_GROUP = "plain-readers"


class PlainLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        for number in (1, 2):
            self.sender(f"producer {number}", self.produce(f"p{number}"))
            self.member(f"member {number}", lambda: self.consume(_GROUP))
