"""Peers that lie, over real sockets: a call ends with a result or one of our errors, and the next one works.

What consumers make of lies is in `test_hostile_answers`.
"""

import asyncio
import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.chance import examples
from tests.support.hostile_network import BODIES, CODES, OFFSETS, TEXTS, sometimes
from tests.support.scripted_broker import ScriptedBroker

from pyromq import aio
from pyromq.client.transactions import TransactionState
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import ConnectionLost, PyroError, RemoteProtocolError
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.requests.offsets import GetMaxOffset, OffsetAnswer
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, handles

# Sends

SEND_HEADERS = sometimes(
    msgId=st.sampled_from(("7F00000100002A9F0000000000000001", "7F0000010000", "x,y", "Z" * 32)) | TEXTS,
    queueId=st.sampled_from(("0", "1", "-1")) | TEXTS,
    queueOffset=OFFSETS,
    transactionId=TEXTS,
    MSG_REGION=TEXTS,
    TRACE_ON=st.sampled_from(("true", "false", "x", "")),
)
GOOD_SEND = {"msgId": "7F00000100002A9F0000000000000001", "queueId": "0", "queueOffset": "3"}


class HostileBroker(ScriptedBroker):
    """Answers sends as `raw` says."""

    raw = RawAnswer()

    @handles(SendMessageV2)
    async def _send(self, request: SendMessageV2, caller: Caller) -> RawAnswer:  # type: ignore[override]
        return self.raw

    @handles(SendMessageBatch)
    async def _send_batch(self, request: SendMessageBatch, caller: Caller) -> RawAnswer:  # type: ignore[override]
        return self.raw


def test_a_send_has_a_result_or_an_error() -> None:
    orders = [Message("Orders", b"1"), Message("Orders", b"2")]

    async def start() -> tuple[HostileBroker, aio.Producer, aio.TransactionProducer]:
        broker = HostileBroker("Orders")
        await broker.__aenter__()
        producer = aio.Producer("billing", broker.address, retries=0)
        transactions = aio.TransactionProducer("paying", broker.address, check=unasked, retries=0)
        await producer.start()
        await transactions.start()
        return broker, producer, transactions

    def unasked(_: ReceivedMessage) -> TransactionState:
        raise AssertionError("nobody asked for this")

    with asyncio.Runner() as runner:
        broker, producer, transactions = runner.run(start())

        @settings(max_examples=examples(80))
        @given(code=CODES, ext=SEND_HEADERS, body=BODIES)
        @example(0, {**GOOD_SEND, "msgId": "garbage"}, b"")  # where is the half message?
        @example(0, {**GOOD_SEND, "queueOffset": "-1"}, b"")
        @example(0, {**GOOD_SEND, "queueOffset": str(2**63)}, b"")
        @example(0, {}, b"")
        def check(code: int, ext: dict[str, str], body: bytes) -> None:
            broker.raw = RawAnswer(body, ext, code)
            worked: list[Message] = []

            def work(message: Message) -> TransactionState:
                worked.append(message)
                return TransactionState.COMMIT

            async def send() -> None:
                single, batch, transaction = await asyncio.gather(
                    producer.send(orders[0]),
                    producer.send(orders),
                    transactions.send_in_transaction(orders[0], work),
                    return_exceptions=True,
                )
                for result in (single, batch, transaction):
                    assert not isinstance(result, BaseException) or isinstance(result, PyroError), result
                assert isinstance(batch, PyroError) or len(batch) == len(orders)
                if isinstance(transaction, PyroError):
                    assert not worked, "a transaction whose message cannot be ended is not begun"
                broker.raw = RawAnswer(b"", GOOD_SEND)
                assert (await producer.send(orders[0])).is_ok, "the next message is sent as ever"

            runner.run(send())

        async def stop() -> None:
            await producer.close()
            await transactions.close()
            await broker.stop()

        check()
        runner.run(stop())


# Frames

QUESTION = GetMaxOffset(topic="Orders", queue_id=0)


def test_answers_that_belong_to_nobody_hurt_nobody() -> None:
    """Another number, the same one twice, flags that make no answer, half a frame, no frame at all."""
    answers: list[Frame | bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(1 << 20)
        with contextlib.suppress(OSError):  # clients hang up on some of this
            while data := await reader.read(1 << 16):
                for asked in frames.feed(data):
                    for answer in answers:
                        if isinstance(answer, Frame):
                            numbered = replace(answer, opaque=answer.opaque + asked.opaque)
                            writer.write(encode_frame(numbered, 1 << 20))
                        else:
                            writer.write(answer)
        writer.close()

    def answer(number: int = 0, flag: int = RESPONSE_FLAG, code: int = 0, offset: str = "5") -> Frame:
        return Frame(code, number, flag, ext={"offset": offset})

    hostile = st.sampled_from(
        (
            answer(1),
            answer(-1),
            answer(2**30),
            answer(flag=RESPONSE_FLAG | ONEWAY_FLAG),
            answer(flag=ONEWAY_FLAG),
            answer(flag=0),
            answer(flag=0, code=2**31 - 1),
            answer(code=2),
            answer(offset="9" * 30),
            b"\0\0\0\4\0\0\0\0",
            b"\0\0\0\x20\0\0\0\x1c{",
            b"\xff" * 16,
            b"GET / HTTP/1.1\r\n\r\n",
        )
    )
    with asyncio.Runner() as runner:
        server = runner.run(asyncio.start_server(serve, "127.0.0.1", 0))
        host, port = server.sockets[0].getsockname()
        dialers: list[Dialer] = []

        async def call(timeout_s: float) -> OffsetAnswer:
            return await dialers[0].call(f"{host}:{port}", QUESTION, timeout_s)

        @settings(max_examples=examples(40))
        @given(script=st.lists(hostile, max_size=3))
        @example([answer(), answer()])
        @example([answer(1), answer()])
        def check(script: list[Frame | bytes]) -> None:
            answers[:] = script
            with contextlib.suppress(PyroError):
                assert runner.run(call(0.02)).offset == 5
            answers[:] = [answer()]
            with contextlib.suppress(ConnectionLost, RemoteProtocolError):
                # What came before may have ended the connection.
                assert runner.run(call(60)).offset == 5
            assert runner.run(call(60)).offset == 5

        async def start() -> Dialer:
            return Dialer()

        dialers.append(runner.run(start()))
        check()
        runner.run(dialers[0].close())
        server.close()
