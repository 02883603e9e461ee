"""Let the broker filter by fields of JSON bodies: `python examples/body_filter.py [name server]`.

The broker must allow it: `enablePropertyFilter=true` and `filterSupportBody=true`. It sends nothing else.

Prints `120 from Lyon` and `700 from Lyon`.
"""

import json
import sys

from pyromq import Message, Producer, PullConsumer, Sql

ORDERS = (("Lyon", 700), ("Rome", 900), ("Lyon", 50), ("Lyon", 120))


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with Producer("tills", namesrv=namesrv) as producer:
        for city, amount in ORDERS:
            body = {"amount": amount, "customer": {"city": city}}
            producer.send(Message("JsonOrders", json.dumps(body).encode()))
    with PullConsumer("large-orders", namesrv=namesrv, start_from="first") as consumer:
        consumer.subscribe("JsonOrders", Sql("body.amount > 100 AND body.customer.city = 'Lyon'"))
        for _ in range(2):
            [message] = consumer.poll(max_messages=1, timeout_s=30)
            order = message.decode()
            print(f"{order['amount']} from {order['customer']['city']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
