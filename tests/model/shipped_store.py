"""The shipped store of several controllers, as far as one write goes: etcd compares what the write names."""

from types import SimpleNamespace
from typing import Any, Final, cast

from tests.model.shipped_master import NAME

from pyromq.controller.etcd_store import EtcdStore
from pyromq.controller.groups import GroupRecord

_REVISION: Final = 5
_TERM: Final = 3
_LEASE: Final = 7


class _Etcd:
    """What it has of the leader and of the group."""

    def __init__(self, term: int, revision: int) -> None:
        self._lease = _LEASE if term == _TERM else _LEASE + 1
        self._has = {
            "CREATE": ("create_revision", term),
            "LEASE": ("lease", self._lease),
            "MOD": ("mod_revision", revision),
        }

    async def call(self, _: str, body: dict[str, Any]) -> dict[str, Any]:
        succeeded = all(
            int(each[self._has[each["target"]][0]]) == self._has[each["target"]][1]
            for each in body["compare"]
        )
        leader = {"lease": str(self._lease)}
        return {"succeeded": succeeded, "responses": [{"response_range": {"kvs": [leader]}}]}


def replaces(is_stale: bool, is_deposed: bool) -> bool:
    """Whether a decided change is written, if the group has changed since it was read, or another controller
    leads since then. Raises NotLeading."""
    etcd = _Etcd(_TERM + is_deposed, _REVISION + is_stale)
    store = EtcdStore(cast(Any, etcd), "/", 5, cast(Any, SimpleNamespace(since_boot=lambda: 0.0)))
    store._term, store._lease_id, store._sure_until = _TERM, str(_LEASE), 1.0  # as when the write left
    write = store.replace(NAME, GroupRecord(cluster="c", name=NAME), _REVISION)
    try:
        write.send(None)
    except StopIteration as done:
        return bool(done.value)
    raise AssertionError("it waits for something")
