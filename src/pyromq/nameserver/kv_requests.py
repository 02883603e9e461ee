"""Reads and writes the key-value entries of administrators."""

from collections.abc import Callable

from pyromq.config.saving import Saving
from pyromq.errors import Refused, StoreError
from pyromq.nameserver.kv_table import ORDER_TOPIC_CONFIG, KvTable
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.kv import (
    DeleteKvEntry,
    GetKvEntry,
    GetKvEntryAnswer,
    GetKvNamespace,
    KVTable,
    PutKvEntry,
)
from pyromq.remoting.routing import Caller, handles


class KvRequests:
    """`order_changed` is called with each topic whose order configuration changed."""

    def __init__(self, table: KvTable, saving: Saving[bytes], order_changed: Callable[[str], None]) -> None:
        self._table = table
        self._saving = saving
        self._order_changed = order_changed

    def __repr__(self) -> str:
        return f"<KvRequests {self._table!r} {self._saving!r}>"

    @handles(PutKvEntry)
    async def put(self, request: PutKvEntry, caller: Caller) -> None:
        self._table.put(request.namespace, request.key, request.value)
        await self._changed(request.namespace, request.key)

    @handles(DeleteKvEntry)
    async def delete(self, request: DeleteKvEntry, caller: Caller) -> None:
        self._table.delete(request.namespace, request.key)
        await self._changed(request.namespace, request.key)

    @handles(GetKvEntry)
    def get(self, request: GetKvEntry, caller: Caller) -> GetKvEntryAnswer:
        value = self._table.get(request.namespace, request.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {request.namespace} Key: {request.key}",
            )
        return GetKvEntryAnswer(value=value)

    @handles(GetKvNamespace)
    def get_namespace(self, request: GetKvNamespace, caller: Caller) -> BodyAnswer[KVTable]:
        entries = self._table.namespace(request.namespace)
        if entries is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.namespace}")
        return BodyAnswer(body=KVTable(table=dict(entries)))

    async def _changed(self, namespace: str, key: str) -> None:
        if namespace == ORDER_TOPIC_CONFIG:
            self._order_changed(key)
        try:
            await self._saving.save()
        except StoreError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"changed, but only in memory: {problem}") from None
