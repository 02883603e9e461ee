"""Every option of the connector: one line each, read once into frozen objects; a wrong one is named at once.

An empty text counts as not given.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar, cast

from pyromq.config.kinds import NOT_NEGATIVE, POSITIVE
from pyromq.config.nearest import NearestName
from pyromq.config.options import HIDDEN, Options, Setting, setting
from pyromq.errors import ConfigError
from pyromq.security.signature import Credentials, credentials_from_text
from pyromq.spark.option_kinds import (
    Addresses,
    Assigned,
    Count,
    Duration,
    EndOffsets,
    Group,
    Pattern,
    Position,
    Size,
    Sql,
    StartOffsets,
    Timestamps,
    TimeZone,
    Topic,
    Topics,
    Traceparent,
)
from pyromq.spark.queues import Queue

PULL_GROUP = "TOOLS_CONSUMER"
"""The group that reads if none is named; every broker has it from the start."""

STREAMS, BATCH_READS = "streams", "batch reads"

P = TypeVar("P", bound=Options)

INFER: Final = "infer"
"""The `valueSchema` that is found in a sample."""

LOG_SCHEMA: Final = (
    "time timestamp, level string, logger string, message string, service string, host string,"
    " process bigint, thread string, file string, line int, function string, exception string, stack string,"
    " trace_id string, span_id string, dropped bigint, extra map<string,string>"
)
"""The format of `pyromq.logging.TopicHandler`."""


# fmt: off
@dataclass(frozen=True, slots=True)
class Access(Options):
    """How servers are reached."""

    FROM_TEXT: ClassVar[bool] = True

    namesrv: Addresses = setting((), "Addresses of the name servers, separated by `;`. Required, except for batch reads that need no broker (`tier`).")
    access_key: str | None = setting(None, "Access key that signs requests, together with `secretKey`.")
    secret_key: str | None = setting(None, "Secret key that signs requests.", secret=True)
    security_token: str | None = setting(None, "Security token that belongs to `accessKey` and `secretKey`.", secret=True)
    key_file: str | None = setting(None, "File with the lines `AccessKey=`, `SecretKey=` and optionally `SecurityToken=`. It keeps secrets out of programs and tables. Only the driver reads it.")
    tls: bool = setting(False, "Use TLS for connections.")
    tls_ca_file: str | None = setting(None, "File with trusted certificates, for `tls=true`. Without it every certificate is accepted.")
    timeout_ms: Count = setting(30_000, "Timeout of a request, in milliseconds.", key="pollTimeoutMs", alias="kafkaConsumer.pollTimeoutMs", check=POSITIVE)
    retries: Count = setting(60, "How often a request is retried while servers are unavailable. Kafka's default is 3. The higher default here lets queries survive restarts of brokers.", key="fetchOffset.numRetries", check=NOT_NEGATIVE)
    retry_interval_ms: Count = setting(500, "Pause before a request is retried, in milliseconds.", key="fetchOffset.retryIntervalMs", check=NOT_NEGATIVE)

    # fmt: on
    def verify_together(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("accessKey", self.access_key, "accessKey and secretKey, both or neither")
        if self.security_token is not None and self.access_key is None:
            raise ConfigError("securityToken", HIDDEN, "accessKey and secretKey with it")
        if self.key_file is not None and self.access_key is not None:
            raise ConfigError("keyFile", self.key_file, "either keyFile or accessKey and secretKey")
        if self.tls_ca_file is not None and not self.tls:
            raise ConfigError("tlsCaFile", self.tls_ca_file, "tls=true with it")

    def with_keys(self) -> "Access":
        """With what is in the key file, if there is one."""
        if self.key_file is None:
            return self
        try:
            keys = credentials_from_text(Path(self.key_file).read_text())
        except (OSError, UnicodeError) as problem:
            raise ConfigError("keyFile", self.key_file, f"a file that can be read ({problem})") from None
        return replace(
            self,
            key_file=None,
            access_key=keys.access_key,
            secret_key=keys.secret_key,
            security_token=keys.security_token,
        )

    def require_servers(self) -> None:
        if not self.namesrv:
            raise ConfigError("namesrv", "", "the addresses of the name servers, like 127.0.0.1:9876")

    @property
    def credentials(self) -> Credentials | None:
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues are read; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[Queue] | None = None


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class _EitherWay(Options):
    """For reading and writing alike."""

    FROM_TEXT: ClassVar[bool] = True

    access: Access
    with_properties: bool = setting(True, "Add a column `properties` to rows. Writes send its entries as properties.", key="includeHeaders")
    otel: bool = setting(False, "Create an OpenTelemetry span in each task and send its context with written messages. Every executor needs `pyromq[otel]` and an SDK that exports.")
    traceparent: Traceparent | None = setting(None, "Trace that the job belongs to, as a W3C `traceparent`. Written messages carry it even without `otel`, unless a row has one in `properties`. `pyromq.otel.trace_options()` returns both options for the current span.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(_EitherWay):
    streaming: bool | None = None
    """None while Spark has not said which it will be."""

    path: Topics | None = setting(None, 'Topics given as `load("Orders")`. Same as `subscribe`.')
    subscribe: Topics | None = setting(None, "Topics to read. Give exactly one of `subscribe`, `subscribePattern` and `assign`.")
    subscribe_pattern: Pattern | None = setting(None, "Regular expression that matches whole topic names. System topics never match. Retry and dead-letter topics match only if it begins with `%`.")
    assign: Assigned | None = setting(None, "Queues to read. A queue is written as `broker:number`.")
    starting_offsets: StartOffsets | None = setting(None, "Where to start. Default: `earliest` for batch reads, `latest` for streams. `group` uses the offsets committed by `consumerGroup`, and the beginning of queues it never read. JSON names all queues; -2 is the earliest, -1 the latest.")
    starting_timestamp: Count | None = setting(None, "Time to start at in all queues, in milliseconds. Takes precedence over the other starting options.", check=NOT_NEGATIVE)
    starting_offsets_by_timestamp: Timestamps | None = setting(None, "Times to start at, by queue. Takes precedence over `startingOffsets`.")
    without_match: Literal["error", "latest"] = setting("error", "Strategy for queues where every message is older than the starting time: fail, or start at the latest offset.", key="startingOffsetsByTimestampStrategy")
    ending_offsets: EndOffsets | None = setting(None, "Where to end: `latest` by default, offsets by queue, where -1 is the latest, or `tier`: where the option `tier` ends. With that no broker is needed.", only=BATCH_READS)
    ending_timestamp: Count | None = setting(None, "Time to end at in all queues, in milliseconds.", only=BATCH_READS, check=NOT_NEGATIVE)
    ending_offsets_by_timestamp: Timestamps | None = setting(None, "Times to end at, by queue.", only=BATCH_READS)
    tier: str | None = setting(None, "Directory or URI with the brokers' tier, as in their `tieredStoreFilePath`. Tasks read old messages from there, and only newer ones from brokers. Batch reads with `endingOffsets=tier`, or without `namesrv`, need no broker. Not together with `sqlFilter` or `dropDuplicatesWithin`.")
    tier_cluster: str | None = setting(None, "Cluster to read if the tier has several and no broker is asked.", only=BATCH_READS)
    fail_on_data_loss: bool = setting(True, "Fail the query if messages are no longer available. If `false`, skip them with a warning.")
    max_per_trigger: Count | None = setting(None, "Maximum number of messages in a batch.", key="maxOffsetsPerTrigger", only=STREAMS, check=POSITIVE)
    min_per_trigger: Count | None = setting(None, "Number of messages that a batch waits for, for at most `maxTriggerDelay`.", key="minOffsetsPerTrigger", only=STREAMS, check=POSITIVE)
    max_bytes_per_trigger: Size | None = setting(None, "Maximum size of a batch, estimated from a sample.", only=STREAMS, check=POSITIVE)
    max_trigger_delay_ms: Duration = setting(900_000, "Longest time that a batch waits for `minOffsetsPerTrigger` messages. A plain number is in milliseconds.", key="maxTriggerDelay", only=STREAMS)
    min_partitions: Count | None = setting(None, "Minimum number of partitions. By default a queue is one partition; of more than 32 queues, those with few messages are joined, up to 10,000 messages. With this option none are joined.", check=POSITIVE)
    max_partitions: Count | None = setting(None, "Maximum number of partitions. Queues are joined until there are no more.", check=POSITIVE)
    max_records_per_partition: Count | None = setting(None, "Maximum number of messages in a partition.", check=POSITIVE)
    max_bytes_per_partition: Size | None = setting(None, "Maximum size of a partition, estimated from a sample of each topic. Longer queues are cut. Short ones are joined only up to this size.", check=POSITIVE)
    driver_reads_up_to: Count = setting(64, "Number of messages up to which the driver reads a batch itself, of 1 MiB or less. Starting a task would take longer. 0 turns this off. Has no effect with `minPartitions`, `maxRecordsPerPartition`, `maxBytesPerPartition` or `dropDuplicatesWithin`.", only=STREAMS, check=NOT_NEGATIVE)
    tags: str | None = setting(None, "Tags to read, as in `a || b`, filtered by brokers. Not together with `sqlFilter`.")
    sql: Sql | None = setting(None, "SQL92 expression over the properties, evaluated by brokers; also over fields of JSON bodies, as in `body.amount > 100`, if they have filterSupportBody.", key="sqlFilter")
    drop_duplicates_within: Count | None = setting(None, "Drop a message if one of this many earlier messages in its queue has the same id, for topics written at least once. Each task re-reads that many messages and keeps their ids in memory. Duplicates in different queues remain; `dropDuplicatesWithinWatermark` finds these, with state.", check=POSITIVE)
    group: Group | None = setting(None, f"Consumer group under which the query reads. Default: `{PULL_GROUP}`.", key="consumerGroup", alias="kafka.group.id")
    group_id_prefix: Group | None = setting(None, "Read each query as a new group with this prefix. Brokers remember every group they have seen.")
    commit_offsets: bool = setting(False, "Copy the progress of the query to `consumerGroup`, so that tools show its lag. No consumer may share the group.", only=STREAMS)
    value_format: Literal["binary", "string", "json", "avro", "protobuf", "log"] = setting("binary", "Type of the column `value`. `log` is JSON with the fields of `pyromq.logging.TopicHandler`. `json` is parsed exactly as `from_json` does. Fields that do not fit and empty bodies become null. A body that is not a document becomes a row of nulls.")
    value_schema: str | None = setting(None, "Schema of bodies. With `valueFormat=json`, DDL such as `id bigint, at timestamp`, or `infer`, which finds it in the newest 1,000 messages. With `valueFormat=avro`, an Avro schema; with `valueFormat=protobuf`, the text of a .proto file.")
    schema_location: str | None = setting(None, "Directory that keeps the schema that `valueSchema=infer` found, so that a query has the same columns when it starts again. Streams need it. To infer again, delete the file.")
    value_message: str | None = setting(None, "Message type of the bodies, with `valueFormat=protobuf`, with or without the package. By default the first type of the schema is used, and bodies of other types fill the fields with the same names.")
    time_zone: TimeZone | None = setting(None, "Time zone of JSON times without a zone. Default: the zone of the session.")
    schema_registry: str | None = setting(None, "URL of a schema registry with Confluent's API, such as Apicurio or Karapace. Bodies then begin with a zero byte and the id of their schema. Needs `valueFormat=avro` or `valueFormat=protobuf`.")
    schema_registry_auth: str | None = setting(None, "`USER:PASSWORD` for the schema registry.", secret=True)
    value_subject: str | None = setting(None, "Subject whose latest schema is the type of `value`, if `valueSchema` is not set. Default: the name of the topic with `-value`.")
    new_fields: Literal["drop", "fail"] = setting("drop", "Handling of fields of bodies that `value` lacks, because their schema in the registry is newer than the query. `drop` omits them and logs a warning. `fail` ends the query before it has read such a body. Started again, it has the fields.")
    value_mode: Literal["permissive", "failfast"] = setting("permissive", "Handling of values that cannot be parsed: they become null, or with `failfast` they fail the query.")
    nullability: Literal["loose", "strict"] = setting("loose", "With `strict` the columns that every message has are NOT NULL: all but `key` and `tags`, and `value` in another format than `binary`. Spark then refuses an `INSERT INTO` a view or table that leaves such columns out.")
    pull_messages: Count = setting(4096, "Number of messages to request at once. Brokers return at most `maxTransferCountOnMessageInMemory` (32; `pyromq standalone`: 8192) and `maxTransferBytesOnMessageInMemory` (256 KiB; 4 MiB). Raise both for Spark.", check=POSITIVE)
    pulls_in_flight: Count = setting(8, "Number of pulls that a task has in flight.", check=POSITIVE)

    # fmt: on
    def verify_together(self) -> None:
        if self.tier is not None:
            self._verify_tier()
        else:
            self.access.require_servers()
            if self.end.kind == "tier":
                raise ConfigError("endingOffsets", "tier", "the option tier with it")
            if self.tier_cluster is not None:
                raise ConfigError("tierCluster", self.tier_cluster, "the option tier with it")
        if self.group is not None and self.group_id_prefix is not None:
            expected = "either consumerGroup or groupIdPrefix, not both"
            raise ConfigError("groupIdPrefix", self.group_id_prefix, expected)
        if self.start.kind == "latest" and self.streaming is False:
            expected = "another start: a batch from latest is always empty"
            raise ConfigError("startingOffsets", "latest", expected)
        if self.start.kind == "group" and self.group is None:
            raise ConfigError("startingOffsets", "group", "consumerGroup, the group whose offsets are meant")
        if self.tags is not None and self.sql is not None:
            raise ConfigError("sqlFilter", self.sql, "either tags or sqlFilter, not both")
        if self.commit_offsets and self.group is None:
            raise ConfigError("commitOffsets", "true", "consumerGroup, the group whose progress is published")
        low, high = self.min_per_trigger, self.max_per_trigger
        if low is not None and high is not None and low > high:
            raise ConfigError("minOffsetsPerTrigger", low, f"no more than maxOffsetsPerTrigger={high}")
        low, high = self.min_partitions, self.max_partitions
        if low is not None and high is not None and low > high:
            raise ConfigError("minPartitions", low, f"no more than maxPartitions={high}")
        if self.value_schema is not None and self.value_format in ("binary", "string", "log"):
            expected = "valueFormat=json, valueFormat=avro or valueFormat=protobuf with it"
            raise ConfigError("valueSchema", self.value_schema, expected)
        is_inferred = self.value_format == "json" and self.value_schema == INFER
        if self.schema_location is not None and not is_inferred:
            expected = "valueFormat=json and valueSchema=infer with it"
            raise ConfigError("schemaLocation", self.schema_location, expected)
        if is_inferred and self.streaming and self.schema_location is None:
            expected = "schemaLocation with it: a stream that starts again needs the same columns"
            raise ConfigError("valueSchema", self.value_schema, expected)
        if self.value_message is not None and self.value_format != "protobuf":
            raise ConfigError("valueMessage", self.value_message, "valueFormat=protobuf with it")
        if self.time_zone is not None and self.value_format != "json":
            raise ConfigError("timeZone", self.time_zone, "valueFormat=json with it")
        if self.schema_registry is not None and self.value_format not in ("avro", "protobuf"):
            expected = "valueFormat=avro or valueFormat=protobuf with it"
            raise ConfigError("schemaRegistry", self.schema_registry, expected)
        if self.value_subject is not None and self.schema_registry is None:
            raise ConfigError("valueSubject", self.value_subject, "schemaRegistry with it")
        if self.new_fields == "fail" and (self.schema_registry is None or self.value_schema is not None):
            raise ConfigError("newFields", "fail", "schemaRegistry with it, and no valueSchema")
        if self.schema_registry_auth is not None and self.schema_registry is None:
            raise ConfigError("schemaRegistryAuth", HIDDEN, "schemaRegistry with it")
        settings = self.settings_by_key()
        chosen = ("assign", "subscribe", "subscribePattern", "path")
        given = [key for key in chosen if self.value_of(settings[key]) is not None]
        if len(given) != 1:
            more = f"; {given[0]} and {given[1]} are given" if given else ""
            expected = f"exactly one of assign, subscribe and subscribePattern{more}"
            raise ConfigError(given[1] if given else "subscribe", "", expected)

    def _verify_tier(self) -> None:
        if self.sql is not None:
            raise ConfigError("sqlFilter", self.sql, "no tier with it, because brokers evaluate it: use where")
        if (window := self.drop_duplicates_within) is not None:
            raise ConfigError("dropDuplicatesWithin", window, "no tier with it: use dropDuplicates")
        if self.streaming:
            self.access.require_servers()
        if not self.is_without_brokers:
            if self.tier_cluster is not None:
                raise ConfigError("tierCluster", self.tier_cluster, "nothing: brokers say what their cluster is")
            return
        if self.start.kind == "group":
            raise ConfigError("startingOffsets", "group", "another start: brokers know what groups have read")
        if self.end.kind == "latest" and self.streaming is False:
            expected = "tier, or offsets that are in the tier, or the option namesrv: only brokers know the end"
            raise ConfigError("endingOffsets", "latest", expected)
        if self.value_schema == INFER:
            raise ConfigError("valueSchema", INFER, "DDL, because the sample comes from brokers")

    @property
    def is_without_brokers(self) -> bool:
        """Whether everything comes from the tier."""
        return self.tier is not None and (not self.access.namesrv or self.end.kind == "tier")

    @property
    def selection(self) -> Selection:
        return Selection(self.subscribe or self.path or (), self.subscribe_pattern, self.assign)

    @property
    def start(self) -> Position:
        default = Position("latest" if self.streaming else "earliest")
        by_time = _at_time(self.starting_timestamp, self.starting_offsets_by_timestamp)
        return by_time or self.starting_offsets or default

    @property
    def end(self) -> Position:
        by_time = _at_time(self.ending_timestamp, self.ending_offsets_by_timestamp)
        return by_time or self.ending_offsets or Position("latest")

    @property
    def fail_without_match(self) -> bool:
        return self.without_match == "error"

    @property
    def is_filtered(self) -> bool:
        return self.tags is not None or self.sql is not None

    @property
    def pull_group(self) -> str:
        return self.group or PULL_GROUP


def _at_time(for_all: int | None, by_queue: Mapping[Queue, int] | None) -> Position | None:
    """A timestamp for all queues comes before timestamps by queue."""
    if for_all is not None:
        return Position("timestamp", timestamp_ms=for_all)
    return Position("timestamps", by_queue) if by_queue is not None else None


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(_EitherWay):
    path: Topic | None = setting(None, 'Topic given as `save("Orders")`. Same as `topic`.')
    topic: Topic | None = setting(None, "Topic to write to. Takes precedence over a column `topic`. A view or table that reads one topic writes to that topic.")
    mode: Literal["atLeastOnce", "transactional"] = setting("atLeastOnce", "Delivery guarantee. `transactional` sends half messages and commits them with the micro-batch, so that a stream writes each row exactly once. It needs more requests, and rows cannot be delayed.")
    queue_by: Literal["key", "none"] = setting("key", "How the queue of a row without `queueId` or `shardingKey` is chosen. `key`: rows with the same key go to one queue, in order; rows without a key are spread evenly. `none`: all rows are spread evenly.")
    journal: str | None = setting(None, "Directory in which a transactional stream records committed batches. Default: the directory in the option `checkpointLocation`.")
    batch_id: Count | None = setting(None, "Number of the batch, for a transactional write in `foreachBatch`, together with `journal`. The batch is written once, however often Spark repeats it.", check=NOT_NEGATIVE)
    batch_bytes: Size = setting(1024 * 1024, "Maximum size of one send request.", check=POSITIVE)
    sends_in_flight: Count = setting(4, "Number of send requests that a task has in flight.", check=POSITIVE)
    group: Group = setting("pyromq-spark", "Producer group.", key="producerGroup")
    id_prefix: str | None = setting(None, "Prefix of message ids, instead of the id of the query. In `foreachBatch`, include the number of the batch: a repeated batch then has the same ids.")

    # fmt: on
    def verify_together(self) -> None:
        self.access.require_servers()
        if self.batch_id is not None and (self.journal is None or self.mode != "transactional"):
            raise ConfigError("batchId", self.batch_id, "mode=transactional and journal with it")


def _keys(*options: type[Options]) -> dict[str, Setting]:
    """Their settings by the lower-cased key."""
    return {each.key.lower(): each for part in options for each in part.all_settings()}


KNOWN = _keys(Access, ReadOptions, WriteOptions)
ALIASES = {each.alias.lower(): each.key for each in KNOWN.values() if each.alias}
"""Names that Spark's Kafka source has for options of ours."""

