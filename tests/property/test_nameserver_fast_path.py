"""The fast path of route queries answers what the general path answers, whatever is sent."""

import asyncio
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.fake_transport import FakeTransport
from tests.support.scratch import IN_MEMORY

from pyromq.clock import ManualClock
from pyromq.compiled import WHY, twin
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import Announcement, Inventory
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.body import DataVersion
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.requests.topics import TopicQueueMappingInfo
from pyromq.remoting.admission import Grants
from pyromq.remoting.connection import Connection

pytestmark = pytest.mark.skipif(twin("nameserver.fast_path") is None, reason=f"no fast path: {WHY}")

GET_ROUTE = 105
FORMS = [HeaderForm.JSON, HeaderForm.BINARY]
TOPICS = ["Orders", "Orders", "Bills", "Orders-2", "Unknown", "Größe", "a b", 'quo"te', "tab\t", ""]

fields = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(TOPICS),
        "acceptStandardJsonOnly": st.sampled_from(["true", "false", "TRUE", "1", ""]),
        "watch": st.sampled_from(["true", "false"]),
        "__ZONE_NAME": st.sampled_from(["z1", "z9", " "]),
        "__ZONE_MODE": st.sampled_from(["true", "false"]),
        "lo": st.just("false"),
        "ns": st.just("space"),
        "other": st.text(max_size=3),
    },
).flatmap(lambda some: st.sampled_from([some, {"topic": "Orders"}, {"topic": "Orders"} | some]))

frames = st.builds(
    Frame,
    st.sampled_from([GET_ROUTE, GET_ROUTE, GET_ROUTE, GET_ROUTE, 106, 318]),
    opaque=st.sampled_from([0, 7, -1, 2**31 - 1, -(2**31)]),
    flag=st.sampled_from([0, 0, 0, 0, 1, 2]),
    version=st.sampled_from([0, 396, 399, 475]),
    remark=st.sampled_from([None, None, None, "why"]),
    ext=fields,
    body=st.sampled_from([b"", b"", b"", b"more"]),
    form=st.sampled_from(FORMS),
)


def json_frame(document: object) -> bytes:
    header = json.dumps(document, ensure_ascii=False).encode()
    return struct.pack(">iI", 4 + len(header), len(header)) + header


odd_values = st.one_of(st.none(), st.integers(), st.booleans(), st.sampled_from(TOPICS), st.text(max_size=4))
odd_headers = st.dictionaries(
    st.sampled_from(["code", "flag", "opaque", "version", "language", "remark", "extFields", "surprise"]),
    odd_values,
).map(lambda odd: {"code": GET_ROUTE, "extFields": {"topic": "Orders"}, "version": 399} | odd)

streams = st.lists(st.one_of(frames.map(encode_frame), odd_headers.map(json_frame)), min_size=1, max_size=10)


def named(*topics: str) -> dict[str, QueueShape]:
    return dict.fromkeys(topics, QueueShape(4, 4, 6, 0))


class Ways:
    """A name server with some brokers, asked on both paths."""

    def __init__(self, directory: str, **options: Any) -> None:
        self.server = NameServer(
            NameServerSettings(kv_config_path=Path(directory) / "kv.json", listen_port=0, **options),
            clock=ManualClock(),
        )
        self.table = self.server._table
        self._register("a", 0, "z1", named("Orders", "Orders-2"))
        self._register("b", 0, None, named("Orders", "Größe", "a b", 'quo"te', "tab\t"))
        self._register("c", 1, "z2", {"Bills": QueueShape(2, 2, 4, 0)})
        self.group = self.server._server._group
        self.taken = 0

    def _register(self, name: str, id_: int, zone: str | None, shapes: dict[str, QueueShape]) -> None:
        who = Announcement("c", f"{name}:10911", name, id_, zone=zone, acting_master=True)
        self.table.register(who, lambda: Inventory(DataVersion(), shapes), now_ms=0)

    def answers(
        self, data: bytes, *, fast: bool, cuts: list[int] | None = None, grants: Grants | None = None
    ) -> bytes:
        path: Any = self.server_path if fast else None

        def counting(data: bytes, connection: Connection) -> tuple[int, int]:
            taken, position = path(data, connection)
            self.taken += taken
            return taken, position

        self.group.fast_path = counting if fast else None
        connection = Connection(self.group, peer_address="10.0.0.1:4000")
        connection.grants = grants
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        start = 0
        for cut in [*sorted(cuts or []), len(data)]:
            if connection.is_open:
                connection.data_received(data[start:cut])
            start = cut
        self.server._consequences.watches.forget(connection)
        is_open = connection.is_open
        connection.close()
        return b"".join(transport.writes) + (b"" if is_open else b"closed")

    @property
    def server_path(self) -> Any:
        if not hasattr(self, "_path"):
            self._path = self.group.fast_path
        return self._path

    def agreed(self, data: bytes, **more: Any) -> bytes:
        _ = self.server_path
        fast = self.answers(data, fast=True, **more)
        assert fast == self.answers(data, fast=False, **more)
        return fast


