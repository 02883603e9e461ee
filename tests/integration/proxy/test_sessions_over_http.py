"""Sessions over HTTP at the front: append, read, tail, reconnect, fences, tokens and limits."""

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ALICE, ROOT
from tests.support.front import SharedFront, front, front_in_thread, user
from tests.support.guarded_servers import BOB
from tests.support.http2_user import Http2User
from tests.support.http_user import HttpUser
from tests.support.replicas import until

from pyromq.http2 import frames, hpack
from pyromq.protocol.requests.access import PolicyEntryInfo
from pyromq.remoting.access.users_file import UsersFile
from pyromq.security.users import PolicyType, User, UserRules, UserType, entry_of

ON: dict[str, Any] = {"light_queues": True, "multi_dispatch": True}
PAGE = "http://pages.example"
SETTINGS: dict[str, Any] = {
    "http_enable": True,
    "http_allowed_origins": PAGE,
    "http_ping_seconds": 1,
    "min_invisible_ms": 1000,
}


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    with front_in_thread(settings=SETTINGS, **ON) as started:
        yield started


@pytest.fixture
async def web(running: SharedFront) -> HttpUser:
    await running.create_topic("Chat", "LITE", queues=2)
    return HttpUser(running.target)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_")[:60]
    return f"/v1/sessions/Chat/{name}"


async def _append(web: HttpUser, session: str, *texts: str, **headers: str) -> list[int]:
    answers = [await web.ask("POST", f"{session}/messages", text.encode(), **headers) for text in texts]
    assert [each.status for each in answers] == [201] * len(texts), answers
    return [each.json["offset"] for each in answers]


# Append and read


async def test_what_is_appended_is_read_in_order(web: HttpUser, session: str) -> None:
    assert await _append(web, session, "one", "zwölf\r\n", "three") == [0, 1, 2]
    read = (await web.ask("GET", f"{session}/messages")).json
    assert [each["text"] for each in read["messages"]] == ["one", "zwölf\r\n", "three"]
    assert [each["offset"] for each in read["messages"]] == [0, 1, 2]
    assert read["next"] == 3
    read = (await web.ask("GET", f"{session}/messages?after=0&limit=1")).json
    assert ([each["text"] for each in read["messages"]], read["next"]) == (["zwölf\r\n"], 2)
    assert (await web.ask("GET", f"{session}/messages?from=end")).json == {"messages": [], "next": 3}
    looked = (await web.ask("GET", session)).json
    assert (looked["first"], looked["next"], looked["epoch"], looked["hasEnded"]) == (0, 3, 0, False)
    assert looked["expiresAfterMinutes"] == -1


async def test_bytes_that_are_no_text_are_read_as_base64(web: HttpUser, session: str) -> None:
    assert (await web.ask("POST", f"{session}/messages", b"\xff\x00")).status == 201
    (message,) = (await web.ask("GET", f"{session}/messages")).json["messages"]
    assert base64.b64decode(message["base64"]) == b"\xff\x00"
    assert "text" not in message


async def test_a_read_waits_for_the_next_message(web: HttpUser, session: str) -> None:
    reading = asyncio.create_task(web.ask("GET", f"{session}/messages?waitSeconds=20"))
    await _append(web, session, "at last")
    assert [each["text"] for each in (await reading).json["messages"]] == ["at last"]


async def test_a_place_that_the_session_lacks_is_gone(web: HttpUser, session: str) -> None:
    await _append(web, session, "one")
    answer = await web.ask("GET", f"{session}/messages?from=9")
    assert answer.status == 410
    assert answer.json["error"]["next"] == 1


