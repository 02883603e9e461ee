"""Apache's Java client of 4.9 and filters: at Apache's own filter server next to our broker, and at ours."""

from __future__ import annotations

import contextlib

import pytest
from tests.support.apache import ApacheFilterServer, ClientOf, wait_until
from tests.support.apache_releases import APACHE_4
from tests.support.filter_server import confined
from tests.support.java_at_ours import Peers, our_cluster

from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.blocking_link import Link, LinkOptions

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), confined]

JAVA_FILTER = """
package com.example;

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

public class Large implements MessageFilter {
    @Override
    public boolean match(MessageExt message, FilterContext context) {
        return Integer.parseInt(new String(message.getBody())) > 40;
    }
}
"""
PYTHON_FILTER = """
def match(message, context):
    return int(message.body) > 40 and context.group.startswith("G-")
"""
SETTINGS = {"filterServerNums": "1", "clientUploadFilterClassEnable": "true"}


def filter_servers(peers: Peers, topic: str) -> list[str]:
    with contextlib.closing(Link(peers.name_server, LinkOptions())) as link:
        route = link.call(GetRoute(topic=topic)).body
    assert route is not None
    return [each for servers in route.filter_server_table.values() for each in servers]


def check(peers: Peers, name: str, source: str) -> None:
    """A member with this filter gets what matches, and commits the offset of the rest, too."""
    topic = peers.new_topic("Filtered", queues=1)
    wait_until(lambda: bool(filter_servers(peers, topic)), "a filter server in the route")
    peers.send(*({"topic": topic, "body": b"%d" % number} for number in range(50)))
    group = f"G-{topic}"
    with peers.client.member(peers.name_server, group, topic, filterName=name, filterSource=source) as member:
        assert sorted(int(row["body"]) for row in member.received(9)) == list(range(41, 50))
        peers.send({"topic": topic, "body": b"7"}, {"topic": topic, "body": b"70"})
        assert [row["body"] for row in member.received(10)[9:]] == [b"70"]
        peers.client.wait_committed(peers.name_server, group, topic, 1)


def test_apaches_filter_server_next_to_our_broker_filters_for_a_java_client(client_of: ClientOf) -> None:
    with (
        our_cluster(client_of(APACHE_4, "JSON"), "JSON") as peers,
        ApacheFilterServer(peers.name_server, peers.broker.address),
    ):
        check(peers, "com.example.Large", JAVA_FILTER)


@pytest.mark.parametrize("form", ["JSON", "ROCKETMQ"])
def test_our_filter_server_runs_a_python_filter_for_a_java_client(client_of: ClientOf, form: str) -> None:
    with our_cluster(client_of(APACHE_4, form), form, SETTINGS) as peers:
        check(peers, "large", PYTHON_FILTER)
