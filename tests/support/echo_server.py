"""The echo service as a program of its own: prints its port, serves until its standard input ends.

Its argument is the name of the loop it runs on.
"""

import asyncio
import sys

from tests.support.echo_service import UNSERVED, EchoService
from tests.support.loop import EVERY_LOOP

from pyromq.protocol.catalogue import BROKER, CATALOGUE, Answer, Int32, Request, declaration_of, request
from pyromq.protocol.needs import GET, cluster
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server


class CountsAnswer(Answer):
    connections: Int32
    pending: Int32


@request(31_100, to=BROKER, needs=(cluster(GET),))
class Counts(Request[CountsAnswer]):
    """How many connections there are."""


del CATALOGUE[declaration_of(Counts).code]


class CountsService:
    def __init__(self) -> None:
        self.server: Server | None = None

    @handles(Counts)
    def counts(self, request: Counts, caller: Caller) -> CountsAnswer:
        assert self.server is not None
        seen = self.server.statistics()
        return CountsAnswer(connections=seen.connections, pending=seen.pending)


async def serve() -> None:
    counts = CountsService()
    server = counts.server = Server(Routes(EchoService(), counts, serving=BROKER, unserved=UNSERVED))
    await server.start("127.0.0.1", 0)
    sys.stdout.write(f"{server.address[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=EVERY_LOOP[sys.argv[1]]) as runner:
        runner.run(serve())
