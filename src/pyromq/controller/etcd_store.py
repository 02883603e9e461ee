"""The store of two or more controllers: groups in etcd, which one of them may change while it has a lease.

A controller leads while it holds the leader key. Every read and every change is one transaction that also
compares this key: a controller that was replaced reads and changes nothing, whatever it believes. By its own
clock it stops leading before etcd can give the lease away.
"""

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyromq.clock import Clock
from pyromq.controller.etcd_gateway import EtcdGateway
from pyromq.controller.groups import GroupRecord, decode_group, encode_group
from pyromq.controller.store import Leader, NotLeading, Stored
from pyromq.errors import StoreError

_log = logging.getLogger(__name__)

_ROUNDS_PER_LEASE = 4
_SURE_SHARE = 0.85
"""The share of a lease in which it is surely held, although clocks do not run alike."""


class EtcdStore:
    def __init__(self, gateway: EtcdGateway, prefix: str, lease_s: int, clock: Clock) -> None:
        self._gateway = gateway
        self._groups = f"{prefix}groups/"
        self._leader_key = _text(f"{prefix}leader")
        self._lease_s = lease_s
        self._clock = clock
        self._own: Leader | None = None
        self._lease_id = ""
        self._term = 0
        """The revision at which we made the leader key; 0 while we do not lead."""
        self._sure_until = 0.0
        self._leader: Leader | None = None
        self._leader_until = 0.0
        self._is_reachable = True
        self._begun: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<EtcdStore {self._gateway!r} term={self._term}>"

    @property
    def leader(self) -> Leader | None:
        if self.is_leading:
            return self._own
        return self._leader if self._clock.since_boot() < self._leader_until else None

    @property
    def is_leading(self) -> bool:
        return self._term != 0 and self._clock.since_boot() < self._sure_until

    @property
    def size_bytes(self) -> int:
        return 0

    def on_leading(self, begun: Callable[[], None]) -> None:
        self._begun = begun

    async def open(self, own: Leader) -> None:
        self._own = own
        await self.compete()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / _ROUNDS_PER_LEASE)
            try:
                await self.compete()
            except StoreError as problem:
                if self._is_reachable:
                    _log.error("etcd cannot be used, masters stay as they are: %s", problem)
                self._is_reachable = False
            else:
                if not self._is_reachable:
                    _log.info("etcd can be used again")
                self._is_reachable = True

    async def close(self) -> None:
        """Let the next one lead at once."""
        self._own, self._term = None, 0
        if self._lease_id:
            try:
                await self._gateway.call("lease/revoke", {"ID": self._lease_id})
            except StoreError as problem:
                _log.warning("could not give back the lease, it expires by itself: %s", problem)

    async def compete(self) -> None:
        """Keep the lease alive, and take the leader key if it is free; raises StoreError."""
        asked_at = self._clock.since_boot()
        if not self._lease_id or not await self._keep_alive():
            self._lose("the lease has expired")
            self._lease_id = str((await self._gateway.call("lease/grant", {"TTL": self._lease_s}))["ID"])
        if self._own is None:
            return
        value = _text(json.dumps({"id": self._own.id, "address": self._own.address}))
        made = {"key": self._leader_key, "value": value, "lease": self._lease_id}
        answer = await self._transact(
            [_created(self._leader_key, 0)],
            [{"request_put": made}],
            [{"request_range": {"key": self._leader_key}}],
        )
        found = _found(answer)
        if answer.get("succeeded"):
            self._lead(int(answer["header"]["revision"]), asked_at)
        elif found and found[0].get("lease") == self._lease_id:  # Perhaps since a call whose answer was lost.
            self._lead(int(found[0]["create_revision"]), asked_at)
        else:
            self._lose("another controller leads")
            if found:
                self._leader = _leader_in(_bytes(found[0]["value"]))
                self._leader_until = asked_at + self._lease_s

    def _lead(self, term: int, asked_at: float) -> None:
        is_new = term != self._term
        self._term = term
        self._sure_until = asked_at + self._lease_s * _SURE_SHARE
        if is_new:
            _log.info("this controller leads term=%d", term)
            self._begun()

    async def _keep_alive(self) -> bool:
        answer = await self._gateway.call("lease/keepalive", {"ID": self._lease_id})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    def _lose(self, reason: str) -> None:
        if self._term:
            _log.warning("this controller does not lead any more: %s", reason)
        self._term = 0

    async def read(self, name: str) -> Stored:
        found = await self._fenced_range({"key": _text(self._groups + name)})
        return _stored(found[0]) if found else Stored(None, 0)

    async def read_all(self) -> Mapping[str, Stored]:
        end = self._groups[:-1] + chr(ord(self._groups[-1]) + 1)
        found = await self._fenced_range({"key": _text(self._groups), "range_end": _text(end)})
        return {_bytes(each["key"]).decode().removeprefix(self._groups): _stored(each) for each in found}

    async def replace(self, name: str, group: GroupRecord, revision: int) -> bool:
        key = _text(self._groups + name)
        unchanged = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        answer = await self._transact(
            [*self._fences(), unchanged],
            [{"request_put": {"key": key, "value": _base64(encode_group(group))}}],
            [{"request_range": {"key": self._leader_key}}],
        )
        if answer.get("succeeded"):
            return True
        found = _found(answer)
        if not found or found[0].get("lease") != self._lease_id:
            raise self._deposed()
        return False

    async def _fenced_range(self, wanted: dict[str, str]) -> list[dict[str, str]]:
        """A read that sees everything committed before it, for the leader only."""
        answer = await self._transact(self._fences(), [{"request_range": wanted}], [])
        if not answer.get("succeeded"):
            raise self._deposed()
        return _found(answer)

    def _fences(self) -> list[dict[str, str]]:
        """The leader key is the one we made, with our lease. An etcd whose data was lost counts its
        revisions from 1 again, so another controller's key may have our revision."""
        if not self.is_leading:
            raise NotLeading("another controller leads, or none")
        held = {"key": self._leader_key, "target": "LEASE", "result": "EQUAL", "lease": self._lease_id}
        return [_created(self._leader_key, self._term), held]

    def _deposed(self) -> NotLeading:
        self._lose("another controller leads, or none")
        return NotLeading("another controller leads, or none")

    async def _transact(
        self, compare: list[dict[str, str]], success: list[Any], failure: list[Any]
    ) -> dict[str, Any]:
        return await self._gateway.call(
            "kv/txn", {"compare": compare, "success": success, "failure": failure}
        )


def _leader_in(data: bytes) -> Leader:
    try:
        told = json.loads(data)
        return Leader(str(told["id"]), str(told["address"]))
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"the leader key in etcd has a strange value: {data[:100]!r}") from None


def _created(key: str, revision: int) -> dict[str, str]:
    """The condition that a key was made at a revision; 0: it does not exist."""
    return {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": str(revision)}


def _found(answer: dict[str, Any]) -> list[dict[str, str]]:
    """The keys of the first range in the answer to a transaction."""
    for each in answer.get("responses", ()):
        if "response_range" in each:
            found: list[dict[str, str]] = each["response_range"].get("kvs", [])
            return found
    return []


def _stored(found: dict[str, str]) -> Stored:
    return Stored(decode_group(_bytes(found["value"])), int(found["mod_revision"]))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _text(text: str) -> str:
    return _base64(text.encode())


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
