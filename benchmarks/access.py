"""What access control costs: signed sends to brokers that check them, beside plain sends to open ones.

    python -m benchmarks.access [--quick] [--servers pyromq,apache-5.3.3] [--starts 4] [--json FILE]

- `open`: plain sends to a broker without access control
- `known`: signed sends to one with users and policies (ACL 2.0), on connections that it knows. Ours knows
  those with TLS and those from the same machine, and the sends have a full signature, too; Apache's knows all
  of them, with its Stateful strategies
- `every`: sends as Apache's clients sign them, where every signature is checked, on a network without TLS;
  Apache's default
- `full`: the same with full signatures, ours alone

CPU time is the broker's alone, all threads, for each send. A machine's speed changes within seconds by more
than access control costs, so the loads take turns of some milliseconds, hundreds of times, on connections
that stay open, all of them on the same processor. A ratio is taken within a turn, and told as the median of
all turns with its interval (benchmarks/turns.py). The brokers are started several times.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hmac
import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.broker import OWN, SETTINGS, available
from benchmarks.turns import Running, hold, narrow, orders, ratios, short
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_4, APACHE_5
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.cluster.signing import Sign, signers
from pyromq.protocol.frame import Frame
from pyromq.security.signature import Credentials

KEY, SECRET = "bench", "the password of bench"
TOPIC: Final = "Bench"
CONNECTIONS, IN_FLIGHT = 2, 32
OPEN, KNOWN, EVERY, FULL = "open", "known", "every", "full"
PREAMBLE: Final = b"PROXY TCP4 10.1.2.3 127.0.0.1 4000 10911\r\n"
"""Makes a connection of this machine one from elsewhere."""
USERS: Final = {
    "initAuthenticationUser": json.dumps({"username": KEY, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": KEY, "secretKey": SECRET}),
}
OWN_SECURE: Final = {**USERS, "denyByDefault": "true", "proxyProtocolTrustedAddresses": "127.0.0.1"}
_AUTH: Final = "org.apache.rocketmq.auth"
APACHE_SECURE: Final = {
    **USERS,
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
APACHE_STATEFUL: Final = {
    **APACHE_SECURE,
    "authenticationStrategy": f"{_AUTH}.authentication.strategy.StatefulAuthenticationStrategy",
    "authorizationStrategy": f"{_AUTH}.authorization.strategy.StatefulAuthorizationStrategy",
}
APACHE_JVM: Final = ("-Xms700m", "-Xmx700m", "-XX:+UseG1GC")

FULL_BURSTS: Final = 40
"""Made before a turn, which ends with them at the latest: each full signature is accepted once."""

APACHE_SCALE: Final = 20
"""Apache's turns are so many times longer: its collector and compiler work now and then."""
OWN_WARM_UP_S, JVM_WARM_UP_S = 0.5, 8.0
"""A JVM compiles its hot paths only after some seconds of them."""

Costs = dict[str, list[float]]
"""CPU µs of a send, by load, turn by turn."""


