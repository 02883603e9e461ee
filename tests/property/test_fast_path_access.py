"""Under access control, too, the fast path takes nothing that the general path would refuse."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.both_paths import (
    FORMS,
    HALF,
    MAX_AGE_MS,
    UNIQUE,
    Flush,
    as_bytes,
    compare,
    ends_of,
    outcome,
    plain_pull,
    plain_send,
)
from tests.support.chance import examples
from tests.support.signing import apache_signer, signer

from pyromq.clock import ManualClock
from pyromq.cluster.signing import Sign
from pyromq.compiled import WHY, twin
from pyromq.protocol.catalogue import Request
from pyromq.protocol.frame import ONEWAY_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.requests.access import PolicyEntryInfo
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.sending import SendMessage
from pyromq.security.full_signature import FULL_SIGNATURE, Stamp, full_signature, is_fully_signed
from pyromq.security.signature import Credentials, is_signed, signing_fields, signing_key, user_fields
from pyromq.security.users import PolicyType, User, UserRules, UserType, entry_of

pytestmark = pytest.mark.skipif(twin("broker.fast_path") is None, reason=f"no fast path: {WHY}")

NOW_MS = ManualClock().now_ms()
ALICE = Credentials("alice", "the password of alice")
ROOT = Credentials("root", "r" * 80)  # longer than a block of SHA-1


def allowed(resource: str) -> Any:
    return entry_of(PolicyEntryInfo(resource=resource, actions=["Pub", "Sub"], decision="Allow"))


RULES = UserRules(
    {
        "alice": User("alice", ALICE.secret_key),
        "root": User("root", ROOT.secret_key, UserType.SUPER),
    },
    {"alice": {PolicyType.CUSTOM: (allowed("Topic:Orders"), allowed("Topic:Full"), allowed("Group:g"))}},
)


def as_apache(credentials: Credentials, change: Callable[[Frame], None] | None = None) -> Sign:
    return signing(credentials, change, apache_signer(credentials))


def signing(
    credentials: Credentials, change: Callable[[Frame], None] | None = None, sign: Sign | None = None
) -> Sign:
    """Sign a frame, and change it afterwards."""
    sign = sign or signer(credentials, clock=ManualClock())

    def apply(frame: Frame) -> None:
        sign(frame)
        if change is not None:
            change(frame)

    return apply


def change_body(frame: Frame) -> None:
    frame.body = frame.body[:-1] + b"!" if frame.body else frame.body


def change_field(frame: Frame) -> None:
    name = "e" if "e" in frame.ext else "queueId"
    frame.ext[name] = "0"


def change_signature(frame: Frame) -> None:
    frame.ext["Signature"] = frame.ext["Signature"][:-2] + "A="


def drop_key(frame: Frame) -> None:
    del frame.ext["AccessKey"]


def add_field(frame: Frame) -> None:
    frame.ext["zz"] = "x"


def add_remark(frame: Frame) -> None:
    frame.remark = "x"


def turn_oneway(frame: Frame) -> None:
    frame.flag ^= ONEWAY_FLAG


def set_version(frame: Frame) -> None:
    frame.version -= 1


def disguise(frame: Frame) -> None:
    """As if there were no full signature; RocketMQ's does not notice it."""
    frame.ext["FullSignaturf"] = frame.ext.pop(FULL_SIGNATURE)


def stamped(time_ms: int = NOW_MS, number: int = 1) -> Sign:
    """Always with the same stamp."""

    def sign(frame: Frame) -> None:
        frame.ext |= user_fields(ALICE)
        stamp = Stamp(time_ms, b"0123456789abcdef", number)
        frame.ext[FULL_SIGNATURE] = full_signature(frame, stamp, ALICE.secret_key)

    return sign


signers = st.lists(
    st.sampled_from(
        [
            signing(ALICE),
            signing(ALICE),
            signing(ALICE),
            signing(ROOT),
            signing(Credentials("alice", "not hers")),
            signing(Credentials("nobody", "x")),
            signing(ALICE, change_body),
            signing(ALICE, change_field),
            signing(ALICE, change_signature),
            signing(ALICE, drop_key),
            *(
                signing(ALICE, change)
                for change in (add_field, add_remark, turn_oneway, set_version, disguise)
            ),
            *(stamped(), stamped(number=2), stamped(number=3, time_ms=NOW_MS - 900_000)),
            *(stamped(number=4, time_ms=NOW_MS - 900_001), stamped(number=9)),
            *(
                as_apache(ALICE),
                as_apache(ALICE),
                as_apache(ALICE, change_field),
                as_apache(ROOT, add_remark),
            ),
            lambda frame: None,
        ]
    ),
    min_size=1,
    max_size=8,
)

requests = st.one_of(
    st.builds(
        lambda kind, **fields: plain_send(*kind, **fields),
        st.sampled_from([(), (SendMessage,)]),
        topic=st.sampled_from(["Orders", "Orders", "Orders", "Full", "Secrets"]),
        queue_id=st.integers(0, 1),
        born_timestamp=st.sampled_from(
            [NOW_MS, NOW_MS, NOW_MS - MAX_AGE_MS, NOW_MS - MAX_AGE_MS - 1, 1, 2**62]
        ),
        body=st.sampled_from([b"x", b"x" * 5000]),
        properties=st.sampled_from(
            [UNIQUE, UNIQUE + "TAGS\x01grün\x02", UNIQUE + "k\x01" + "v" * 5000 + "\x02"]
        ),
    ),
    st.builds(
        plain_pull,
        consumer_group=st.sampled_from(["g", "g", "other"]),
        topic=st.sampled_from(["Full", "Full", "Orders"]),
        sys_flag=st.just(4),
    ),
)


