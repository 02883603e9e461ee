"""Two tenants with topics and groups of the same names: `python examples/namespaces.py [name server]`.

Each reads only its own. Prints:

    red: an order of red
    blue: an order of blue
"""

import sys

from pyromq import Message, Producer, SimpleConsumer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    tenants = ("red", "blue")
    for tenant in tenants:
        with Producer("shop", namesrv=namesrv, namespace=tenant) as producer:
            producer.send(Message("TenantOrders", f"an order of {tenant}".encode()))
    for tenant in tenants:
        with SimpleConsumer("billing", namesrv=namesrv, namespace=tenant, start_from="first") as consumer:
            consumer.subscribe("TenantOrders")
            for message in consumer.receive(wait_s=30):
                print(f"{tenant}: {message.body.decode()}")
                consumer.ack(message)


if __name__ == "__main__":
    main(*sys.argv[1:])