def signed(code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    """As Apache's clients sign: the values in the order of their names, then the body."""
    ext = {**ext, "AccessKey": KEY}
    content = "".join(ext[name] for name in sorted(ext)).encode() + body
    signature = base64.b64encode(hmac.digest(SECRET.encode(), content, "sha1")).decode()
    return wire.frame(code, {**ext, "Signature": signature}, body)


def fully_signed(sign: Sign, code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    """As our clients sign."""
    request = Frame(code, version=wire.VERSION, ext=ext, body=body)
    sign(request)
    return wire.frame(code, request.ext, body)


def new_signer() -> Sign:
    make = signers(Credentials(KEY, SECRET))
    assert make is not None
    return make()


def send_fields() -> dict[str, str]:
    properties = "UNIQ_KEY\x017F0000010000000000000000000000AC\x02WAIT\x01true\x02"
    now_ms = str(int(time.time() * 1000))
    return {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": now_ms,
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


TOPIC_FIELDS: Final = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


class Load:
    """Sends of one kind to one server, on connections that stay open."""

    def __init__(self, name: str, server: Running, body: bytes) -> None:
        self.name = name
        self._server = server
        self._body = body
        with server.turn():
            self._connections = {wire.Wire(server.port): new_signer() for _ in range(CONNECTIONS)}
            for connection, sign in self._connections.items():  # the first on a connection is checked anyhow
                if name in (EVERY, FULL) and server.name == OWN:
                    connection.send(PREAMBLE)
                answer, _ = connection.call(self._frame(sign))
                self._check([json.dumps(answer, separators=(",", ":")).encode()])

    def _frame(self, sign: Sign) -> bytes:
        if self.name == FULL or (self.name == KNOWN and self._server.name == OWN):
            return fully_signed(sign, wire.SEND_MESSAGE_V2, send_fields(), self._body)
        make = wire.frame if self.name == OPEN else signed
        return make(wire.SEND_MESSAGE_V2, send_fields(), self._body)

    def _bursts(self) -> dict[wire.Wire, bytes]:
        if self.name == FULL:  # each is accepted once
            return {
                connection: b"".join([self._frame(sign) for _ in range(IN_FLIGHT)])
                for connection, sign in self._connections.items()
            }
        return dict.fromkeys(self._connections, self._frame(new_signer()) * IN_FLIGHT)

    def _check(self, headers: Sequence[bytes]) -> None:
        if any(b'"code":0' not in header for header in headers):
            raise SystemExit(f"{self._server.name} refused a send: {headers}")

    def cost_us(self, cpu_s: float) -> float:
        """CPU µs of one send, in a turn that ends when the broker has used so much."""
        server, sends = self._server, 0
        first, *others = [self._bursts() for _ in range(FULL_BURSTS if self.name == FULL else 1)]
        supply = iter(others) if self.name == FULL else itertools.repeat(first)
        with server.turn():
            self._send(first)  # what the broker did not do while it was stopped is not counted
            began = server.cpu_s()
            for bursts in supply:
                self._send(bursts)
                sends += CONNECTIONS * IN_FLIGHT
                if server.cpu_s() - began >= cpu_s:
                    break
            return (server.cpu_s() - began) / sends * 1e6

    def _send(self, bursts: dict[wire.Wire, bytes]) -> None:
        for connection, burst in bursts.items():
            connection.send(burst)
        for connection in self._connections:
            answered = 0
            while answered < IN_FLIGHT:
                headers = connection.receive_headers()
                answered += len(headers)
                self._check(headers)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@contextlib.contextmanager
def brokers(name: str) -> Iterator[dict[str, Running]]:
    """By load; brokers of one name that take turns, each with the topic."""
    kinds = {OPEN: {}, KNOWN: OWN_SECURE, EVERY: OWN_SECURE, FULL: OWN_SECURE}
    if name != OWN:
        kinds = {OPEN: {}, KNOWN: APACHE_STATEFUL, EVERY: APACHE_SECURE}
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(OwnNameServer())
        found: dict[str, Running] = {}
        for load, more in kinds.items():
            store = Path(tempfile.mkdtemp(prefix="pyromq-bench-"))
            stack.callback(shutil.rmtree, store, ignore_errors=True)
            settings = {**SETTINGS, "flushDiskType": "ASYNC_FLUSH", **more}
            if name == OWN:
                settings["storePathRootDir"] = str(store)
                own = stack.enter_context(OwnBroker(names.address, name=load, settings=settings))
                server = Running(name, own.port, own.pid)
            else:
                release = APACHE_5 if name.endswith(APACHE_5.servers) else APACHE_4
                settings["authConfigPath"] = str(store / "auth")
                theirs = ApacheBroker(
                    release, names.address, store, name=load, settings=settings, jvm=APACHE_JVM
                )
                stack.enter_context(theirs)
                assert theirs.pid is not None
                server = Running(name, theirs.port, theirs.pid)
            asking = wire.Wire(server.port)
            make = wire.frame if load == OPEN else signed
            header, _ = asking.call(make(wire.CREATE_TOPIC, TOPIC_FIELDS))
            if header["code"] != 0:
                raise SystemExit(f"{name} refused a topic: {header}")
            asking.close()
            hold(server, stack)
            found[load] = server
        yield found


def measure(name: str, body: bytes, turns: int, cpu_s: float) -> Costs:
    with brokers(name) as servers, contextlib.ExitStack() as stack:
        found: Costs = {load: [] for load in servers}
        loads = [Load(each, servers[each], body) for each in found]
        for load in loads:
            stack.callback(load.close)
            load.cost_us(OWN_WARM_UP_S if name == OWN else JVM_WARM_UP_S)
        processors = itertools.cycle(sorted(os.sched_getaffinity(0)))
        for order, processor in zip(orders(loads, turns), processors, strict=False):
            for load in order:
                servers[load.name].pin(processor)
                found[load.name].append(load.cost_us(cpu_s))
        return found


def times_open(starts: Sequence[Costs], load: str) -> list[float]:
    """What a send of this load costs, divided by an open one of the same turn."""
    return [each for costs in starts for each in ratios(costs[load], costs[OPEN])]


def as_table(found: dict[str, list[Costs]]) -> str:
    names = list(found)
    heads = [f"{name}, CPU µs a send | × open" for name in names]
    ours = [f"ours ÷ {name}" for name in names[1:]]
    lines = [
        "| load | " + " | ".join([*heads, *ours]) + " |",
        "|---" * (1 + 2 * len(names) + len(ours)) + "|",
    ]
    for load in (OPEN, KNOWN, EVERY, FULL):
        has = [name for name in names if load in found[name][0]]
        middles = [statistics.median(cost for costs in found[name] for cost in costs[load]) for name in has]
        cells = [load]
        for name, middle in zip(has, middles, strict=True):
            cells += [short(middle), "1" if load == OPEN else narrow(times_open(found[name], load))]
        cells += [f"{middles[0] / theirs:.3f}" for theirs in middles[1:]]
        cells += [""] * (3 * (len(names) - len(has)))
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, starts in found.items():
        medians = [f"{statistics.median(times_open([costs], KNOWN)):.3f}" for costs in starts]
        turns = sum(len(costs[OPEN]) for costs in starts)
        lines.append(f"{name}: {turns} turns; known × open of each start: {', '.join(medians)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few short turns: does it work at all?")
    parser.add_argument("--servers", default="pyromq,apache-5.3.3")
    parser.add_argument("--starts", type=int, default=10, help="how often our brokers are started")
    parser.add_argument("--turns", type=int, default=100, help="of each load after each start")
    parser.add_argument("--milliseconds", type=float, default=10, help="CPU time of our broker in a turn")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args(arguments)
    starts, turns = (1, 10) if options.quick else (options.starts, options.turns)
    found: dict[str, list[Costs]] = {}
    for name in available(options.servers.split(",")):
        scale, begun = (1, starts) if name == OWN else (APACHE_SCALE, 1)
        cpu_s = options.milliseconds * scale / 1000
        found[name] = [measure(name, bytes(options.body), turns, cpu_s) for _ in range(begun)]
    print(as_table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
