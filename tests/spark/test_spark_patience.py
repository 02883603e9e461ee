"""How long silent servers are waited for: as often as the options say, however many questions there are."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pyromq.errors import PyroError, RemoteProtocolError
from pyromq.protocol import json_body
from pyromq.protocol.catalogue import declaration_of, encode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import RESPONSE_FLAG, Frame
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.protocol.requests.pulling import PullMessage, PullMessageAnswer
from pyromq.protocol.requests.routes import BrokerData, GetRoute, QueueData, TopicRouteData
from pyromq.remoting.blocking_link import Link, Links
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import Fetch
from pyromq.spark.links import link_options
from pyromq.spark.options import Access, read_options, write_options
from pyromq.spark.queues import Queue, Span
from pyromq.spark.sending import SendUnit, TaskSender

RETRIES = 3
QUEUES = [Queue(topic, "broker-a", number) for topic in ("Orders", "Payments") for number in range(4)]


class CountedLinks(Links):
    taken = 0

    def take(self, address: str) -> Link:
        self.taken += 1
        return super().take(address)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses connections for as long as the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def options_for(cluster: SparkCluster, **more: str) -> dict[str, str]:
    return {
        "namesrv": ";".join(cluster.access.namesrv),
        "fetchOffset.numRetries": str(RETRIES),
        "fetchOffset.retryIntervalMs": "0",
        **more,
    }


def read_one(cluster: SparkCluster) -> None:
    options = read_options(options_for(cluster, subscribe="Orders"), streaming=False)
    list(Fetch(cluster, Span(QUEUES[0], 0, 10), options))


def send_one(cluster: SparkCluster) -> None:
    options = write_options(options_for(cluster, topic="Orders"))
    sender = TaskSender(cluster, options, 0)
    sender.send(SendUnit("Orders", b"", 1))
    sender.flush()


@pytest.mark.parametrize(
    "work",
    [
        lambda cluster: cluster.latest(QUEUES),
        lambda cluster: cluster.earliest(QUEUES),
        read_one,
        send_one,
    ],
    ids=["latest", "earliest", "read", "send"],
)
def test_silent_name_servers_are_asked_as_often_as_the_options_say(
    nobody: str, work: Callable[[SparkCluster], object]
) -> None:
    access = Access((nobody,), retries=RETRIES, retry_interval_ms=0)
    links = CountedLinks(link_options(access))
    with pytest.raises(PyroError):
        work(SparkCluster(access, links))
    assert links.taken == RETRIES + 1


def test_a_batch_begins_with_one_look_at_what_can_be_reached(nobody: str) -> None:
    access = Access((nobody,), retries=RETRIES, retry_interval_ms=0)
    links = CountedLinks(link_options(access))
    with pytest.raises(PyroError):
        SparkCluster(access, links).latest_of_reachable(QUEUES)
    assert links.taken == 1 + RETRIES + 1


@contextmanager
def answering(answer: Callable[[Frame], Frame], retries: int = 0) -> Iterator[SparkCluster]:
    """A server that tells the route of every topic, and answers all else as it is told."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        route = TopicRouteData(
            broker_datas=[BrokerData(broker_name="broker-a", broker_addrs={0: address})],
            queue_datas=[QueueData(broker_name="broker-a", perm=6, read_queue_nums=1, write_queue_nums=1)],
        )
        body = json_body.encode(route)

        def serve() -> None:
            connection, _ = listener.accept()
            reader = FrameReader(1 << 20)
            with connection:
                while data := connection.recv(1 << 16):
                    for asked in reader.feed(data):
                        is_route = asked.code == declaration_of(GetRoute).code
                        told = Frame(0, asked.opaque, RESPONSE_FLAG, body=body) if is_route else answer(asked)
                        connection.sendall(encode_frame(told))

        server = threading.Thread(target=serve)
        server.start()
        cluster = SparkCluster(Access((address,), retries=retries, retry_interval_ms=0))
        yield cluster
        cluster.close()
        server.join()


@pytest.mark.parametrize("work", [read_one, send_one], ids=["read", "send"])
def test_an_answer_to_what_nobody_asked_is_an_error(work: Callable[[SparkCluster], object]) -> None:
    with (
        answering(lambda asked: Frame(0, asked.opaque + 1000, RESPONSE_FLAG)) as cluster,
        pytest.raises(RemoteProtocolError, match="which was never requested"),
    ):
        work(cluster)


@pytest.mark.parametrize(
    "stored", [StoredMessage("Payments", b"1"), StoredMessage("Orders", b"1", queue_id=1)]
)
def test_messages_of_another_queue_are_not_read(stored: StoredMessage) -> None:
    answer = PullMessageAnswer(
        suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1, body=encode_record(stored)
    )
    with (
        answering(lambda asked: encode_answer(declaration_of(PullMessage), answer, asked)) as cluster,
        pytest.raises(RemoteProtocolError, match=f"messages of {stored.topic} queue {stored.queue_id}"),
    ):
        read_one(cluster)


def test_a_queue_that_is_mended_is_asked_again_and_nothing_counts_as_lost() -> None:
    declaration = declaration_of(PullMessage)
    mended = PullMessageAnswer(
        suggest_which_broker_id=0,
        next_begin_offset=10,
        min_offset=0,
        max_offset=10,
        body=b"".join(encode_record(StoredMessage("Orders", b"x", queue_offset=at)) for at in range(10)),
    )
    answers = 0

    def answer(asked: Frame) -> Frame:
        nonlocal answers
        answers += 1
        told = encode_answer(declaration, mended, asked)
        if answers <= 2:
            told.code, told.remark, told.body = ResponseCode.PULL_RETRY_IMMEDIATELY, "QUEUE_IS_MENDED", b""
            told.ext["nextBeginOffset"] = "0"
        return told

    with answering(answer, retries=5) as cluster:
        options = read_options(options_for(cluster, subscribe="Orders"), streaming=False)
        pieces = list(Fetch(cluster, Span(QUEUES[0], 0, 10), options))
    assert (answers, len(pieces)) == (3, 1)
