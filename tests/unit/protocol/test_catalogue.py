"""From a declaration to a frame and back, and what is said when that does not work."""

import re

import pytest
from tests.support.places import ROOT

from pyromq.errors import LocalProtocolError, Refused, RemoteProtocolError
from pyromq.protocol.catalogue import (
    BROKER,
    CATALOGUE,
    CLIENT,
    NAMESERVER,
    Answer,
    RawAnswer,
    Request,
    declaration_of,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    request,
)
from pyromq.protocol.codes import CURRENT_VERSION, Language, ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.json_header import encode_json_header
from pyromq.protocol.needs import NOTHING
from pyromq.protocol.requests.brokers import QueryDataVersion, QueryDataVersionAnswer, RegisterBroker
from pyromq.protocol.requests.controller import ElectMaster
from pyromq.protocol.requests.inspection import GetConsumerRunningInfo
from pyromq.protocol.requests.kv import GetKvEntry, GetKvEntryAnswer, GetKvNamespace, KVTable, PutKvEntry
from pyromq.protocol.requests.offsets import GetMaxOffset, UpdateConsumerOffset
from pyromq.protocol.requests.popping import PopMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage, PullMessageAnswer
from pyromq.protocol.requests.pushes import NotifyRoutesChanged
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.settings import UpdateNameServerConfig
from pyromq.protocol.requests.transactions import EndTransaction


def _over_the_wire(frame: Frame) -> Frame:
    (arrived,) = FrameReader().feed(encode_frame(frame))
    return arrived


def _sent(cls: type[SendMessage | SendMessageV2]) -> SendMessage | SendMessageV2:
    return cls(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="KEYS\x01k\x02",
        batch=False,
        target_broker_name="broker-a",
        body=b"hello",
    )


def test_a_request_becomes_a_frame() -> None:
    frame = encode_request(GetRoute(topic="T", accept_standard_json_only=True), 7)
    assert frame == Frame(
        code=105,
        opaque=7,
        flag=0,
        language=Language.PYTHON,
        version=CURRENT_VERSION,
        ext={"topic": "T", "acceptStandardJsonOnly": "true"},
        form=HeaderForm.JSON,
    )


def test_the_sender_decides_about_form_language_version_and_answer() -> None:
    frame = encode_request(
        GetRoute(topic="T"), 1, form=HeaderForm.BINARY, oneway=True, language=Language.GO, version=401
    )
    assert (frame.form, frame.flag, frame.language, frame.version) == (
        HeaderForm.BINARY,
        ONEWAY_FLAG,
        Language.GO,
        401,
    )


def test_one_letter_names_carry_the_same_request() -> None:
    long, short = encode_request(_sent(SendMessage), 1), encode_request(_sent(SendMessageV2), 1)
    assert long.ext == {
        "producerGroup": "P",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "KEYS\x01k\x02",
        "batch": "false",
        "bname": "broker-a",
    }
    assert short.ext == {
        "a": "P",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "KEYS\x01k\x02",
        "m": "false",
        "n": "broker-a",
    }
    assert (long.code, short.code, long.body, short.body) == (10, 310, b"hello", b"hello")


@pytest.mark.parametrize(
    ("cls", "parent"), [(SendMessageBatch, SendMessageV2), (LitePullMessage, PullMessage)]
)
def test_a_request_that_is_another_one_by_nature_is_still_itself(
    cls: type[Request[Answer]], parent: type[Request[Answer]]
) -> None:
    assert declaration_of(cls).code != declaration_of(parent).code
    assert declaration_of(cls).answer_type is declaration_of(parent).answer_type
    assert declaration_of(cls).accepts == declaration_of(parent).accepts


def test_the_remark_of_a_request_is_the_remark_of_its_frame() -> None:
    ended = EndTransaction(
        producer_group="P",
        tran_state_table_offset=1,
        commit_log_offset=2,
        commit_or_rollback=12,
        msg_id="M",
        remark="the bank said no",
    )
    frame = _over_the_wire(encode_request(ended, 1, oneway=True))
    assert frame.remark == "the bank said no"
    assert "remark" not in frame.ext
    assert decode_request(CATALOGUE[37], frame) == ended


def test_absent_fields_take_their_defaults() -> None:
    frame = Frame(code=30, ext={"topic": "T", "queueId": "3"})
    assert decode_request(CATALOGUE[30], frame) == GetMaxOffset(topic="T", queue_id=3, committed=True)


def test_fields_nobody_declared_are_ignored() -> None:
    frame = Frame(code=105, ext={"topic": "T", "ReqT": "0", "body": "no body", "remark": "none", "code": "x"})
    assert decode_request(CATALOGUE[105], frame) == GetRoute(topic="T")


@pytest.mark.parametrize("text", ["null", "true", "1", " ", "é"])
def test_a_text_stays_what_it_is(text: str) -> None:
    frame = Frame(code=105, ext={"topic": text, "ns": text})
    assert decode_request(CATALOGUE[105], frame) == GetRoute(topic=text, namespace_name=text)