_FOR_READS, _FOR_WRITES = _keys(Access, ReadOptions), _keys(Access, WriteOptions)
_NAMES = [each.key for each in KNOWN.values()]
_NEAREST = NearestName(_NAMES)
_MEANT = {"kafka.bootstrap.servers": "namesrv", "headers": "includeHeaders"}


def check_names(options: Mapping[str, str]) -> None:
    """Refuse unknown options; the error names the option that was probably meant."""
    for name, value in options.items():
        if _own_name(name) in KNOWN:
            continue
        meant = _MEANT.get(name.lower()) or _NEAREST.find(name)
        expected = f"the option {meant}" if meant else f"one of {', '.join(sorted(_NAMES))}"
        shown = HIDDEN if meant and KNOWN[meant.lower()].secret else value
        raise ConfigError(name, shown, f"{expected}; {name} is not an option of rocketmq")


def _own_name(name: str) -> str:
    return ALIASES.get(name.lower(), name).lower()


def check_tellable(options: Mapping[str, str]) -> None:
    """Refuse secrets among options that everybody will see who sees the rows."""
    for name, value in options.items():
        if KNOWN[_own_name(name)].secret and value.strip():
            raise ConfigError(name, HIDDEN, "keyFile: what a table remembers goes wherever its rows go")