async def test_a_deleted_session_begins_again(web: HttpUser, session: str) -> None:
    await _append(web, session, "one", "two")
    assert (await web.ask("DELETE", session)).status == 204
    assert (await web.ask("DELETE", session)).status == 404
    assert await _append(web, session, "three") == [0]
    async with web.events(f"{session}/events", last_event_id="1") as events:
        moved, message = await events.take(2)
    assert (moved.kind, moved.json) == ("moved", {"asked": 2, "next": 0})
    assert message.json["text"] == "three"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/nothing", {}, 404),
        ("PUT", "/v1/sessions/Chat/a", {}, 405),
        ("GET", "/v1/sessions/Missing/a", {}, 404),
        ("GET", "/v1/sessions/ChatPlain/a", {}, 400),
        ("GET", "/v1/sessions/Chat/a$b/messages", {}, 400),
        ("GET", "/v1/sessions/Chat/a%2Fb/messages", {}, 400),
        ("POST", "/v1/sessions/Chat/a/messages", {}, 413),
        ("GET", "/v1/sessions/Chat/a/messages?from=-1", {}, 400),
        ("GET", "/v1/sessions/Chat/a/events?format=xml", {}, 400),
        ("GET", "/v1/sessions/Chat/a/events", {"last-event-id": "x"}, 400),
        ("GET", "/v1/sessions/Chat/a/socket", {}, 426),
        ("POST", "/v1/sessions/Chat/a/messages", {"session-epoch": "-1"}, 400),
        ("POST", "/v1/sessions/Chat/a/messages", {"session-kind": "claim"}, 400),
        ("POST", "/v1/tokens", {}, 400),
    ],
)
async def test_a_request_that_cannot_be_served_says_why(
    running: SharedFront, web: HttpUser, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    await running.create_topic("ChatPlain")
    answer = await web.ask(method, path, **headers)
    assert answer.status == status
    assert answer.json["error"]["message"]


# Server-sent events


async def test_a_reader_that_comes_back_goes_on_where_it_was(web: HttpUser, session: str) -> None:
    await _append(web, session, *map(str, range(5)))
    seen: list[Any] = []
    for count in (2, 1, 3):
        last = {"last_event_id": str(seen[-1].id)} if seen else {}
        async with web.events(f"{session}/events", **last) as events:
            assert events.answer.headers["content-type"].startswith("text/event-stream")
            seen += await events.take(count - (count == 3))
            if count == 3:
                await _append(web, session, "5")
                seen += await events.take(1)
    assert [(each.id, each.json["text"]) for each in seen] == [(n, str(n)) for n in range(6)]


async def test_events_as_text_have_the_lines_of_the_body(web: HttpUser, session: str) -> None:
    await _append(web, session, "a\nb", "c")
    async with web.events(f"{session}/events?format=text") as events:
        assert [each.data for each in await events.take(2)] == ["a\nb", "c"]


async def test_a_session_that_has_ended_lets_its_readers_go(web: HttpUser, session: str) -> None:
    await _append(web, session, "one")
    await _append(web, session, "", session_kind="end")
    async with web.events(f"{session}/events") as events:
        found = [event async for event in events]
    assert [(each.id, each.kind) for each in found] == [(0, None), (1, "end")]
    assert (await web.ask("GET", f"{session}/events", last_event_id="1")).status == 204
    assert (await web.ask("GET", session)).json["hasEnded"]


async def test_readers_and_writers_get_over_a_restart_of_the_broker() -> None:
    async with front(settings=SETTINGS, **ON) as started:
        await started.create_topic("Chat", "LITE", queues=2)
        web, path = HttpUser(started.target), "/v1/sessions/Chat/restarted"
        count, seen = 30, list[int]()

        async def read() -> None:
            async with web.events(f"{path}/events") as events:
                async for event in events:
                    assert event.id is not None
                    assert event.json["text"] == str(event.id)
                    seen.append(event.id)
                    if len(seen) == count:
                        return

        async def write() -> None:
            number = 0
            while number < count:
                answer = await web.ask(
                    "POST", f"{path}/messages", str(number).encode(), expected_offset=str(number)
                )
                # 412: an earlier try has stored it, although its answer was lost.
                if answer.status in (201, 412):
                    number += 1
                else:
                    assert answer.status >= 500, answer
                    await asyncio.sleep(0.05)

        reading = asyncio.create_task(read())
        writing = asyncio.create_task(write())
        await until(lambda: len(seen) > 5)
        await started.cluster.kill_broker()
        await started.cluster.start_broker()
        async with asyncio.timeout(90):
            await writing
            await reading
        assert seen == list(range(count))


# Who may append


async def test_only_the_last_who_claimed_a_session_may_append(web: HttpUser, session: str) -> None:
    await _append(web, session, "free")
    first = (await web.ask("POST", f"{session}/claim")).json
    assert (first["epoch"], first["offset"]) == (1, 1)
    await _append(web, session, "by the first", session_epoch="1")
    second = (await web.ask("POST", f"{session}/claim")).json
    assert second["epoch"] == 2
    for late in ({"session_epoch": "1"}, {}):
        answer = await web.ask("POST", f"{session}/messages", b"late", **late)
        assert answer.status == 409
        assert answer.json["error"]["message"].startswith("the writer of epoch 2 has ")
    await _append(web, session, "by the second", session_epoch="2")
    messages = (await web.ask("GET", f"{session}/messages")).json["messages"]
    assert [(each["text"], each.get("epoch"), each.get("kind")) for each in messages] == [
        ("free", None, None),
        ("claim", 1, "claim"),
        ("by the first", 1, None),
        ("claim", 2, "claim"),
        ("by the second", 2, None),
    ]


async def test_writers_that_claim_at_once_get_epochs_of_their_own(web: HttpUser, session: str) -> None:
    claims = await asyncio.gather(*(web.ask("POST", f"{session}/claim") for _ in range(4)))
    assert sorted(each.json["epoch"] for each in claims if each.status == 201) == [1, 2, 3, 4]


async def test_a_writer_that_is_stopped_learns_it_with_its_next_append(web: HttpUser, session: str) -> None:
    await web.ask("POST", f"{session}/claim")
    await _append(web, session, "token", session_epoch="1")
    assert (await web.ask("POST", f"{session}/stop")).status == 201
    assert (await web.ask("POST", f"{session}/messages", b"token", session_epoch="1")).status == 409
    async with web.events(f"{session}/events") as events:
        assert [each.kind for each in await events.take(3)] == ["claim", None, "stop"]


async def test_an_append_for_another_place_is_refused(web: HttpUser, session: str) -> None:
    await _append(web, session, "one", expected_offset="0")
    answer = await web.ask("POST", f"{session}/messages", b"one", expected_offset="0")
    assert answer.status == 412
    assert "offset 1, not 0" in answer.json["error"]["message"]
    results = await asyncio.gather(
        *(web.ask("POST", f"{session}/messages", b"x", expected_offset="1") for _ in range(5))
    )
    assert sorted(each.status for each in results) == [201, 412, 412, 412, 412]


async def test_a_fence_holds_for_other_producers_and_after_a_restart(tmp_path: Path) -> None:
    async with front(settings=SETTINGS, **ON) as started, user(started.target) as client:
        await started.create_topic("Chat", "LITE", queues=1)
        web, path = HttpUser(started.target), "/v1/sessions/Chat/kept"
        await web.ask("POST", f"{path}/claim")
        await started.restart_broker()

        while (answer := await web.ask("POST", f"{path}/messages", b"late")).status >= 500:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert answer.status == 409
        sent = client.message("Chat", b"by another way", lite_topic="kept", message_type=5)
        assert "epoch 1" in (await client.send(sent)).status.message


# WebSockets


async def test_a_web_socket_reads_and_writes_a_session(web: HttpUser, session: str) -> None:
    await _append(web, session, "zero", "one")
    async with web.socket(f"{session}/socket?after=0", "pyromq") as joined:
        assert await joined.next() == "accepted"
        assert joined.protocol == "pyromq"
        assert (await joined.next())["message"]["text"] == "one"
        await joined.send(id=1, claim={})
        await joined.send(id=2, append={"text": "two", "epoch": 1})
        await joined.send(id=3, append={"text": "late", "epoch": 0})
        await joined.send(id=4, nothing={})
        found = [await joined.next() for _ in range(6)]
    answers = {each["id"]: each for each in found if "id" in each}
    assert answers[1]["done"]["epoch"] == 1
    assert answers[2]["done"]["offset"] == 3
    assert answers[3]["error"]["status"] == 409
    assert answers[4]["error"]["status"] == 400
    assert [each["message"]["text"] for each in found if "message" in each] == ["claim", "two"]


async def test_a_web_socket_of_a_foreign_page_is_refused(web: HttpUser, session: str) -> None:
    async with web.socket(f"{session}/socket", origin="http://evil.example") as joined:
        assert await joined.next() == 403
    async with web.socket(f"{session}/socket", origin=PAGE) as joined:
        assert await joined.next() == "accepted"


# Pages of other origins


async def test_pages_of_named_origins_may_ask(web: HttpUser, session: str) -> None:
    asked = await web.ask("OPTIONS", f"{session}/messages", origin=PAGE, access_control_request_method="POST")
    assert asked.status == 204
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert "session-epoch" in asked.headers["access-control-allow-headers"]
    sent = await web.ask("POST", f"{session}/messages", b"x", origin=PAGE)
    assert (sent.status, sent.headers["access-control-allow-origin"]) == (201, PAGE)
    refused = await web.ask("POST", f"{session}/messages", b"x", origin="http://evil.example")
    assert refused.status == 403
    read = await web.ask("GET", f"{session}/messages", origin="http://evil.example")
    assert "access-control-allow-origin" not in read.headers


# Messages of any topic


async def test_messages_are_sent_received_and_acknowledged(running: SharedFront, web: HttpUser) -> None:
    await running.create_topic("Orders")
    await running.create_group("shop")
    sent = [{"text": "a", "tag": "new", "keys": ["k"], "properties": {"p": "1"}}, {"base64": "/w=="}]
    answer = await web.ask("POST", "/v1/topics/Orders/messages", {"messages": sent})
    assert answer.status == 201, answer
    found: list[Any] = []
    while len(found) < 2:
        received = await web.ask(
            "POST", "/v1/topics/Orders/receive", {"group": "shop", "waitSeconds": 5, "invisibleSeconds": 30}
        )
        found += received.json["messages"]
    by_text = {each.get("text"): each for each in found}
    assert by_text["a"]["tag"] == "new"
    assert by_text["a"]["properties"] == {"p": "1"}
    assert by_text[None]["base64"] == "/w=="
    hidden = await web.ask(
        "POST",
        "/v1/topics/Orders/hide",
        {"group": "shop", "receipts": [by_text["a"]["receipt"]], "invisibleSeconds": 20},
    )
    assert hidden.status == 200, hidden
    receipts = [by_text[None]["receipt"], *hidden.json["receipts"]]
    acked = await web.ask("POST", "/v1/topics/Orders/ack", {"group": "shop", "receipts": receipts})
    assert acked.status == 204, acked
    wrong = await web.ask("POST", "/v1/topics/Orders/ack", {"group": "shop", "receipts": ["x"]})
    assert wrong.status == 400


# HTTP/2, on the connections of gRPC


async def test_server_sent_events_are_served_over_http_2(
    running: SharedFront, web: HttpUser, session: str
) -> None:
    async with Http2User.at(running.target) as user:
        user.ask(1, "POST", f"{session}/messages", body=b"one")
        answer = await user.read_until(1)
        assert answer["headers"][b":status"] == b"201"
        assert json.loads(answer["body"])["offset"] == 0
        user.ask(3, "GET", f"{session}/events")
        await user.read_until(3, b'"one"')
        await _append(web, session, "two")
        await user.read_until(3, b'"two"')
        user.ask(5, "GET", "/nothing")
        assert (await user.read_until(5))["headers"][b":status"] == b"404"
        user.ask(7, "GET", f"{session}/events", (b"last-event-id", b"0"))
        again = await user.read_until(7, b'"two"')
        assert b'"one"' not in again["body"]


async def test_a_web_socket_is_a_stream_of_http_2(running: SharedFront, web: HttpUser, session: str) -> None:
    async with Http2User.at(running.target) as user:
        joined = await user.socket(1, f"{session}/socket", (b"sec-websocket-protocol", b"pyromq"))
        assert user.settings[frames.ENABLE_CONNECT_PROTOCOL] == 1
        assert user.found[1]["headers"][b"sec-websocket-protocol"] == b"pyromq"
        joined.send(id=1, claim={})
        joined.send(id=2, append={"text": "one", "epoch": 1})
        found = [await joined.next() for _ in range(4)]
        assert [each["done"]["offset"] for each in found if "done" in each] == [0, 1]
        assert [each["message"]["text"] for each in found if "message" in each] == ["claim", "one"]
        # Another stream of the connection goes on where the first one is.
        beside = await user.socket(3, f"{session}/socket?after=0")
        await web.ask("POST", f"{session}/messages", b"two", session_epoch="1")
        assert [(await beside.next())["message"]["text"] for _ in range(2)] == ["one", "two"]
        assert (await joined.next())["message"]["text"] == "two"
        beside.close()
        assert await beside.next() is None
        await user.read_until(3)
        joined.send(id=3, append={"text": "three"})
        while "error" not in (answer := await joined.next()):
            pass
        assert (answer["id"], answer["error"]["status"]) == (3, 409)


async def test_a_socket_of_http_2_that_is_not_read_takes_little_more(
    running: SharedFront, web: HttpUser, session: str
) -> None:
    async with Http2User.at(running.target) as user:
        user.reads = False
        joined = await user.socket(1, f"{session}/socket")
        text, count = "x" * 12_000, 80
        for number in range(count):
            joined.send(id=number, append={"text": text})
        user.ask(3, "GET", "/nothing")
        assert await user.status(3) == 404
        assert 1 not in user.windows
        user.reads = True
        user.widen(1, 1 << 20)
        done = 0
        while done < count:
            answer = await joined.next()
            if "done" in answer:
                assert answer["id"] == done
                done += 1
        assert user.windows[1] > 12_000 * count // 2
        user.put(1, b"", ends=True)
        await user.read_until(1)


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("socket", [(b":protocol", b"websocket")], 400),
        ("socket", [(b":protocol", b"connect-ip"), (b"sec-websocket-version", b"13")], 501),
        ("events", [(b":protocol", b"websocket"), (b"sec-websocket-version", b"13")], 405),
        (
            "socket",
            [
                (b":protocol", b"websocket"),
                (b"sec-websocket-version", b"13"),
                (b"origin", b"http://elsewhere.example"),
            ],
            403,
        ),
    ],
)
async def test_what_opens_no_socket_over_http_2_is_refused(
    running: SharedFront, web: HttpUser, session: str, path: str, more: list[hpack.Header], status: int
) -> None:
    async with Http2User.at(running.target) as user:
        user.ask(1, "CONNECT", f"{session}/{path}", *more)
        assert await user.status(1) == status
        user.ask(3, "GET", f"{session}/socket")
        assert await user.status(3) == 426


