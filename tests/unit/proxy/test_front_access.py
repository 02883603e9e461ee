"""Who may cause which request at the gRPC front."""

import hashlib
import hmac
from typing import Any, cast

import pytest

from pyromq.clock import ManualClock, SystemClock
from pyromq.protocol.catalogue import declaration_of
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.routes import GetRoute
from pyromq.proxy.access import FrontAccess
from pyromq.proxy.clients import Clients, FrontClient
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.grpc.metadata import Metadata
from pyromq.proxy.membership import ProxyMembership
from pyromq.proxy.messages import message
from pyromq.proxy.transactions import HalfPlace, ProxyTransactions
from pyromq.remoting.access.control import AccessControl, Strictness
from pyromq.security.users import Policies, PolicyEntry, PolicyType, User, UserRules

WHEN = "20261116T040000Z"


class SignedCall:
    peer_address = "10.0.0.1:5000"

    def __init__(self, name: str, secret: str) -> None:
        signature = hmac.new(secret.encode(), WHEN.encode(), hashlib.sha1).hexdigest().upper()
        text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
        self.user = name
        self.metadata = Metadata(
            [
                (b"x-mq-date-time", WHEN.encode()),
                (b"authorization", text.encode()),
                (b"x-mq-client-id", b"client-1"),
            ]
        )


def call(name: str, secret: str) -> Call:
    return cast(Call, SignedCall(name, secret))


def access(*entries: PolicyEntry) -> FrontAccess:
    policies: Policies = {PolicyType.CUSTOM: entries}
    rules = UserRules({"alice": User("alice", "secret")}, {"alice": policies}, decides=True)
    return FrontAccess(AccessControl(rules, SystemClock()))


def allows(name: str, *actions: str, kind: str = "Topic") -> PolicyEntry:
    return PolicyEntry(kind, name, frozenset(actions), (), True)


def ask(front: FrontAccess, topic: str, group: str) -> None:
    ack = AckMessage(consumer_group=group, topic=topic, queue_id=0, extra_info="", offset=0)
    front.authorize(declaration_of(AckMessage).needs_of(ack), call("alice", "secret"))


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
    route = GetRoute(topic="orders")
    front.authorize(declaration_of(GetRoute).needs_of(route), call("alice", "secret"))


@pytest.mark.parametrize(("name", "secret"), [("alice", "wrong"), ("bob", "secret"), ("", "")])
def test_nobody_is_known_by_a_wrong_signature(name: str, secret: str) -> None:
    with pytest.raises(Rejected) as caught:
        access().identify(call(name, secret))
    assert caught.value.code == Code.UNAUTHORIZED


def test_an_old_signature_is_refused_with_its_time() -> None:
    rules = UserRules({"alice": User("alice", "secret")}, {}, decides=True)
    clock = ManualClock()  # in 1970
    front = FrontAccess(AccessControl(rules, clock, Strictness(max_call_age_ms=900_000)))
    with pytest.raises(Rejected) as caught:
        front.identify(call("alice", "secret"))
    assert str(caught.value) == f"the call of alice states the time {WHEN}; check the client's clock"


def publishing(*topics: str) -> Any:
    settings = message("Settings")()
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings


def cluster(front: FrontAccess) -> ProxyCluster:
    return ProxyCluster(cast(Any, None), 1, front)


def test_a_producer_joins_only_with_the_right_to_send() -> None:
    """Brokers ask it about transactions of these topics, and show it the messages."""
    membership = ProxyMembership(
        cluster(access(allows("orders", "Pub"), allows("seen", "Sub"))),
        cast(Any, None),
        ManualClock(),
        timeout_s=1,
        relay_timeout_s=1,
    )
    alice = call("alice", "secret")
    membership.admit(FrontClient(alice, publishing("orders")), alice)
    for topic in ("seen", "secrets"):
        with pytest.raises(Rejected, match=f"alice may not Pub on .*{topic}"):
            membership.admit(FrontClient(alice, publishing("orders", topic)), alice)


async def test_a_transaction_is_not_forgotten_for_someone_who_may_not_end_it() -> None:
    transactions = ProxyTransactions(cluster(access()), ManualClock(), 60)
    transactions.remember("orders", "tx-1", HalfPlace("127.0.0.1:1", "broker-a", 0, 0))
    request = message("EndTransactionRequest")(topic={"name": "orders"}, transaction_id="tx-1")
    with pytest.raises(Rejected) as caught:
        await transactions.end(request, call("alice", "secret"))
    assert caught.value.code == Code.UNAUTHORIZED
    assert len(transactions) == 1


def test_nobody_speaks_in_the_name_of_the_client_of_another_user() -> None:
    clients = Clients(ManualClock(), 60)
    hers, his = call("alice", "secret"), call("bob", "secret")
    joined = clients.adopt(FrontClient(hers, publishing("orders")))
    with pytest.raises(Rejected, match="client-1 belongs to another user"):
        clients.of(his)
    with pytest.raises(Rejected, match="client-1 belongs to another user"):
        clients.adopt(FrontClient(his, publishing("secrets")))
    assert clients.of(hers) is joined
    assert joined.topics == ["orders"]