def for_readers(options: Mapping[str, str]) -> dict[str, str]:
    """Options for a whole job, less those that only concern its writers."""
    return {name: value for name, value in options.items() if _own_name(name) not in _only(_FOR_WRITES)}


def for_writers(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if _own_name(name) not in _only(_FOR_READS)}


def _only(uses: Mapping[str, Setting]) -> set[str]:
    """The options of one use that the other does not have."""
    return uses.keys() - (_FOR_READS.keys() & _FOR_WRITES.keys())


def read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """`streaming` is None while Spark has not said which it will be."""
    given = _given(options)
    _refuse(given, _only(_FOR_WRITES), "writing")
    if streaming is not None:
        use = BATCH_READS if streaming else STREAMS
        _refuse(given, {key for key, each in _FOR_READS.items() if each.only == use}, use)
    parsed = _parsed(ReadOptions, given, access=_parsed(Access, given).with_keys(), streaming=streaming)
    if parsed.value_format == "binary" and "valuemode" in given:
        raise ConfigError("valueMode", given["valuemode"], "valueFormat with it: bytes can always be read")
    if parsed.value_format == "log":
        parsed = replace(parsed, value_format="json", value_schema=LOG_SCHEMA)
    if parsed.group_id_prefix is None:
        return parsed
    group = f"{parsed.group_id_prefix}-{uuid.uuid4().hex[:12]}"
    return replace(parsed, group=group, group_id_prefix=None)


