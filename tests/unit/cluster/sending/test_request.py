"""The request that stores a message has one builder."""

import ast
from pathlib import Path

import pytest

import pyromq
from pyromq.cluster.sending.request import PreparedMessage, SendForms, SendTerms, send_request
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES, encode_frame
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2

TERMS = SendTerms("producers", "TBW102", 8, True)


def message(kind: type[SendMessageV2] = SendMessageV2) -> PreparedMessage:
    return PreparedMessage("Orders", b"body", 'a\x01"b"\x02', "KEY", 1700, 4, 7, kind=kind)


def test_a_request_has_the_terms_of_its_sender_and_the_values_of_its_message() -> None:
    assert send_request(message(), TERMS, 3, "broker-a") == SendMessageV2(
        producer_group="producers",
        topic="Orders",
        default_topic="TBW102",
        default_topic_queue_nums=8,
        queue_id=3,
        sys_flag=4,
        born_timestamp=1700,
        flag=7,
        properties='a\x01"b"\x02',
        unit_mode=True,
        target_broker_name="broker-a",
        body=b"body",
    )


def test_a_batch_says_so() -> None:
    request = send_request(message(SendMessageBatch), TERMS, 0)
    assert (type(request), request.batch) == (SendMessageBatch, True)


def test_without_a_producer_group_the_topic_lends_its_name() -> None:
    assert send_request(message(), SendTerms(None), 0).producer_group == "Orders"


def test_a_message_that_is_sent_again_carries_its_count() -> None:
    again = PreparedMessage("Orders", b"body", "", "KEY", 1700, reconsume_times=2, max_reconsume_times=16)
    request = send_request(again, TERMS, 0)
    assert (request.reconsume_times, request.max_reconsume_times) == (2, 16)


@pytest.mark.parametrize("kind", [SendMessageV2, SendMessageBatch])
@pytest.mark.parametrize("broker_name", ["broker-a", None])
def test_a_filled_form_has_the_bytes_of_the_request(
    kind: type[SendMessageV2], broker_name: str | None
) -> None:
    forms = SendForms(TERMS)
    filled = forms.filled(message(kind), 3, broker_name)
    head = filled.form.head(filled.values, 99, len(filled.body), DEFAULT_MAX_FRAME_BYTES)
    assert head + filled.body == encode_frame(
        encode_request(forms.request(message(kind), 3, broker_name), 99)
    )


def test_no_other_file_builds_the_request() -> None:
    root = Path(pyromq.__file__).parent
    builders = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"SendMessage", "SendMessageV2", "SendMessageBatch", "SendReplyV2"}
    }
    assert builders == set()
