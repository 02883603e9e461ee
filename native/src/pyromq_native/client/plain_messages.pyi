from pyromq.client.values import Message

class PlainMessages:
    def __init__(self, kind: type[Message]) -> None: ...