def write_options(options: Mapping[str, str]) -> WriteOptions:
    given = _given(options)
    if "subscribe" not in given:
        _refuse(given, _only(_FOR_READS), "reading")
    # A view or a table that reads one topic also writes to it.
    named = {name: given[name] for name in ("topic", "path", "subscribe") if name in given}
    if len(set(named.values())) > 1:
        raise ConfigError(*next(iter(named.items())), f"one topic, not {named}")
    if named:
        given["topic"] = next(iter(named.values()))
    return _parsed(WriteOptions, given, access=_parsed(Access, given).with_keys())


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their own names in lower case, without empty ones."""
    check_names(options)
    given: dict[str, str] = {}
    # Other names come last: an error is about them.
    for name, value in sorted(options.items(), key=lambda each: each[0].lower() in ALIASES):
        own = _own_name(name)
        if value.strip() and given.setdefault(own, value) != value:
            expected = f"the same as the option {KNOWN[own].key}, which it is another name of"
            raise ConfigError(name, value, expected)
    return given


def _refuse(given: Mapping[str, str], others: set[str], use: str) -> None:
    for key in given:
        if key in others:
            raise KNOWN[key].refusal(given[key], f"nothing: this option is for {use} only")


def _parsed(part: type[P], given: Mapping[str, str], **more: object) -> P:
    values = {
        each.name: each.parse(given[key]) for key, each in _keys(part).items() if key in given
    }
    return part(**cast(dict[str, Any], values | more))
