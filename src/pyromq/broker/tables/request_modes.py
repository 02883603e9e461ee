"""Which groups pull and which pop, by topic. Operators set it; consumers that ask the broker follow it."""

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.protocol.requests.popping import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from pyromq.store.json_table import JsonTable


class RequestModeTable(FiledTable):
    def __init__(self, file: JsonTable) -> None:
        self._file = TableFile(file, self.wrapper)
        loaded = file.load(MessageRequestModeSerializeWrapper) or MessageRequestModeSerializeWrapper()
        self._modes = loaded.message_request_mode_map

    def __repr__(self) -> str:
        return f"<RequestModeTable topics={len(self._modes)}>"

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        return self._modes.get(topic, {}).get(group)

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """It is on disk after `saved`."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._file.save()

    def copy(self, table: MessageRequestModeSerializeWrapper) -> None:
        """Take over a master's modes."""
        if table.message_request_mode_map != self._modes:
            self._modes = table.message_request_mode_map
            self._file.save()

    def wrapper(self) -> MessageRequestModeSerializeWrapper:
        """A copy that later changes leave alone."""
        return MessageRequestModeSerializeWrapper(
            message_request_mode_map={topic: dict(groups) for topic, groups in self._modes.items()}
        )
