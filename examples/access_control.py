"""A cluster that serves only its users: `python examples/access_control.py`.

It runs a broker of its own, with a user `shop`, whose password a producer needs. Prints:

    with the right password: stored
    with a wrong password: refused
    without a user: refused
"""

import json

from pyromq import Credentials, Message, Producer, PyroError
from pyromq.testing import cluster

SHOP = Credentials("shop", "a long password")
SERVERS = Credentials("servers", "another long password")


def outcome(namesrv: str, credentials: Credentials | None) -> str:
    with Producer("tills", namesrv=namesrv, credentials=credentials) as producer:
        try:
            producer.send(Message("Orders", b"9.99"))
        except PyroError:
            return "refused"
        return "stored"


def main() -> None:
    with cluster(
        deny_by_default=True,
        first_user=json.dumps({"username": SHOP.access_key, "password": SHOP.secret_key}),
        inner_credentials=json.dumps({"accessKey": SERVERS.access_key, "secretKey": SERVERS.secret_key}),
    ) as running:
        wrong = Credentials(SHOP.access_key, "a guess")
        print(f"with the right password: {outcome(running.namesrv, SHOP)}")
        print(f"with a wrong password: {outcome(running.namesrv, wrong)}")
        print(f"without a user: {outcome(running.namesrv, None)}")


if __name__ == "__main__":
    main()
