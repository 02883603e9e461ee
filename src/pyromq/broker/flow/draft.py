"""A message that is about to be stored."""

import msgspec


class Draft(msgspec.Struct):
    """Properties are raw bytes, hosts are packed."""

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
    """The message is parked for the time of this level; 0 or less means no delay."""
    deliver_ms: int = 0
    """The time that its properties ask for, if the broker itself wrote them at `born_timestamp`; 0 if they
    must be searched for it."""
    light_queues: list[str] = []
    """Those in which the message has an offset."""
    is_half: bool = False
    """The message is parked until its transaction ends; then it may have to wait for its delay level."""
