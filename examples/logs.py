"""Log to a topic, and read the errors from it: `python examples/logs.py [name server]`.

Prints the two errors, with the customer that each is about.
"""

import json
import logging
import sys

from pyromq import Reader
from pyromq.logging import TopicHandler


def main(namesrv: str = "127.0.0.1:9876") -> None:
    log = logging.getLogger("shop.orders")
    log.setLevel(logging.INFO)
    handler = TopicHandler("ShopLogs", namesrv, service="shop")
    log.addHandler(handler)
    log.info("open")
    for number in (1, 2):
        log.error("order %d failed", number, extra={"customer": f"c-{number}"})
    handler.flush()

    left = 2
    with Reader("ShopLogs", "ERROR", namesrv, start_from="first") as reader:
        for message in reader:
            record = json.loads(message.body)
            print(f"{record['message']}, {record['extra']['customer']}")
            left -= 1
            if left == 0:
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
