"""What access control costs: signed sends to brokers that check them, beside plain sends to open ones.

    python -m benchmarks.access [--quick] [--servers pyromq,apache-5.3.3] [--rounds 5] [--json FILE]

- `open`: plain sends to a broker without access control
- `known`: signed sends to one with users and policies (ACL 2.0), on connections that it knows. Ours knows
  those with TLS and those from the same machine; Apache's all of them, with its Stateful strategies
- `every`: the same where every signature is checked, on a network without TLS; Apache's default

CPU time is the broker's alone, all threads, for each send; a load ends when the broker has used some.
The loads of one server take turns, round by round (benchmarks/turns.py); a ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hmac
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.broker import SETTINGS, available
from benchmarks.turns import Running, hold, ratios, short, spread
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_4, APACHE_5
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

KEY, SECRET = "bench", "the password of bench"
TOPIC: Final = "Bench"
CONNECTIONS, IN_FLIGHT = 2, 32
OPEN, KNOWN, EVERY = "open", "known", "every"
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

Costs = dict[str, list[float]]
"""CPU µs of a send, by load, round by round."""


def signed(code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    """As Apache's clients sign: the values in the order of their names, then the body."""
    ext = {**ext, "AccessKey": KEY}
    content = "".join(ext[name] for name in sorted(ext)).encode() + body
    signature = base64.b64encode(hmac.digest(SECRET.encode(), content, "sha1")).decode()
    return wire.frame(code, {**ext, "Signature": signature}, body)


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


def cost_us(server: Running, load: str, body: bytes, cpu_s: float) -> float:
    """CPU µs of one send."""
    with server.turn():
        frame = (wire.frame if load == OPEN else signed)(wire.SEND_MESSAGE_V2, send_fields(), body)
        connections = [wire.Wire(server.port) for _ in range(CONNECTIONS)]
        if load == EVERY and server.name == "pyromq":
            for connection in connections:
                connection.send(PREAMBLE)
        for connection in connections:  # the first on a connection is checked anyhow
            header, _ = connection.call(frame)
            if header["code"] != 0:
                raise SystemExit(f"{server.name} refused a send: {header}")
        sends, began = 0, server.cpu_s()
        while server.cpu_s() - began < cpu_s:
            for connection in connections:
                connection.send(*[frame] * IN_FLIGHT)
            for connection in connections:
                answered = 0
                while answered < IN_FLIGHT:
                    headers = connection.receive_headers()
                    answered += len(headers)
                    if any(b'"code":0' not in header for header in headers):
                        raise SystemExit(f"{server.name} refused a send: {headers}")
                sends += IN_FLIGHT
        used = server.cpu_s() - began
        for connection in connections:
            connection.close()
    return used / sends * 1e6


@contextlib.contextmanager
def brokers(name: str) -> Iterator[dict[str, Running]]:
    """By load; brokers of one name that take turns, each with the topic."""
    kinds = {OPEN: {}, KNOWN: OWN_SECURE}
    if name != "pyromq":
        kinds = {OPEN: {}, EVERY: APACHE_SECURE, KNOWN: APACHE_STATEFUL}
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(OwnNameServer())
        found: dict[str, Running] = {}
        for load, more in kinds.items():
            store = Path(tempfile.mkdtemp(prefix="pyromq-bench-"))
            stack.callback(shutil.rmtree, store, ignore_errors=True)
            settings = {**SETTINGS, "flushDiskType": "ASYNC_FLUSH", **more}
            if name == "pyromq":
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
        if name == "pyromq":
            found[EVERY] = found[KNOWN]
        yield found


def measure(name: str, body: bytes, rounds: int, cpu_s: float) -> Costs:
    found: Costs = {load: [] for load in (OPEN, KNOWN, EVERY)}
    with brokers(name) as servers:
        for load in found:  # a JVM compiles its hot paths only after some seconds of them
            cost_us(servers[load], load, body, cpu_s * (1 if name == "pyromq" else 8))
        for number in range(rounds):
            loads = [*found][number % 3 :] + [*found][: number % 3]
            for load in loads:
                found[load].append(cost_us(servers[load], load, body, cpu_s))
    return found


def as_table(costs: dict[str, Costs]) -> str:
    names = list(costs)
    heads = [f"{name}, CPU µs a send | × open" for name in names]
    ours = [f"ours ÷ {name}" for name in names[1:]]
    lines = [
        "| load | " + " | ".join([*heads, *ours]) + " |",
        "|---" * (1 + 2 * len(names) + len(ours)) + "|",
    ]
    for load in (OPEN, KNOWN, EVERY):
        cells = [load]
        for name in names:
            values = costs[name][load]
            cells += [short(sorted(values)[len(values) // 2]), spread(ratios(values, costs[name][OPEN]))]
        cells += [spread(ratios(costs[names[0]][load], costs[name][load])) for name in names[1:]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--servers", default="pyromq,apache-5.3.3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time of the broker in each load")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args(arguments)
    rounds, cpu_s = (1, 0.2) if options.quick else (options.rounds, options.seconds)
    names = available(options.servers.split(","))
    costs = {name: measure(name, bytes(options.body), rounds, cpu_s) for name in names}
    print(as_table(costs))
    if options.json:
        options.json.write_text(json.dumps(costs, indent=1) + "\n")


if __name__ == "__main__":
    main()
