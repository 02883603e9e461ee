"""Every option of the connector, read once into one frozen object; a wrong one is named at once."""

import difflib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyromq.errors import BadExpression, ConfigError
from pyromq.filtering.sql_parser import compile_sql
from pyromq.protocol.names import group_problem, topic_problem
from pyromq.security.signature import Credentials
from pyromq.spark.queues import Queue, parse_assignment, parse_numbers

PULL_GROUP = "TOOLS_CONSUMER"
"""Who reads if no group is named: a group every broker has from the start."""

PRODUCER_GROUP = "pyromq-spark"

EARLIEST, LATEST = -2, -1
"""Kafka's numbers for the two ends of a queue, allowed inside JSON offsets."""

READ_ONLY = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "tags",
    "sqlFilter",
    "consumerGroup",
    "groupIdPrefix",
    "commitOffsets",
    "valueFormat",
    "valueSchema",
    "valueMode",
    "pullMessages",
    "pullsInFlight",
)
WRITE_ONLY = ("topic", "mode", "batchBytes", "sendsInFlight", "producerGroup", "idPrefix")
SHARED = (
    "namesrv",
    "path",
    "includeHeaders",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
KNOWN = {name.lower(): name for name in (*SHARED, *READ_ONLY, *WRITE_ONLY)}

KAFKAS_NAMES = {"kafka.group.id": "consumerGroup", "kafkaConsumer.pollTimeoutMs": "pollTimeoutMs"}
"""What may also be written as Spark's Kafka source calls it."""

_MEANT = {"kafka.bootstrap.servers": "namesrv", "headers": "includeHeaders"}


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading begins or ends; exactly one of the kinds is meant."""

    kind: Literal["earliest", "latest", "group", "offsets", "timestamp", "timestamps"]
    numbers: Mapping[Queue, int] | None = None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """How servers are reached."""

    namesrv: tuple[str, ...]
    credentials: Credentials | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    timeout_ms: int = 30_000
    retries: int = 60
    retry_interval_ms: int = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues are read; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[Queue] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    access: Access
    selection: Selection
    start: Position
    end: Position
    fail_without_match: bool = True
    fail_on_data_loss: bool = True
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    tags: str | None = None
    sql: str | None = None
    group: str | None = None
    commit_offsets: bool = False
    value_format: str = "binary"
    value_schema: str | None = None
    value_mode: str = "permissive"
    with_properties: bool = True
    pull_messages: int = 4096
    pulls_in_flight: int = 8

    @property
    def is_filtered(self) -> bool:
        return self.tags is not None or self.sql is not None

    @property
    def pull_group(self) -> str:
        return self.group or PULL_GROUP


@dataclass(frozen=True, slots=True)
class WriteOptions:
    access: Access
    topic: str | None = None
    batch_bytes: int = 1024 * 1024
    sends_in_flight: int = 4
    group: str = PRODUCER_GROUP
    id_prefix: str | None = None
    with_properties: bool = True


_OTHER_NAMES = {name.lower(): own for name, own in KAFKAS_NAMES.items()}


def check_names(options: Mapping[str, str]) -> None:
    """Refuse what nobody knows, naming it and what was probably meant."""
    for name, value in options.items():
        key = name.lower()
        if key in KNOWN or key in _OTHER_NAMES:
            continue
        instead = _MEANT.get(key)
        if instead is None:
            close = difflib.get_close_matches(key, KNOWN, n=1)
            instead = KNOWN[close[0]] if close else None
        expected = f"the option {instead}" if instead else f"one of {', '.join(sorted(KNOWN.values()))}"
        raise ConfigError(name, value, f"{expected}; {name} is not an option of rocketmq")


def for_readers(options: Mapping[str, str]) -> dict[str, str]:
    """Options for a whole job, less those that only concern its writers."""
    return _without(options, WRITE_ONLY)


def for_writers(options: Mapping[str, str]) -> dict[str, str]:
    return _without(options, READ_ONLY)


def _without(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    others = {name.lower() for name in names}
    return {
        name: value
        for name, value in options.items()
        if _OTHER_NAMES.get(name.lower(), name).lower() not in others
    }


def read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """`streaming` is None while nobody knows which it will be."""
    reader = _Reader(options)
    reader.refuse(WRITE_ONLY, "is an option for writing")
    if streaming:
        reader.refuse(
            ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
            "is for batch reads: a stream has no end",
        )
    elif streaming is not None:
        reader.refuse(
            ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay"),
            "is for streams: a batch has no triggers",
        )
        reader.refuse(("commitOffsets",), "is for streams: a batch has no progress to publish")
    group = _group(reader, "consumerGroup")
    prefix = _group(reader, "groupIdPrefix")
    if group is not None and prefix is not None:
        raise ConfigError("groupIdPrefix", prefix, "either consumerGroup or groupIdPrefix, not both")
    start = _position(reader, "starting", default="latest" if streaming else "earliest")
    end = _position(reader, "ending", default="latest")
    if start.kind == "latest" and streaming is False:
        raise ConfigError("startingOffsets", "latest", "another start: a batch from latest is always empty")
    if end.kind in ("earliest", "group"):
        raise ConfigError("endingOffsets", end.kind, "latest or JSON")
    if start.kind == "group" and group is None:
        raise ConfigError("startingOffsets", "group", "consumerGroup, the group whose offsets are meant")
    strategy = reader.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    tags, sql = reader.text("tags"), reader.text("sqlFilter")
    if tags is not None and sql is not None:
        raise ConfigError("sqlFilter", sql, "either tags or sqlFilter, not both")
    if sql is not None:
        try:
            compile_sql(sql)
        except BadExpression as problem:
            raise ConfigError("sqlFilter", sql, f"an SQL92 expression: {problem}") from None
    commit = reader.flag("commitOffsets", False)
    if commit and group is None:
        raise ConfigError("commitOffsets", "true", "consumerGroup, the group whose progress is published")
    least, most = reader.count("minOffsetsPerTrigger"), reader.count("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigError("minOffsetsPerTrigger", least, f"no more than maxOffsetsPerTrigger={most}")
    value_format = reader.choice("valueFormat", ("binary", "string", "json", "avro"), "binary")
    value_schema = reader.text("valueSchema")
    if value_schema is not None and value_format not in ("json", "avro"):
        raise ConfigError("valueSchema", value_schema, "valueFormat=json or valueFormat=avro with it")
    if value_format == "binary" and (mode := reader.text("valueMode")) is not None:
        raise ConfigError("valueMode", mode, "valueFormat with it: bytes can always be read")
    return ReadOptions(
        access=_access(reader),
        selection=_selection(reader),
        start=start,
        end=end,
        fail_without_match=strategy == "error",
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        max_per_trigger=most,
        min_per_trigger=least,
        max_bytes_per_trigger=reader.size("maxBytesPerTrigger"),
        max_trigger_delay_ms=reader.duration_ms("maxTriggerDelay", 900_000),
        min_partitions=reader.count("minPartitions"),
        max_records_per_partition=reader.count("maxRecordsPerPartition"),
        tags=tags,
        sql=sql,
        group=group if prefix is None else f"{prefix}-{uuid.uuid4().hex[:12]}",
        commit_offsets=commit,
        value_format=value_format,
        value_schema=value_schema,
        value_mode=reader.choice("valueMode", ("permissive", "failfast"), "permissive"),
        with_properties=reader.flag("includeHeaders", True),
        pull_messages=reader.count("pullMessages") or 4096,
        pulls_in_flight=reader.count("pullsInFlight") or 8,
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    reader = _Reader(options)
    subscribed = reader.text("subscribe")
    if subscribed is None:
        reader.refuse(READ_ONLY, "is an option for reading")
    mode = reader.choice("mode", ("atLeastOnce", "transactional"), "atLeastOnce")
    if mode == "transactional":
        raise ConfigError(
            "mode",
            mode,
            "atLeastOnce: transactional writes need transactions of the broker, which it does not offer yet",
        )
    # A view or a table that reads one topic also writes to it.
    named = {name: reader.text(name) for name in ("topic", "path", "subscribe") if reader.text(name)}
    if len(set(named.values())) > 1:
        raise ConfigError(next(iter(named)), next(iter(named.values())), f"one topic, not {named}")
    topic = next(iter(named.values()), None)
    if topic is not None and (problem := topic_problem(topic)):
        raise ConfigError("topic", topic, f"a topic name ({problem})")
    return WriteOptions(
        access=_access(reader),
        topic=topic,
        batch_bytes=reader.size("batchBytes") or 1024 * 1024,
        sends_in_flight=reader.count("sendsInFlight") or 4,
        group=_group(reader, "producerGroup") or PRODUCER_GROUP,
        id_prefix=reader.text("idPrefix"),
        with_properties=reader.flag("includeHeaders", True),
    )


def _group(reader: "_Reader", name: str) -> str | None:
    group = reader.text(name)
    if group is not None and (problem := group_problem(group)):
        raise ConfigError(name, group, f"a group name ({problem})")
    return group


def _access(reader: "_Reader") -> Access:
    text = reader.text("namesrv")
    addresses = tuple(filter(None, (part.strip() for part in re.split("[;,]", text or ""))))
    if not addresses:
        raise ConfigError("namesrv", text, "the addresses of the name servers, like 127.0.0.1:9876")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise ConfigError("namesrv", text, f"addresses like 127.0.0.1:9876, not {address!r}")
    access_key, secret_key = reader.text("accessKey"), reader.text("secretKey")
    if (access_key is None) != (secret_key is None):
        raise ConfigError("accessKey", access_key, "accessKey and secretKey, both or neither")
    credentials = None
    if access_key is not None and secret_key is not None:
        credentials = Credentials(access_key, secret_key, reader.text("securityToken"))
    elif reader.text("securityToken") is not None:
        raise ConfigError("securityToken", "***", "accessKey and secretKey with it")
    tls, ca_file = reader.flag("tls", False), reader.text("tlsCaFile")
    if ca_file is not None and not tls:
        raise ConfigError("tlsCaFile", ca_file, "tls=true with it")
    return Access(
        namesrv=addresses,
        credentials=credentials,
        tls=tls,
        tls_ca_file=ca_file,
        timeout_ms=reader.count("pollTimeoutMs") or 30_000,
        retries=reader.count("fetchOffset.numRetries", least=0, default=60) or 0,
        retry_interval_ms=reader.count("fetchOffset.retryIntervalMs", least=0, default=500) or 0,
    )


def _selection(reader: "_Reader") -> Selection:
    given = [name for name in ("assign", "subscribe", "subscribePattern", "path") if reader.text(name)]
    if len(given) != 1:
        raise ConfigError(
            given[1] if given else "subscribe",
            reader.text(given[1]) if given else "",
            "exactly one of assign, subscribe and subscribePattern"
            + (f"; {given[0]} is given as well" if given else ""),
        )
    name, text = given[0], reader.text(given[0]) or ""
    if name == "assign":
        return Selection(queues=parse_assignment(name, text))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as problem:
            raise ConfigError(name, text, f"a regular expression: {problem}") from None
        return Selection(pattern=text)
    topics = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    if not topics:
        raise ConfigError(name, text, "topics separated by commas")
    for topic in topics:
        if wrong := topic_problem(topic):
            raise ConfigError(name, text, f"names of topics ({wrong})")
    return Selection(topics=topics)


def _position(reader: "_Reader", side: Literal["starting", "ending"], default: str) -> Position:
    """A timestamp for all comes before timestamps by queue, which come before offsets."""
    timestamp = reader.text(f"{side}Timestamp")
    if timestamp is not None:
        return Position("timestamp", timestamp_ms=_whole(f"{side}Timestamp", timestamp, 0))
    name = f"{side}OffsetsByTimestamp"
    by_queue = reader.text(name)
    if by_queue is not None:
        numbers = parse_numbers(name, by_queue, 'JSON like {"Orders": {"broker-a:0": 1700000000000}}')
        if min(numbers.values()) < 0:
            raise ConfigError(name, by_queue, "timestamps in milliseconds")
        return Position("timestamps", numbers)
    name = f"{side}Offsets"
    text = (reader.text(name) or default).strip()
    if not text.startswith("{"):
        lowered = text.lower()
        if lowered == "earliest":
            return Position("earliest")
        if lowered == "latest":
            return Position("latest")
        if lowered == "group":
            return Position("group")
        raise ConfigError(name, text, 'earliest, latest, group or JSON like {"Orders": {"broker-a:0": 42}}')
    numbers = parse_numbers(name, text, 'JSON like {"Orders": {"broker-a:0": 42}}')
    least = EARLIEST if side == "starting" else LATEST
    if min(numbers.values()) < least:
        raise ConfigError(name, text, f"offsets, {LATEST} for the latest and {EARLIEST} for the earliest")
    return Position("offsets", numbers)


_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATION = re.compile(
    r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)?", re.IGNORECASE
)
_DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _whole(name: str, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(name, text, f"a whole number of at least {least}")
    return number


class _Reader:
    """The given options by their lower-cased names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_names(options)
        self._given: dict[str, str] = {}
        for name, value in options.items():
            own = _OTHER_NAMES.get(name.lower(), name)
            if self._given.setdefault(own.lower(), value) != value:
                raise ConfigError(name, value, f"the same as the option {own}, which it is another name of")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name.lower() in self._given:
                raise ConfigError(name, self._given[name.lower()], f"not to be given: it {why}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ConfigError(name, text, f"one of {', '.join(choices)}")

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def count(self, name: str, least: int = 1, default: int | None = None) -> int | None:
        text = self.text(name)
        return default if text is None else _whole(name, text.replace("_", ""), least)

    def size(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text.strip())
        size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
        if size < 1:
            raise ConfigError(name, text, "a number of bytes like 1048576 or 1m")
        return size

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.text(name)
        if text is None:
            return default_ms
        match = _DURATION.fullmatch(text.strip())
        if match is None:
            raise ConfigError(name, text, "a time like 500ms, 30s or 15m")
        unit = (match[2] or "ms").lower()
        unit = unit if unit == "ms" else "ms" if unit.startswith("milli") else unit[0]
        return int(match[1]) * _DURATION_UNITS[unit]
