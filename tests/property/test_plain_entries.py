"""Plain messages in batches: their short way, compiled or not, writes what the general one writes."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pyromq.client.batching import encode_batch
from pyromq.client.plain_entries import _plain_entry, plain_entry
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.values import Message

KEY = "C000020200009FCF0000000000000001"
BODY_LIMIT = 300

texts = st.text(st.characters(codec="utf-8") | st.sampled_from(" \x01\x02"), max_size=6) | st.just("\ud800")
messages = st.builds(
    Message,
    st.just("Orders"),
    st.binary(max_size=BODY_LIMIT + 2) | st.binary(max_size=9).map(bytearray),
    tags=st.none() | texts | st.integers(),
    keys=st.just(()) | texts | st.lists(texts | st.integers(), max_size=2) | st.tuples(texts),
    properties=st.just({}) | st.dictionaries(texts, texts, max_size=1),
    delay_level=st.sampled_from([0, 0, 0, 1, -1]),
    delay_ms=st.sampled_from([None, None, None, 5]),
    deliver_at_ms=st.sampled_from([None, None, None, 5]),
    priority=st.sampled_from([None, None, None, 5]),
    wait_stored=st.sampled_from([True, True, True, False]),
    flag=st.just(0) | st.integers(-(2**31) - 1, 2**31) | st.booleans(),
)
plain_messages = st.builds(
    Message,
    st.just("Orders"),
    st.binary(min_size=1, max_size=BODY_LIMIT - 1),
    tags=st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=6),
    keys=st.just(()) | st.sampled_from([["o-1"], "o-1 o-2", "grün"]),
    flag=st.integers(-(2**31), 2**31 - 1),
)


def general_entry(message: Message, namespace: str | None) -> bytes:
    preparer = MessagePreparer(namespace=namespace, max_bytes=BODY_LIMIT - 1, compress_from_bytes=BODY_LIMIT)
    return encode_batch([preparer.prepare(message, KEY, 5)]).body


def suffix(namespace: str | None) -> str:
    return MessagePreparer(namespace=namespace).suffix


@given(messages | plain_messages, st.sampled_from([None, "shop"]))
@example(Message("Orders", b"x", tags="x" * 32800), None)
@example(Message("Orders", b"x", keys=("o-1",)), None)
def test_what_is_not_declined_is_what_the_general_way_writes(message: Message, namespace: str | None) -> None:
    entry = _plain_entry(message, KEY, suffix(namespace), BODY_LIMIT)
    if entry is not None:
        assert entry == general_entry(message, namespace)
    assert plain_entry(message, KEY, suffix(namespace), BODY_LIMIT) == entry


@given(plain_messages, st.sampled_from([None, "shop"]))
def test_plain_messages_are_not_declined(message: Message, namespace: str | None) -> None:
    assert plain_entry(message, KEY, suffix(namespace), BODY_LIMIT) == general_entry(message, namespace)


def test_properties_may_be_as_long_as_they_may_be() -> None:
    room = 32767 - len("TAGS\x01\x02") - len(f"UNIQ_KEY\x01{KEY}\x02")
    longest: Any = plain_entry(Message("Orders", b"x", tags="x" * room), KEY, "", BODY_LIMIT)
    assert longest == general_entry(Message("Orders", b"x", tags="x" * room), None)
    assert plain_entry(Message("Orders", b"x", tags="x" * (room + 1)), KEY, "", BODY_LIMIT) is None
