"""Who may cause which request at the gRPC front."""

import hashlib
import hmac
from typing import cast

import pytest

from pyromq.clock import SystemClock
from pyromq.protocol.catalogue import declaration_of
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.routes import GetRoute
from pyromq.proxy.access import FrontAccess
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.grpc.metadata import Metadata
from pyromq.remoting.access.control import AccessControl
from pyromq.security.users import Entry, Policies, PolicyType, User, UserRules

WHEN = "20261116T040000Z"


class SignedCall:
    peer_address = "10.0.0.1:5000"

    def __init__(self, name: str, secret: str) -> None:
        signature = hmac.new(secret.encode(), WHEN.encode(), hashlib.sha1).hexdigest().upper()
        text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
        self.metadata = Metadata([(b"x-mq-date-time", WHEN.encode()), (b"authorization", text.encode())])


def call(name: str, secret: str) -> Call:
    return cast(Call, SignedCall(name, secret))


def access(*entries: Entry) -> FrontAccess:
    policies: Policies = {PolicyType.CUSTOM: entries}
    rules = UserRules({"alice": User("alice", "secret")}, {"alice": policies}, decides=True)
    return FrontAccess(AccessControl(rules, SystemClock()))


def allows(name: str, *actions: str, kind: str = "Topic") -> Entry:
    return Entry(kind, name, frozenset(actions), (), True)


def ask(front: FrontAccess, topic: str, group: str) -> None:
    ack = AckMessage(consumer_group=group, topic=topic, queue_id=0, extra_info="", offset=0)
    front.authorize(declaration_of(AckMessage), ack, call("alice", "secret"))


def test_a_user_may_do_what_its_policy_allows() -> None:
    front = access(allows("orders", "Sub"), allows("payers", "Sub", kind="Group"))
    ask(front, "orders", "payers")
    for topic, group in (("orders", "others"), ("others", "payers")):
        with pytest.raises(Rejected) as caught:
            ask(front, topic, group)
        assert caught.value.code == Code.UNAUTHORIZED
        assert "alice may not Sub on" in str(caught.value)


def test_a_route_takes_any_right_to_the_topic() -> None:
    front = access(allows("orders", "Pub"))
    front.authorize(declaration_of(GetRoute), GetRoute(topic="orders"), call("alice", "secret"))


@pytest.mark.parametrize(("name", "secret"), [("alice", "wrong"), ("bob", "secret"), ("", "")])
def test_nobody_is_known_by_a_wrong_signature(name: str, secret: str) -> None:
    with pytest.raises(Rejected) as caught:
        access().identify(call(name, secret))
    assert caught.value.code == Code.UNAUTHORIZED
