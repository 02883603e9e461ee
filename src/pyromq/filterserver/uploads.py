"""Uploads of filters: refused unless the operator allows them, tried before they count, and audited."""

import logging
from hashlib import sha256
from zlib import crc32

from pyromq.errors import Refused
from pyromq.filterserver.exchange import FilterSource
from pyromq.filterserver.filtered_broker import FilteredBroker
from pyromq.filterserver.filters import Filters
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.protocol.codes import ResponseCode, code_name
from pyromq.protocol.requests.filter_servers import UploadFilter
from pyromq.remoting.routing import Caller, handles

_audit = logging.getLogger("pyromq.audit")

_POSITIVE = 0x7FFF_FFFF
"""java: CRCs have no sign"""


class Uploads:
    def __init__(self, settings: FilterServerSettings, filters: Filters, link: FilteredBroker) -> None:
        self._settings = settings
        self._filters = filters
        self._link = link

    def __repr__(self) -> str:
        return f"<Uploads to {self._filters!r}>"

    @handles(UploadFilter)
    async def upload(self, request: UploadFilter, caller: Caller) -> None:
        outcome: int = ResponseCode.SUCCESS
        try:
            await self._filters.put(self._checked(request))
        except Refused as refusal:
            outcome = refusal.code
            raise
        finally:
            _audit.info(
                "user=%s peer=%s request=UploadFilter outcome=%s group=%.255s topic=%.255s name=%.255r"
                " bytes=%d sha256=%s",
                caller.user or "-",
                caller.address,
                code_name(outcome),
                request.consumer_group,
                request.topic,
                request.class_name,
                len(request.body),
                sha256(request.body).hexdigest(),
            )

    def _checked(self, request: UploadFilter) -> FilterSource:
        if not self._settings.takes_filters:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                "this filter server takes no filters: its operator has not set"
                " clientUploadFilterClassEnable=true",
            )
        if len(request.body) > (most := self._settings.filter_source_bytes):
            raise _invalid(f"the source has {len(request.body)} bytes, {most} are allowed")
        # java: 0 means that there is none
        if request.class_crc and request.class_crc != crc32(request.body) & _POSITIVE:
            raise _invalid(f"the source does not have the CRC {request.class_crc}")
        name = self._link.broker_name
        source = FilterSource(
            request.consumer_group, request.topic, request.class_name, bytes(request.body), name
        )
        if not source.is_module:
            try:
                source.source.decode()
            except UnicodeDecodeError as problem:
                raise _invalid(f"the source is not UTF-8: {problem}") from None
        return source


def _invalid(why: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, why)
