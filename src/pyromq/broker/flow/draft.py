"""A message on its way into the store, whoever wrote it."""

import msgspec


class Draft(msgspec.Struct):
    """Properties are raw, hosts are packed."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    delay_level: int = 0
    """How long it is to be parked before it is delivered; 0 or less is not at all."""
