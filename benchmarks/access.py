"""What access control costs: signed sends to a broker that checks them, beside plain sends to an open one.

    python -m benchmarks.access [--seconds 5] [--body 1024]

One connection sends prepared frames in batches and waits for the answers, so that the broker is what is
measured; the client and its signing are not. Broker and client are on the same machine (a loopback
connection counts as private, like one with TLS). `plain` sends without access control, `signed` sends the
longer, signed frames to the same broker, `known` to one with access control on a connection that it knows;
`every` checks every signature, as on a network without TLS.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.cluster.signing import signer
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.dialer import Dialer
from pyromq.security.signature import Credentials
from pyromq.store.settings import StoreSettings

USER = Credentials("bench", "the password of bench")
SECURE: dict[str, Any] = {
    "deny_by_default": True,
    "first_user": json.dumps({"username": USER.access_key, "password": USER.secret_key}),
}
BATCH = 32


async def running(stack: AsyncExitStack, root: Path, **settings: Any) -> Broker:
    broker = BrokerSettings(
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        log_dir=None,
        fast_failure=False,
        **settings,
    )
    started = Broker(BrokerConfiguration(broker, StoreSettings(root=root, log_segment_bytes=64 << 20)))
    return await stack.enter_async_context(started)


def frames(body: bytes, credentials: Credentials | None) -> bytes:
    sign = signer(credentials)
    written = []
    for number in range(BATCH):
        frame = encode_request(
            SendMessageV2(
                producer_group="bench",
                topic="Bench",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=int(time.time() * 1000),
                flag=0,
                properties=encode_properties(
                    {"UNIQ_KEY": f"7F0000010000000000000000{number:08X}", "WAIT": "true"}
                ),
                reconsume_times=0,
                unit_mode=False,
                max_reconsume_times=0,
                batch=False,
                body=body,
            ),
            number,
        )
        if sign is not None:
            sign(frame)
        written.append(encode_frame(frame))
    return b"".join(written)


class Sender(asyncio.Protocol):
    """Sends a batch, counts the answers by their length prefixes, and sends the next."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sends = 0
        self._rest = b""
        self._answers = 0
        self.is_stopping = False
        self.stopped = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.data)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= 4 and len(data) - at - 4 >= (length := int.from_bytes(data[at : at + 4])):
            if b'"code":0' not in data[at : at + 4 + length]:
                raise SystemExit(f"a send was refused: {data[at : at + 300]!r}")
            at += 4 + length
            self._answers += 1
        self._rest = data[at:]
        if self._answers == BATCH:
            self._answers = 0
            self.sends += BATCH
            if self.is_stopping:
                self.stopped.set()
                self.transport.close()
            else:
                self.transport.write(self.data)


async def rate(broker: Broker, data: bytes, seconds: float) -> float:
    """Sends per second of this process' CPU time, which is nearly all the broker's."""
    _, sender = await asyncio.get_running_loop().create_connection(lambda: Sender(data), *broker.address)
    await asyncio.sleep(0.2)
    before, started = sender.sends, time.process_time()
    await asyncio.sleep(seconds)
    sends, used = sender.sends - before, time.process_time() - started
    sender.is_stopping = True
    await sender.stopped.wait()
    return sends / used


async def measure(seconds: float, body_bytes: int, rounds: int) -> dict[str, list[float]]:
    body = bytes(body_bytes)
    found: dict[str, list[float]] = {"plain": [], "signed": [], "known": [], "every": []}
    with tempfile.TemporaryDirectory() as root:
        async with AsyncExitStack() as stack:
            open_broker = await running(stack, Path(root) / "open")
            secure = await running(stack, Path(root) / "secure", **SECURE)
            for broker, credentials in ((open_broker, None), (secure, USER)):
                dialer = Dialer(before_send=signer(credentials))
                address = f"{broker.address[0]}:{broker.address[1]}"
                topic = CreateOrUpdateTopic(
                    topic="Bench", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
                    topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
                )  # fmt: skip
                await dialer.call(address, topic, 30)
                await dialer.close()
            plain, signed = frames(body, None), frames(body, USER)
            for _ in range(rounds):
                found["plain"].append(await rate(open_broker, plain, seconds))
                found["signed"].append(await rate(open_broker, signed, seconds))
                found["known"].append(await rate(secure, signed, seconds))
                control = secure.access.control
                assert control is not None
                remember = control._remember
                control._remember = lambda request, caller, connection: None  # type: ignore[method-assign]
                found["every"].append(await rate(secure, signed, seconds))
                control._remember = remember  # type: ignore[method-assign]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = asyncio.run(measure(options.seconds, options.body, options.rounds))
    base = statistics.median(found["plain"])
    for name, rates in found.items():
        middle = statistics.median(rates)
        print(f"{name:6} {middle:10,.0f} sends per CPU second   {base / middle:5.2f} x the cost of plain")


if __name__ == "__main__":
    main()