# TLS


@pytest.mark.parametrize("offered", [["http/1.1"], ["h2", "http/1.1"]])
async def test_with_tls_the_two_sides_agree_on_a_version(running: SharedFront, offered: list[str]) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(offered)
    host, _, port = running.target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    assert agreed == offered[0]
    if agreed == "http/1.1":
        writer.write(b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(60):
            assert await reader.readline() == b"HTTP/1.1 404 Not Found\r\n"
    writer.close()
    with suppress(ssl.SSLError):
        await writer.wait_closed()


# Limits


async def test_a_reader_that_does_not_read_is_cut_off() -> None:
    settings = SETTINGS | {"http_stall_seconds": 1, "write_high_water_bytes": 4096}
    async with front(settings=settings, **ON) as started:
        await started.create_topic("Chat", "LITE", queues=1)
        web, path = HttpUser(started.target), "/v1/sessions/Chat/slow"
        for _ in range(20):
            assert (await web.ask("POST", f"{path}/messages", b"x" * 1_000_000)).status == 201
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", web.port))
        await loop.sock_sendall(slow, f"GET {path}/events HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert started.proxy._http is not None
        front_of_http = started.proxy._http
        await until(lambda: len(front_of_http) == 1)
        await until(lambda: len(front_of_http) == 0)
        slow.close()


async def test_what_is_too_large_too_slow_or_too_much_is_refused() -> None:
    settings = SETTINGS | {"http_max_connections": 1, "max_message_bytes": 1000, "handshake_seconds": 1}
    async with front(settings=settings, **ON) as started:
        await started.create_topic("Chat", "LITE", queues=1)
        web, path = HttpUser(started.target), "/v1/sessions/Chat/bounded/messages"
        assert (await web.ask("POST", path, b"x" * 1001)).status == 413
        assert (await web.ask("POST", path, b"x" * 200_000)).status == 413
        assert (await web.ask("GET", path, b"", long="x" * 40_000)).status == 431
        # One that never ends its head.
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /v1 HTTP/1.1\r\n")
        answer = await web.ask("GET", path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


async def test_without_the_setting_the_port_speaks_no_http() -> None:
    async with front(**ON) as started:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(started.target.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


# Access control


def _basic(who: Any, password: str | None = None) -> str:
    return "Basic " + base64.b64encode(f"{who.access_key}:{password or who.secret_key}".encode()).decode()


async def test_users_have_the_rights_that_they_have_elsewhere(tmp_path: Path) -> None:
    rights = [
        entry_of(PolicyEntryInfo(resource="Topic:Chat", actions=["Pub", "Sub"], decision="Allow")),
    ]
    rules = UserRules(
        {
            ROOT.access_key: User(ROOT.access_key, ROOT.secret_key, UserType.SUPER),
            ALICE.access_key: User(ALICE.access_key, ALICE.secret_key),
            BOB.access_key: User(BOB.access_key, BOB.secret_key),
        },
        {BOB.access_key: {PolicyType.CUSTOM: tuple(rights)}},
        decides=True,
    )
    UsersFile(tmp_path).save(rules)
    async with front(
        settings=SETTINGS | {"deny_by_default": True, "auth_config_path": tmp_path}, **ON
    ) as started:
        await started.create_topic("Chat", "LITE", queues=1)
        web, path = HttpUser(started.target), "/v1/sessions/Chat/guarded"
        nobody = await web.ask("GET", path)
        assert (nobody.status, nobody.headers["www-authenticate"][:5]) == (401, "Basic")
        assert (await web.ask("GET", path, authorization=_basic(BOB, "wrong"))).status == 401
        assert (await web.ask("GET", path, authorization=_basic(ALICE))).status == 403
        assert (await web.ask("POST", f"{path}/messages", b"1", authorization=_basic(BOB))).status == 201
        assert (await web.ask("DELETE", path, authorization=_basic(BOB))).status == 403
        wanted = {"topic": "Chat", "session": "guarded", "seconds": 60}
        assert (await web.ask("POST", "/v1/tokens", wanted, authorization=_basic(ALICE))).status == 403
        issued = await web.ask("POST", "/v1/tokens", wanted, authorization=_basic(BOB))
        token = issued.json["token"]
        bearer = f"Bearer {token}"
        assert (await web.ask("GET", f"{path}/messages", authorization=bearer)).status == 200
        assert (await web.ask("POST", f"{path}/messages", b"2", authorization=bearer)).status == 403
        assert (await web.ask("GET", "/v1/sessions/Chat/other", authorization=bearer)).status == 403
        assert (await web.ask("POST", "/v1/tokens", wanted, authorization=bearer)).status == 403
        assert (await web.ask("GET", path, authorization=bearer[:-2])).status == 401
        async with web.socket(f"{path}/socket", "pyromq", f"bearer.{token}") as joined:
            assert await joined.next() == "accepted"
            assert (await joined.next())["message"]["text"] == "1"
            await joined.send(id=1, append={"text": "2"})
            assert (await joined.next())["error"]["status"] == 403
        async with web.socket(f"{path}/socket", "pyromq") as joined:
            assert await joined.next() == 401
