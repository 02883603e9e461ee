"""A field that the compiled core does not know takes its request to the general path, with the field."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from tests.property import test_gathering as gathering
from tests.property import test_quick_pulls as quick_pulls
from tests.property import test_quick_sends as quick_sends
from tests.property.test_broker_fast_path import acks_of, plain_pop
from tests.property.test_nameserver_fast_path import Ways, query, with_ways
from tests.property.test_pulled_messages import plain_answer
from tests.support.both_paths import FORMS, HALF, UNIQUE, as_bytes, ends_of, outcome, plain_pull, plain_send
from tests.support.golden_frames import GoldenFrame, golden_frames

from pyromq.client.values import Message
from pyromq.compiled import WHY, twin
from pyromq.protocol import catalogue
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import Declaration, Request, declaration_of, decode_request
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting import answering

native: Any = twin("protocol.requests")

pytestmark = pytest.mark.skipif(native is None, reason=f"no fast path: {WHY}")

NAME, VALUE = "newField", "blue"


@contextmanager
def declared(kind: type[Request[Any]]) -> Iterator[list[str]]:
    """Within it a request has one field more; the values of this field that the general path reads."""

    class Extended(kind):  # type: ignore[misc, valid-type]
        new_field: str | None = None

    was = declaration_of(kind)
    new = Declaration(
        was.code,
        Extended,
        was.to,
        needs=was.needs,
        oneway=was.oneway,
        accepts=was.accepts,
        extension=was.extension,
        java_name=was.java_name,
    )
    new.request_part.write_ext = was.request_part.write_ext  # type: ignore[method-assign]
    seen: list[Any] = []

    def decode(declaration: Declaration, frame: Any) -> Any:
        request: Any = decode_request(declaration, frame)
        if getattr(request, "new_field", None) is not None:
            seen.append(request.new_field)
        return request

    with (
        patch.multiple(was, request_type=Extended, request_part=new.request_part),
        patch.dict(catalogue._DECLARED, {Extended: was}),
        patch.object(answering, "decode_request", decode),
    ):
        yield seen


def extended(data: bytes) -> bytes:
    """The same requests, each with the new field."""
    frames = FrameReader().feed(data)
    for frame in frames:
        frame.ext[NAME] = VALUE
    return b"".join(map(encode_frame, frames))


BATCH = encode_batch([BatchEntry(b"1"), BatchEntry(b"2")])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "request_",
    [
        plain_send(SendMessage),
        plain_send(SendMessageV2),
        plain_send(SendMessageBatch, body=BATCH),
        plain_pull(PullMessage),
        plain_pull(LitePullMessage),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_new_field_of_a_send_or_pull_reaches_the_general_path(request_: Request[Any], form: int) -> None:
    plain = as_bytes([(request_, form, False)])
    with declared(type(request_)) as seen:
        found = asyncio.run(outcome(plain + plain + extended(plain), [len(plain)], "fast"))
    # The first of a kind opens the way, on the general path.
    assert found.taken == 1
    assert seen == [VALUE]
    assert len(found.frames) == 3


@pytest.mark.parametrize("form", FORMS)
def test_a_new_field_of_the_end_of_a_transaction_reaches_the_general_path(form: int) -> None:
    opening = as_bytes([(plain_send(), form, False)])
    half = plain_send(sys_flag=4, properties=HALF + UNIQUE)
    encoded = as_bytes([(plain_send(), form, False), *[(half, form, False)] * 3])
    cuts = [len(opening), len(as_bytes([(plain_send(), form, False), (half, form, False)]))]
    fields = {"producer_group": "p", "from_transaction_check": False, "commit_or_rollback": 8}
    wanted = [(number, fields, 0, 0, form, True) for number in (2, 3)]

    def ends(answers: bytes) -> bytes:
        return ends_of(answers, wanted[:1]) + extended(ends_of(answers, wanted[1:]))

    with declared(EndTransaction) as seen:
        found = asyncio.run(outcome(encoded, cuts, "fast", then=ends))
    assert found.ended == 1
    assert seen == [VALUE]


def test_a_new_field_of_an_acknowledgement_reaches_the_general_path() -> None:
    asked = [plain_pop(queue_id=0, max_msg_nums=2)]
    plain = dict.fromkeys(("receipt", "topic", "queue_id", "also"))
    plain |= {"offset_miss": 0, "has_offset": True, "changes": False}
    wanted = [(number, plain, HeaderForm.JSON, False) for number in range(2)]

    def acks(answers: bytes) -> bytes:
        return acks_of(answers, asked, wanted[:1]) + extended(acks_of(answers, asked, wanted[1:]))

    with declared(AckMessage) as seen:
        found = asyncio.run(outcome(as_bytes([(asked[0], HeaderForm.JSON, False)]), [], "fast", then=acks))
    assert found.acked == 1
    assert seen == [VALUE]


@pytest.mark.parametrize("form", FORMS)
def test_a_new_field_of_a_route_query_reaches_the_general_path(form: int) -> None:
    def try_it(ways: Ways) -> None:
        _ = ways.server_path
        ways.answers(query("Orders", form) + query("Orders", form, {NAME: VALUE}), fast=True)
        assert ways.taken == 1

    with declared(GetRoute) as seen:
        with_ways(try_it)
    assert seen == [VALUE]


@pytest.mark.parametrize(("more", "taken"), [({}, 1), ({NAME: VALUE}, 0)])
def test_a_new_field_of_an_answer_is_left_to_the_general_path(more: dict[str, str], taken: int) -> None:
    ext = {"msgId": "7F0000010000", "queueId": "2", "queueOffset": "9"} | more
    assert quick_sends.quick_result(
        quick_sends.as_frame({"code": 0, "extFields": ext, "flag": 1, "opaque": 5})
    )[0] == taken  # fmt: skip
    assert quick_pulls.read(quick_pulls.as_data(plain_answer(2), more))[1] == taken


def test_a_message_with_a_new_field_is_left_to_the_general_path() -> None:
    class Extended(Message, frozen=True):
        shade: str | None = None

    async def taken(message: Extended) -> bool:
        with patch.object(gathering, "Message", Extended):
            return gathering.Producer().add(message) is not None

    run: Callable[[Any], bool] = gathering.LOOP.run_until_complete
    assert run(taken(Extended("Orders", b"x")))
    assert not run(taken(Extended("Orders", b"x", shade="blue")))


HOT = {
    declaration_of(kind).code
    for kind in (
        SendMessage,
        SendMessageV2,
        SendMessageBatch,
        PullMessage,
        LitePullMessage,
        EndTransaction,
        AckMessage,
    )
}


@pytest.mark.parametrize(
    "frame", [each for each in golden_frames() if not each.answer and each.code in HOT], ids=str
)
def test_every_field_of_the_recorded_requests_of_java_clients_is_known(frame: GoldenFrame) -> None:
    form_and_size = int.from_bytes(frame.data[4:8])
    header = frame.data[8 : 8 + (form_and_size & 0xFFFFFF)]
    assert native.is_known(header, form_and_size >> 24 == 1)
