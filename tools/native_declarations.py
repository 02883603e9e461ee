"""Numbers and names that the compiled core repeats, written from where the source declares them.

The compiler wants them as constants. The fields of requests need no such file: `protocol/requests.pyx` reads
the catalogue itself.

python -m tools.native_declarations    (writes the file anew)
"""

import re
from types import ModuleType
from typing import Final

from tests.support.places import ROOT

from pyromq.broker.services import pulling as pulling_service
from pyromq.broker.services import sending as sending_service
from pyromq.protocol import batch, binary_header, frame, framing, names, properties, record
from pyromq.protocol.catalogue import Request, declaration_of
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.security import full_signature, signature
from pyromq.store.index import index_file
from pyromq.store.light import entries as light_entries
from pyromq.store.light import names as light_names
from pyromq.store.queues import queue_files

PACKAGE: Final = ROOT / "native" / "src" / "pyromq_native"
PATH: Final = PACKAGE / "protocol" / "declared.pxd"

_CODES: Final[dict[str, type[Request]]] = {  # type: ignore[type-arg]
    "SEND": SendMessage,
    "PULL": PullMessage,
    "END": EndTransaction,
    "SEND_V2": SendMessageV2,
    "SEND_BATCH": SendMessageBatch,
    "LITE_PULL": LitePullMessage,
    "ACK": AckMessage,
}

_NUMBERS: Final = {
    "frames": {
        "PREFIX_BYTES": framing._PREFIX.size,
        "MAX_HEADER_BYTES": framing.MAX_HEADER_BYTES,
        "FIXED_BINARY_BYTES": binary_header._FIXED.size,
        "RESPONSE_FLAG": frame.RESPONSE_FLAG,
        "ONEWAY_FLAG": frame.ONEWAY_FLAG,
    },
    "pulls": {
        "COMMIT_FLAG": pulling_service.COMMIT_FLAG,
        "SUBSCRIPTION_FLAG": pulling_service.SUBSCRIPTION_FLAG,
    },
    "sends": {"MAX_LITE_TOPIC_BYTES": sending_service.MAX_LITE_TOPIC_BYTES},
    "records": {
        "MAGIC_V1": record.MAGIC_V1,
        "MAGIC_V2": record.MAGIC_V2,
        "MIN_RECORD_BYTES": record.MIN_RECORD_SIZE,
        "MAX_V1_TOPIC_BYTES": record.MAX_V1_TOPIC_BYTES,
        "MAX_PROPERTIES_BYTES": properties.PROPERTIES_LIMIT_BYTES,
        "AFTER_NAME": ord(properties.NAME_SEPARATOR),
        "AFTER_PAIR": ord(properties.PAIR_SEPARATOR),
    },
    "system flags of records": {
        f"FLAG_{name}": value for name, value in vars(SysFlag).items() if isinstance(value, int)
    },
    "entries of batches and light queues, units of queues, index files": {
        "ENTRY_HEAD_BYTES": batch._HEAD.size,
        "MIN_ENTRY_BYTES": batch.MIN_ENTRY_SIZE,
        "UNIT_BYTES": queue_files.UNIT_BYTES,
        "INDEX_HEADER_BYTES": index_file.HEADER.size,
        "LIGHT_ENTRY_BYTES": light_entries.ENTRY.size,
        "LIGHT_NAME_HEAD_BYTES": light_names.HEAD.size,
    },
}


def _texts(prefix: str, module: ModuleType) -> dict[str, str]:
    return {f"{prefix}_{name}": value for name, value in vars(module).items() if isinstance(value, str)}


def _used() -> set[str]:
    """The words of the compiled modules."""
    paths = (path for kind in ("pyx", "pxd") for path in PACKAGE.rglob(f"*.{kind}") if path != PATH)
    return {word for path in paths for word in re.findall(r"\w+", path.read_text())}


def fresh() -> str:
    """The file as it should be: it has what is used."""
    used = _used()
    texts = _texts("PROPERTY", properties) | _texts("FIELD", signature) | _texts("FIELD", full_signature)
    texts["LMQ_PREFIX"] = names.LMQ_PREFIX
    texts = {name: text for name, text in texts.items() if name in used}
    codes = {name: declaration_of(kind).code for name, kind in _CODES.items()}
    lines = [
        '"""Written by tools/native_declarations.py from what src/pyromq declares."""',
        "",
        "cdef extern from *:",
        '    """',
        *(f'    #define {name} "{text}"' for name, text in texts.items()),
        '    """',
        *(f"    const char *{name}" for name in texts),
    ]
    for what, numbers in {"requests": codes, **_NUMBERS}.items():
        lines += ["", f"# {what}", "cdef enum:"]
        lines += [f"    {name} = {value}" for name, value in numbers.items() if name in used]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(fresh())
