"""The simulated etcd answers as a real one does, call by call."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.etcd import EtcdData, Refusal
from tests.support.etcd import running_etcd

from pyromq.controller.etcd_gateway import EtcdGateway, endpoints_in
from pyromq.errors import StoreError

Answer = dict[str, Any] | str


def text(word: str) -> str:
    return base64.b64encode(word.encode()).decode()


def put(key: str, value: str, **more: str) -> dict[str, Any]:
    return {"request_put": {"key": text(key), "value": text(value), **more}}


def get(key: str, end: str | None = None) -> dict[str, Any]:
    return {"request_range": {"key": text(key), **({"range_end": text(end)} if end is not None else {})}}


def unless(key: str, target: str, name: str, number: int) -> dict[str, Any]:
    return {"key": text(key), "target": target, "result": "EQUAL", name: str(number)}


def calls(lease: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a controller asks for, and what it may meet. `lease` was granted before."""
    created = [unless("a", "CREATE", "create_revision", 0)]
    yield "kv/txn", {"compare": created, "success": [put("a", "1", lease=lease)], "failure": [get("a")]}
    yield "kv/txn", {"compare": created, "success": [put("a", "2")], "failure": [get("a")]}
    yield "kv/txn", {"compare": [unless("a", "LEASE", "lease", 1)], "success": [], "failure": [get("b")]}
    for revision in (0, 2, 3):
        changed = [unless("g/1", "MOD", "mod_revision", revision)]
        yield "kv/txn", {"compare": changed, "success": [put("g/1", "x")], "failure": [get("g/1")]}
    yield "kv/txn", {"success": [put("g/2", "y"), put("g/3", "z"), get("g/", "g0")]}
    yield "kv/txn", {"compare": [], "success": [put("a", "1", lease="77")], "failure": []}
    yield "lease/keepalive", {"ID": lease}
    yield "lease/keepalive", {"ID": "77"}
    yield "lease/revoke", {"ID": "77"}
    yield "lease/revoke", {"ID": lease}
    yield "kv/txn", {"compare": created, "success": [get("a", "z")], "failure": []}


def plain(found: Any, lease: str) -> Any:
    """Without the names of members, and with one name for the lease."""
    if isinstance(found, dict):
        hidden = ("cluster_id", "member_id", "raft_term")
        return {name: plain(each, lease) for name, each in found.items() if name not in hidden}
    if isinstance(found, list):
        return [plain(each, lease) for each in found]
    return "the lease" if found == lease else found


class Simulated:
    def __init__(self) -> None:
        self.data = EtcdData()

    async def call(self, path: str, asked: dict[str, Any]) -> Answer:
        try:
            return self.data.answer(path, asked, now_s=0.0, new_lease=42)
        except Refusal as refusal:
            return f"etcd refused {path}: {refusal}"


class Real:
    def __init__(self, endpoint: str) -> None:
        self._gateway = EtcdGateway(endpoints_in(endpoint, key="x"), timeout_s=30)

    async def call(self, path: str, asked: dict[str, Any]) -> Answer:
        try:
            return await self._gateway.call(path, asked)
        except StoreError as problem:
            return str(problem)


async def answers_of(etcd: Simulated | Real) -> list[Any]:
    granted = await etcd.call("lease/grant", {"TTL": 60})
    assert isinstance(granted, dict)
    lease = granted["ID"]
    found = [plain(granted, lease)]
    for path, asked in calls(lease):
        found.append((path, plain(await etcd.call(path, asked), lease)))
    return found


async def test_the_simulated_etcd_answers_as_a_real_one(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        expected = await answers_of(Real(etcd.endpoint))
    assert await answers_of(Simulated()) == expected


def granted(data: EtcdData, now_s: float) -> str:
    return str(data.answer("lease/grant", {"TTL": 5}, now_s, new_lease=42)["ID"])


@pytest.mark.parametrize(("at_s", "is_there"), [(4.9, True), (5.0, False)])
def test_a_lease_ends_with_its_time_and_takes_its_keys(at_s: float, is_there: bool) -> None:
    data = EtcdData()
    lease = granted(data, now_s=0.0)
    data.answer("kv/txn", {"success": [put("a", "1", lease=lease), put("b", "2")]}, 0.0, 0)
    data.end_leases(at_s)
    assert (data.value("a") is not None) == is_there
    assert data.value("b") == (2, b"2")
    assert data.revision == 2 + (not is_there)


def test_a_lease_that_is_kept_alive_or_outlives_a_restart_has_its_whole_time_again() -> None:
    data = EtcdData()
    lease = granted(data, now_s=0.0)
    assert "TTL" in data.answer("lease/keepalive", {"ID": lease}, 4.0, 0)["result"]
    data.restarted(8.0)
    assert "TTL" in data.answer("lease/keepalive", {"ID": lease}, 12.9, 0)["result"]
    assert "TTL" not in data.answer("lease/keepalive", {"ID": lease}, 18.0, 0)["result"]
