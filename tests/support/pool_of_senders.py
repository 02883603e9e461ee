"""Processes of a pool send, and so does their parent: `-m tests.support.pool_of_senders NAMESRV TOPIC HOW`"""

import multiprocessing
import sys

from pyromq import Message, Producer


def send(task: tuple[str, str, int]) -> None:
    """Done in a process of the pool."""
    namesrv, topic, number = task
    with Producer("orders", namesrv=namesrv) as producer:
        producer.send(Message(topic, b"%d" % number))


def main(namesrv: str, topic: str, method: str) -> None:
    with Producer("orders", namesrv=namesrv) as producer:
        producer.send(Message(topic, b"parent"))
        with multiprocessing.get_context(method).Pool(2) as pool:
            pool.map(send, [(namesrv, topic, number) for number in range(8)], chunksize=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