def test_json_brings_an_empty_text_and_binary_none() -> None:
    entry = PutKvEntry(namespace="n", key="k", value="")
    in_json = _over_the_wire(encode_request(entry, 1, form=HeaderForm.JSON))
    assert decode_request(CATALOGUE[100], in_json) == entry
    in_binary = _over_the_wire(encode_request(entry, 1, form=HeaderForm.BINARY))
    with pytest.raises(Refused, match="value"):
        decode_request(CATALOGUE[100], in_binary)


def test_an_empty_optional_text_is_absent_in_binary() -> None:
    answer = GetKvEntryAnswer(value="")
    for form, expected in ((HeaderForm.JSON, ""), (HeaderForm.BINARY, None)):
        asked = encode_request(GetKvEntry(namespace="n", key="k"), 1, form=form)
        frame = _over_the_wire(encode_answer(CATALOGUE[101], answer, asked))
        assert decode_answer(GetKvEntry, frame).value == expected


def test_an_empty_text_that_is_the_default_survives_binary() -> None:
    frame = _over_the_wire(encode_request(ElectMaster(), 1, form=HeaderForm.BINARY))
    assert decode_request(CATALOGUE[1002], frame) == ElectMaster()


@pytest.mark.parametrize(
    ("ext", "named"),
    [
        ({}, "topic"),
        ({"topic": "T"}, "queueId"),
        ({"topic": "T", "queueId": "three"}, "queueId"),
        ({"topic": "T", "queueId": ""}, "queueId"),
        ({"topic": "T", "queueId": "2147483648"}, "queueId"),
        ({"topic": "T", "queueId": "1.5"}, "queueId"),
        ({"topic": "T", "queueId": "1", "committed": "perhaps"}, "committed"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_with_the_name_of_the_field(
    ext: dict[str, str], named: str
) -> None:
    with pytest.raises(Refused) as refused:
        decode_request(CATALOGUE[30], Frame(code=30, ext=ext))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert "GetMaxOffset" in str(refused.value.remark)
    assert named in str(refused.value.remark)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"counter":"many"}'])
def test_a_body_that_cannot_be_read_is_refused(body: bytes) -> None:
    ext = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": "0"}
    with pytest.raises(Refused) as refused:
        decode_request(declaration_of(QueryDataVersion), Frame(code=322, ext=ext, body=body))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_a_text_body_must_be_text() -> None:
    declaration = declaration_of(UpdateNameServerConfig)
    frame = Frame(code=318, body="größe=1".encode())
    assert decode_request(declaration, frame) == UpdateNameServerConfig(body="größe=1")
    with pytest.raises(Refused, match="UTF-8"):
        decode_request(declaration, Frame(code=318, body=b"\xff"))


@pytest.mark.parametrize(
    "unwritable",
    [UpdateNameServerConfig(body="\ud800"), NotifyRoutesChanged(body=["\ud800"])],
    ids=["text", "JSON"],
)
def test_a_body_that_cannot_be_written_is_our_own_error(unwritable: Request[Answer]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_request(unwritable, 1)


def test_raw_bodies_are_left_alone() -> None:
    registered = RegisterBroker(
        broker_name="b",
        broker_addr="127.0.0.1:10911",
        cluster_name="c",
        ha_server_addr="127.0.0.1:10912",
        broker_id=0,
        compressed=True,
        body=b"\x78\xda\x00",
    )
    frame = _over_the_wire(encode_request(registered, 1))
    assert frame.body == b"\x78\xda\x00"
    assert frame.ext["bodyCrc32"] == "0"
    assert decode_request(CATALOGUE[103], frame) == registered


def test_an_answer_goes_back_in_number_and_form_of_its_request() -> None:
    asked = encode_request(GetKvEntry(namespace="n", key="k"), -3, form=HeaderForm.BINARY)
    frame = encode_answer(CATALOGUE[101], GetKvEntryAnswer(value="v"), asked)
    assert (frame.code, frame.opaque, frame.flag, frame.form) == (0, -3, RESPONSE_FLAG, HeaderForm.BINARY)
    assert frame.ext == {"value": "v"}
    assert decode_answer(GetKvEntry, frame) == GetKvEntryAnswer(value="v")


def test_an_encoded_body_is_sent_as_it_is() -> None:
    asked = encode_request(GetKvNamespace(namespace="n"), 1)
    frame = encode_answer(CATALOGUE[219], RawAnswer(b'{"table":{"k":"v"}}', {"x": "y"}, remark="r"), asked)
    assert (frame.body, frame.ext, frame.remark) == (b'{"table":{"k":"v"}}', {"x": "y"}, "r")
    assert decode_answer(GetKvNamespace, frame).body == KVTable(table={"k": "v"})


def test_a_missing_body_is_none_where_it_may_be_missing() -> None:
    frame = Frame(code=0, flag=RESPONSE_FLAG, ext={"changed": "true"})
    assert decode_answer(QueryDataVersion, frame) == QueryDataVersionAnswer(changed=True, body=None)


def test_a_code_that_says_no_is_raised() -> None:
    with pytest.raises(Refused) as refused:
        decode_answer(GetRoute, Frame(code=17, flag=RESPONSE_FLAG, remark="no route"))
    assert (refused.value.code, refused.value.remark) == (17, "no route")


@pytest.mark.parametrize("code", [0, 19, 20, 21])
def test_some_codes_are_answers_of_their_own(code: int) -> None:
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "9"}
    answer = decode_answer(PullMessage, Frame(code=code, flag=RESPONSE_FLAG, ext=ext, remark="FOUND"))
    assert answer == PullMessageAnswer(
        code=code,
        remark="FOUND",
        suggest_which_broker_id=0,
        next_begin_offset=5,
        min_offset=0,
        max_offset=9,
    )


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_a_stored_message_is_an_answer_even_if_not_quite_safe(code: int) -> None:
    frame = Frame(code=code, ext={"msgId": "M", "queueId": "1", "queueOffset": "2", "TRACE_ON": "true"})
    assert decode_answer(SendMessageV2, frame).trace_on is True


def test_an_empty_pop_needs_no_fields() -> None:
    assert decode_answer(PopMessage, Frame(code=210)).pop_time == 0


@pytest.mark.parametrize(
    "frame",
    [
        Frame(code=0),
        Frame(code=0, ext={"changed": "perhaps"}),
        Frame(code=0, ext={"changed": "true"}, body=b"{"),
    ],
)
def test_an_answer_that_cannot_be_read_is_the_other_sides_fault(frame: Frame) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(QueryDataVersion, frame)


def test_the_catalogue_knows_who_is_asked() -> None:
    assert declaration_of(GetRoute).to == NAMESERVER
    assert declaration_of(GetConsumerRunningInfo).to == BROKER | CLIENT
    assert declaration_of(UpdateConsumerOffset).oneway
    assert repr(declaration_of(GetRoute)) == "<GetRoute code=105 to=Peer.NAMESERVER>"


def test_watching_routes_is_an_extension() -> None:
    frame = encode_request(GetRoute(topic="T", watch=True), 1)
    assert frame.ext == {"topic": "T", "watch": "true"}
    pushed = encode_request(NotifyRoutesChanged(body=["T", "U"]), 2, oneway=True)
    assert (pushed.code, pushed.ext, pushed.body) == (30105, {}, b'["T","U"]')
    assert declaration_of(NotifyRoutesChanged).extension


def test_the_frames_in_the_document_about_extensions_are_real() -> None:
    document = (ROOT / "docs" / "reference" / "extensions.md").read_text("utf-8")
    asked = encode_request(GetRoute(topic="Orders", watch=True), 7)
    told = NotifyRoutesChanged(body=["Orders"])
    in_json = encode_request(told, 12, oneway=True)
    in_binary = encode_frame(encode_request(told, 12, oneway=True, form=HeaderForm.BINARY))
    assert encode_json_header(asked).decode() in document.replace(",\n ", ",")
    assert encode_json_header(in_json).decode() + "\n" + in_json.body.decode() in document
    assert encode_frame(asked)[:4].hex(" ") in document
    assert encode_frame(in_json)[:4].hex(" ") in document
    binary_block = document.split("```")[5]
    shown = "".join(re.findall(r"^((?:[0-9a-f]{2} )+)", binary_block.replace("\n", " \n"), re.MULTILINE))
    assert bytes.fromhex(shown) == in_binary


def test_a_code_can_be_claimed_once() -> None:
    class Another(Request[Answer]):
        """Wants the code of GetRoute."""

    with pytest.raises(LocalProtocolError, match="Another and GetRoute both claim code 105"):
        request(105, to=NAMESERVER, needs=NOTHING)(Another)
    assert CATALOGUE[105].request_type is GetRoute


def test_an_extension_field_must_be_a_plain_value() -> None:
    class Odd(Request[Answer]):
        """Has a list where a text belongs."""

        names: list[str]

    with pytest.raises(LocalProtocolError, match=r"Odd\.names"):
        request(31999, to=NAMESERVER, needs=NOTHING)(Odd)
    assert 31999 not in CATALOGUE


def test_extension_fields_that_are_called_like_parts_of_the_frame_mean_nothing() -> None:
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
    frame = Frame(
        ResponseCode.SUCCESS,
        flag=RESPONSE_FLAG,
        remark="said",
        body=b"messages",
        ext=ext | {"code": "many", "remark": "claimed", "body": "no base64!"},
    )
    answer = decode_answer(PullMessage, frame)
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, "said", b"messages")
    frame.ext = ext | {"code": "7", "body": "aGk="}
    assert decode_answer(PullMessage, frame) == answer


def test_a_number_without_a_width_is_refused() -> None:
    class Wide(Request[Answer]):
        """Nobody knows how wide."""

        size: int

    with pytest.raises(LocalProtocolError, match=r"Wide\.size: int has no width, expected Int32 or Int64"):
        request(31_999, to=BROKER, needs=())(Wide)
