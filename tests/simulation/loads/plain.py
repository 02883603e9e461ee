"""Plain sends of two producers to all queues, and a group of two members that gets everything."""

from tests.simulation.loads.load import RunningLoad

_GROUP = "plain-readers"


class PlainLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        for number in (1, 2):
            self.client(f"producer {number}", self.produce(f"p{number}"))
            self.client(f"member {number}", self.consume(_GROUP))
