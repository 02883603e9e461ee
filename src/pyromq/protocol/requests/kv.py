"""The name server's key-value store: small texts, each in a namespace."""

from pyromq.protocol.body import Body
from pyromq.protocol.catalogue import NAMESERVER, Answer, BodyAnswer, Request, request
from pyromq.protocol.needs import GET, UPDATE, cluster


class KVTable(Body):
    """Keys and values: a namespace of the name server, or the figures of a broker."""

    table: dict[str, str] = {}


class KVConfigSerializeWrapper(Body):
    """Every namespace of a name server, as in its `kvConfig.json`."""

    config_table: dict[str, dict[str, str]] = {}


@request(100, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="put_kv_config")
class PutKvEntry(Request[Answer]):
    """Store a text under a key."""

    namespace: str
    key: str
    value: str


class GetKvEntryAnswer(Answer):
    value: str | None = None


@request(101, to=NAMESERVER, needs=(cluster(GET),), java_name="get_kv_config")
class GetKvEntry(Request[GetKvEntryAnswer]):
    """Read the text under a key; refused with QUERY_NOT_FOUND if there is none."""

    namespace: str
    key: str


@request(102, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="delete_kv_config")
class DeleteKvEntry(Request[Answer]):
    """Remove a key and its text."""

    namespace: str
    key: str


@request(219, to=NAMESERVER, needs=(cluster(GET),), java_name="get_kvlist_by_namespace")
class GetKvNamespace(Request[BodyAnswer[KVTable]]):
    """Read all keys of a namespace; refused with QUERY_NOT_FOUND if it does not exist."""

    namespace: str
