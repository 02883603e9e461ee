"""State that the parts of one FastStream broker share."""

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from faststream._internal.configs import BrokerConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

from pyromq.errors import StateError
from pyromq.faststream.link import StreamLink
from pyromq.faststream.producer import RocketProducer


@dataclass(kw_only=True)
class RocketBrokerConfig(BrokerConfig):
    producer: RocketProducer = field(default_factory=RocketProducer)
    connected: StreamLink | None = None
    is_in_memory: bool = False
    """In tests of applications: messages do not leave the process."""

    @property
    def link(self) -> StreamLink:
        if self.connected is None:
            raise StateError("the broker is not connected: await broker.connect()")
        return self.connected

    def connect(self, link: StreamLink) -> None:
        self.connected = link
        self.producer.connect(link, self.fd_config._serializer, self.broker_codec)

    def disconnect(self) -> None:
        self.connected = None
        self.producer.disconnect()


_ID_CHARS = 32
"""Whole ids in the log: all those of one process begin alike."""


class _LogParameters(DefaultLoggerStorage):
    def __init__(self) -> None:
        super().__init__()
        self.logger_log_level = logging.INFO
        self._widths = {"topic": 5, "group": 5}

    def set_level(self, level: int) -> None:
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: Any) -> Any:
        if not (logger := self._get_logger_ref()):
            columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items())
            logger = get_broker_logger(
                name="rocketmq",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=_ID_CHARS,
                fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-{_ID_CHARS}s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


rocket_logger_state = partial(make_logger_state, default_storage_cls=_LogParameters)
