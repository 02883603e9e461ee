"""A simulated etcd: what etcd promises to controllers, at the wire of its JSON gateway.

Calls are carried out one after the other, each as a whole, and nothing that was answered is ever lost: a kill
or a loss of power leaves `EtcdData` as it is. A lease ends by the clock, a little late, and takes its keys
with it; after a restart each lease has its whole time again, as under a new leader of etcd. Watches and reads
of old revisions, which compaction is about, are missing: no controller asks for them.
"""

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import h11
import msgspec
from tests.simulation.network import Network
from tests.simulation.processes import Process

from pyromq.remoting.program import Program, Work

ETCD_PORT = 2379
_LATE_S = 0.5
"""etcd looks for leases that have ended at this interval."""
_NUMBERS = {"CREATE": "create_revision", "MOD": "mod_revision", "VERSION": "version", "LEASE": "lease"}


class _Key(msgspec.Struct, frozen=True):
    value: str
    create_revision: int
    mod_revision: int
    version: int
    lease: int


_NO_KEY = _Key("", 0, 0, 0, 0)


class _Lease(msgspec.Struct):
    ttl_s: int
    ends_s: float


class Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class EtcdData:
    """The state of etcd, whichever process serves it."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        """It is slow: so long before and after each call."""
        self.wipe()

    def wipe(self) -> None:
        self.revision = 1
        self._keys: dict[bytes, _Key] = {}
        self._leases: dict[int, _Lease] = {}

    def value(self, key: str) -> tuple[int, bytes] | None:
        """The revision at which a key was changed last, and its value."""
        found = self._keys.get(key.encode())
        return None if found is None else (found.mod_revision, base64.b64decode(found.value))

    # Leases

    def restarted(self, now_s: float) -> None:
        for lease in self._leases.values():
            lease.ends_s = now_s + lease.ttl_s

    def end_leases(self, now_s: float) -> None:
        for number in [number for number, lease in self._leases.items() if lease.ends_s <= now_s]:
            self._revoke(number)

    def _revoke(self, number: int) -> None:
        del self._leases[number]
        left = {key: each for key, each in self._keys.items() if each.lease != number}
        if len(left) < len(self._keys):
            self._keys = left
            self.revision += 1

    # Calls

    def answer(self, path: str, asked: dict[str, Any], now_s: float, new_lease: int) -> dict[str, Any]:
        """The answer to `POST /v3/<path>`; raises Refusal."""
        if path == "kv/txn":
            return self._transact(asked)
        if path == "lease/grant":
            self._leases[new_lease] = _Lease(int(asked["TTL"]), now_s + int(asked["TTL"]))
            return {"header": self._header(), "ID": str(new_lease), "TTL": str(asked["TTL"])}
        if path == "lease/keepalive":
            return {"result": {"header": self._header(), **self._keep_alive(int(asked["ID"]), now_s)}}
        if path == "lease/revoke":
            self._revoke(self._known_lease(int(asked["ID"])))
            return {"header": self._header()}
        raise Refusal(404, "Not Found")

    def _header(self) -> dict[str, str]:
        return {"revision": str(self.revision)}

    def _known_lease(self, number: int) -> int:
        if number not in self._leases:
            raise Refusal(404, "etcdserver: requested lease not found")
        return number

    def _keep_alive(self, number: int, now_s: float) -> dict[str, str]:
        lease = self._leases.get(number)
        if lease is None or lease.ends_s <= now_s:
            return {"ID": str(number)}
        lease.ends_s = now_s + lease.ttl_s
        return {"ID": str(number), "TTL": str(lease.ttl_s)}

    def _transact(self, asked: dict[str, Any]) -> dict[str, Any]:
        succeeded = all(map(self._holds, asked.get("compare", ())))
        wanted = asked.get("success" if succeeded else "failure", ())
        puts = [each["request_put"] for each in wanted if "request_put" in each]
        for put in puts:
            if "lease" in put:
                self._known_lease(int(put["lease"]))
        self.revision += bool(puts)
        answers = [self._carry_out(each) for each in wanted]
        answer: dict[str, Any] = {"header": self._header()}
        if succeeded:
            answer["succeeded"] = True
        if answers:
            answer["responses"] = answers
        return answer

    def _holds(self, condition: dict[str, Any]) -> bool:
        if condition["result"] != "EQUAL" or condition["target"] not in _NUMBERS:
            raise Refusal(400, f"not simulated: {condition}")
        name = _NUMBERS[condition["target"]]
        found: int = getattr(self._keys.get(_bytes(condition["key"]), _NO_KEY), name)
        return found == int(condition.get(name, 0))

    def _carry_out(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if "request_put" in wanted:
            put = wanted["request_put"]
            key = _bytes(put["key"])
            before = self._keys.get(key, _NO_KEY)
            self._keys[key] = _Key(
                put["value"],
                before.create_revision or self.revision,
                self.revision,
                before.version + 1,
                int(put.get("lease", 0)),
            )
            return {"response_put": {"header": self._header()}}
        found = list(self._range(wanted["request_range"]))
        answer: dict[str, Any] = {"header": self._header()}
        if found:
            answer |= {"kvs": found, "count": str(len(found))}
        return {"response_range": answer}

    def _range(self, asked: dict[str, str]) -> Iterator[dict[str, str]]:
        first, last = _bytes(asked["key"]), _bytes(asked.get("range_end", ""))
        for key, found in sorted(self._keys.items()):
            if key == first or first <= key < last:
                fields = {name: str(each) for name, each in msgspec.structs.asdict(found).items() if each}
                yield {"key": base64.b64encode(key).decode(), **fields}


class SimulatedEtcd(Program):
    """The process that serves the data."""

    NAME = "etcd"

    def __init__(self, data: EtcdData, network: Network, process: Process) -> None:
        super().__init__()
        self._data = data
        self._network = network
        self._process = process

    def __repr__(self) -> str:
        return f"<SimulatedEtcd revision={self._data.revision}>"

    async def _open(self, _: AsyncExitStack) -> None:
        self._data.restarted(self._now_s)
        self._listener = self._network.listen(self._process, ETCD_PORT)
        self._listener.add_reader(self._accept)

    def _work(self) -> Work:
        return {"leases": self._end_leases()}

    async def _drain(self) -> None:
        self._listener.close()

    @property
    def _now_s(self) -> float:
        return self._process.host.clock.monotonic()

    async def _end_leases(self) -> None:
        while True:
            await asyncio.sleep(_LATE_S)
            self._data.end_leases(self._now_s)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        reader = asyncio.StreamReader()
        accepted.connect_protocol(asyncio.StreamReaderProtocol(reader, self._serve))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            http = h11.Connection(h11.SERVER)
            path, body = await _request(http, reader)
            await asyncio.sleep(self._data.delay_s)
            status, answer = self._answer(path, body)
            await asyncio.sleep(self._data.delay_s)
            data = json.dumps(answer).encode()
            for event in (
                h11.Response(status_code=status, headers=[("Content-Length", str(len(data)))]),
                h11.Data(data=data),
                h11.EndOfMessage(),
            ):
                writer.write(http.send(event) or b"")
            await writer.drain()
        except (OSError, EOFError, h11.RemoteProtocolError):
            pass  # the caller is gone
        finally:
            writer.close()

    def _answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        new_lease = self._process.chance.getrandbits(62)
        try:
            return 200, self._data.answer(path, json.loads(body), self._now_s, new_lease)
        except Refusal as refusal:
            return refusal.status, {"error": str(refusal), "message": str(refusal)}


async def _request(http: h11.Connection, reader: asyncio.StreamReader) -> tuple[str, bytes]:
    path, body = "", bytearray()
    while True:
        found = http.next_event()
        if found is h11.NEED_DATA:
            http.receive_data(await reader.read(65536))
        elif isinstance(found, h11.Request):
            path = found.target.decode().removeprefix("/v3/")
        elif isinstance(found, h11.Data):
            body += found.data
        elif isinstance(found, h11.EndOfMessage):
            return path, bytes(body)
        else:
            raise EOFError


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