def with_ways(try_it: Callable[[Ways], object], **options: Any) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
            ways = Ways(directory, **options)
            try_it(ways)
            await asyncio.sleep(0)

    asyncio.run(run())


def query(topic: str, form: int = HeaderForm.JSON, ext: dict[str, str] | None = None) -> bytes:
    return encode_frame(Frame(GET_ROUTE, opaque=3, ext={"topic": topic, **(ext or {})}, form=form))


@settings(max_examples=examples(40))
@given(
    streams, st.data(), st.sampled_from([{}, {"support_acting_master": True}, {"order_message_enable": True}])
)
@example([query("Orders") * 3], None, {})
def test_both_paths_give_the_same_answers(stream: list[bytes], data: Any, options: dict[str, Any]) -> None:
    sent = b"".join(stream)
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=3)) if data is not None else []
    with_ways(lambda ways: ways.agreed(sent, cuts=cuts), **options)


@settings(max_examples=examples(40))
@given(st.lists(frames.map(encode_frame), min_size=1, max_size=4).map(b"".join), st.data())
def test_both_paths_agree_about_damage(sent: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sent)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with_ways(lambda ways: ways.agreed(bytes(damaged)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ext", [{}, {"acceptStandardJsonOnly": "true"}])
def test_plain_queries_take_the_fast_path(form: int, ext: dict[str, str]) -> None:
    def try_it(ways: Ways) -> None:
        ways.agreed(query("Orders", form, ext) * 5 + query("Bills", form, ext))
        assert ways.taken == 6

    with_ways(try_it)


@pytest.mark.parametrize(
    "ext", [{"watch": "true"}, {"__ZONE_MODE": "true", "__ZONE_NAME": "z1"}, {"AccessKey": "me"}]
)
def test_an_unusual_query_takes_the_general_path(ext: dict[str, str]) -> None:
    def try_it(ways: Ways) -> None:
        ways.agreed(query("Orders", ext=ext))
        assert ways.taken == 0

    with_ways(try_it)


@pytest.mark.parametrize("option", ["support_acting_master", "order_message_enable"])
def test_no_query_takes_the_fast_path_where_answers_are_not_plain(option: str) -> None:
    def try_it(ways: Ways) -> None:
        ways.agreed(query("Orders"))
        assert ways.taken == 0

    with_ways(try_it, **{option: True})


def test_no_query_takes_the_fast_path_once_there_is_a_static_topic() -> None:
    def try_it(ways: Ways) -> None:
        who = Announcement("c", "d:10911", "d", 0)
        mapping = TopicQueueMappingInfo(topic="Orders", bname="d", total_queues=1)
        inventory = Inventory(DataVersion(), named("Orders"), mappings={"Orders": mapping})
        ways.table.register(who, lambda: inventory, now_ms=0)
        assert b"topicQueueMappingByBroker" in ways.agreed(query("Orders"))
        assert ways.taken == 0

    with_ways(try_it)


def test_a_connection_under_access_control_takes_the_general_path() -> None:
    def try_it(ways: Ways) -> None:
        ways.agreed(query("Orders"), grants=Grants(b""))
        assert ways.taken == 0

    with_ways(try_it)


def test_a_name_server_that_is_not_ready_takes_the_general_path() -> None:
    def try_it(ways: Ways) -> None:
        assert b"not ready" in ways.agreed(query("Orders"))
        assert ways.taken == 0

    with_ways(try_it, need_wait_for_service=True, wait_seconds_for_service=45)


def test_the_fast_path_sees_every_change_of_a_route() -> None:
    def try_it(ways: Ways) -> None:
        before = ways.agreed(query("Orders"))
        ways._register("d", 0, None, named("Orders"))
        after = ways.agreed(query("Orders"))
        assert b'"brokerName":"d"' in after
        assert after != before
        ways.table.delete_topic("Orders")
        assert b"No topic route info" in ways.agreed(query("Orders"))

    with_ways(try_it)


def test_queries_on_the_fast_path_are_counted() -> None:
    def try_it(ways: Ways) -> None:
        ways.agreed(query("Orders") * 4)
        requests: Any = ways.server._metering._requests
        assert requests.count(("105", "GetRoute", "SUCCESS")) == 8
        assert ways.server._metering._seconds.count(("GetRoute",)) == 8

    with_ways(try_it)