@settings(max_examples=examples(20))
@given(
    st.lists(st.tuples(requests, st.sampled_from(FORMS), st.booleans()), min_size=1, max_size=12),
    signers,
    st.data(),
)
def test_both_paths_admit_the_same_requests(
    stream: list[tuple[Request[Any], int, bool]], who: list[Callable[[Frame], None]], data: st.DataObject
) -> None:
    encoded = as_bytes(stream, *who)
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=3))
    compare(encoded, cuts, "ASYNC_FLUSH", rules=RULES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("request_", [plain_send(born_timestamp=NOW_MS), plain_pull()], ids=["send", "pull"])
@pytest.mark.parametrize("new_signer", [signing, as_apache], ids=["ours", "apache"])
def test_signed_requests_take_the_fast_path(
    form: int, request_: Request[Any], new_signer: Callable[[Credentials], Sign]
) -> None:
    """On a connection that others could write to: each of their signatures is checked there."""
    encoded = as_bytes([(request_, form, False)] * 6, new_signer(ALICE))
    found = asyncio.run(outcome(encoded, [len(encoded) // 6], "fast", rules=RULES))
    assert found.taken == 5
    assert found.pulled == (5 if isinstance(request_, PullMessage) else 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_full_signature_is_accepted_once_by_both_paths_together(form: int) -> None:
    sign = signing(ALICE)
    streams = [as_bytes([(plain_send(born_timestamp=NOW_MS), form, False)] * 4, sign) for _ in range(2)]
    encoded = b"".join((*streams, streams[0], streams[1]))
    found = compare(encoded, [len(streams[0]) // 4, len(streams[0])], "ASYNC_FLUSH", rules=RULES)
    codes = [frame.code for frame in FrameReader().feed(found.answers)]
    assert (codes.count(0), codes.count(16), found.taken) == (8, 8, 7)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_signed_transactions_take_the_fast_path_and_those_of_others_are_not_ended(
    form: int, flush: Flush
) -> None:
    opening = plain_send(born_timestamp=NOW_MS)
    half = plain_send(sys_flag=4, properties=HALF + UNIQUE, born_timestamp=NOW_MS)
    stream = [(opening, form, False), *[(half, form, False)] * 5]
    sign = signing(ROOT)
    encoded = as_bytes(stream, sign)
    cuts = [len(as_bytes(stream[:count], signing(ROOT))) for count in (1, 2)]
    wanted = [
        (number, {"producer_group": "p", "commit_or_rollback": 8, "topic": topic}, 0, 0, form, True)
        for number, topic in ((1, None), (2, "Orders"), (3, None))
    ]
    found = compare(encoded, cuts, flush, lambda answers: ends_of(answers, wanted, sign), RULES)
    assert (found.taken, found.ended) == (4 + 3, 3)
    stranger = Credentials("stranger", "x")
    rules = UserRules({**RULES.users, "stranger": User("stranger", "x")}, RULES.policies)
    found = compare(encoded, cuts, flush, lambda answers: ends_of(answers, wanted, signing(stranger)), rules)
    assert found.ended == 0
    found = compare(
        encoded, cuts, flush, lambda answers: ends_of(answers, wanted, signing(ROOT, change_field)), RULES
    )
    assert found.ended == 0


# The signature alone

NAMES = ["a", "b", "topic", "topicx", "Z", "_x", "_UNIQUE_KEY_QUERY"]
texts = st.text(st.characters(max_codepoint=0x7F), max_size=20)


@settings(max_examples=examples(100))
@given(
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=3)), texts, max_size=12),
    st.binary(max_size=100),
    st.text(max_size=100),
    st.sampled_from(FORMS),
    st.booleans(),
)
def test_the_compiled_check_of_a_signature_says_yes_only_if_the_interpreted_one_does(
    ext: dict[str, str], body: bytes, secret: str, form: int, is_changed: bool
) -> None:
    native = twin("security.fast_signature")
    assert native is not None
    frame = Frame(310, ext=dict(ext), body=body, form=form)
    frame.ext |= signing_fields(ext, body, Credentials("alice", secret))
    if is_changed:
        frame.ext["a"] = ext.get("a", "") + "x"
    sent = encode_frame(frame)
    header = sent[8 : 8 + int.from_bytes(sent[5:8])]
    (received,) = FrameReader().feed(sent)
    is_right = is_signed(received.ext, received.body, secret)
    found = native.is_signed_frame(
        header, form == HeaderForm.BINARY, body, signing_key(secret), is_full=False
    )
    assert is_right or not found
    if is_right and set(ext) <= set(NAMES[:-1]):
        assert found


@settings(max_examples=examples(100))
@given(
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=3)), texts, max_size=12),
    st.binary(max_size=100),
    st.text(max_size=100),
    st.sampled_from(FORMS),
    st.sampled_from([None, None, add_field, add_remark, turn_oneway, set_version, change_body]),
)
def test_the_compiled_check_of_a_full_signature_says_yes_only_if_the_interpreted_one_does(
    ext: dict[str, str], body: bytes, secret: str, form: int, change: Callable[[Frame], None] | None
) -> None:
    native = twin("security.fast_signature")
    assert native is not None
    frame = Frame(310, ext=dict(ext), body=body, form=form)
    signer(Credentials("alice", secret))(frame)
    if change is not None:
        change(frame)
    sent = encode_frame(frame)
    header = sent[8 : 8 + int.from_bytes(sent[5:8])]
    (received,) = FrameReader().feed(sent)
    is_right = is_fully_signed(received, secret)
    key = signing_key(secret, "sha256")
    found = native.is_signed_frame(header, form == HeaderForm.BINARY, frame.body, key, is_full=True)
    assert is_right or not found
    if is_right and set(ext) <= set(NAMES):
        assert found
