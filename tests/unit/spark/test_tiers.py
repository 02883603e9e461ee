"""Batch reads from a tier without brokers: all that is planned is read, and what is not there is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql.types import StructType
from tests.support.erasing import erase_from_tier
from tests.support.log_files import filled

from pyromq.clock import ManualClock
from pyromq.errors import ConfigError, TransportError
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.spark import stream_reader
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import DataLoss
from pyromq.spark.offsets import FIRST, make_offset
from pyromq.spark.options import ReadOptions, read_options
from pyromq.spark.partitions import SpansPartition, partitions_of
from pyromq.spark.queues import Queue, Span
from pyromq.spark.reading import read_spans
from pyromq.spark.tier_of_stream import FRESH_S, TierOfStream
from pyromq.spark.tier_parts import TierPart
from pyromq.spark.tiers import below_seam, planned
from pyromq.store.filenames import offset_name
from pyromq.tier import packing
from pyromq.tier.manifest import HiddenMessages, Manifest
from pyromq.tier.manifests import Manifests
from pyromq.tier.offloading import ClosedFile, Offloading
from pyromq.tier.opening import open_objects
from pyromq.tier.tables import TieredTables
from pyromq.tier.upkeep import TierUpkeep
from pyromq.tier.uploading import OwnUploader, UploadTask

CLUSTER, BROKER = "C", "broker-a"
FILES, FILE_BYTES, BLOCK_BYTES = 3, 32 * 1024, 2048
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000
QUEUES = [("Orders", 0), ("Orders", 1), ("Payments", 0)]


class Row(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    log_offset: int
    stored_ms: int
    body: bytes


class Lake:
    """A tier of three files, an hour of messages in each, and a log that goes on behind them."""

    def __init__(self, root: Path, broker: str = BROKER, cluster: str = CLUSTER) -> None:
        self.place = root / "lake"
        self.rows: list[Row] = []
        self._root = root
        self._ends = dict.fromkeys(QUEUES, 5)
        self.epoch = 0
        self._objects = open_objects(str(self.place), cluster, broker)
        self._manifests = Manifests(self._objects, cluster, broker, "0")
        task = UploadTask("", 0, 0, str(root / "segment.tmp"), "", cluster, broker)
        uploader = OwnUploader(self._objects)
        self.offloading = Offloading(self._manifests, uploader, task)
        self.upkeep = TierUpkeep(self._manifests, uploader, task, lambda: BEGIN_MS)
        self.offloading.claim(0, [], FILES * FILE_BYTES)
        for number in range(FILES):
            self.offload(number)

    def offload(self, number: int) -> None:
        """Write the next file of the log, and put it into the tier."""
        log, count = bytearray(), 0
        while len(log) < FILE_BYTES - 400:
            topic, queue_id = QUEUES[count % 5 % 3]
            place, stored_ms = number * FILE_BYTES + len(log), BEGIN_MS + number * HOUR_MS + count
            body = b"message %d " % place + b"x" * (count % 7 * 20)
            offset = self._ends[topic, queue_id]
            self._ends[topic, queue_id] += 1
            self.rows.append(Row(topic, queue_id, offset, place, stored_ms, body))
            tags = {"TAGS": "even" if offset % 2 == 0 else "odd", "KEYS": f"k{place}"}
            log += encode_record(
                StoredMessage(
                    topic,
                    body,
                    queue_id=queue_id,
                    queue_offset=offset,
                    log_offset=place,
                    store_timestamp=stored_ms,
                    properties=encode_properties(tags).encode(),
                )
            )
            count += 1
        path = self._root / offset_name(number * FILE_BYTES)
        path.write_bytes(filled(log, FILE_BYTES))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packing, "BLOCK_BYTES", BLOCK_BYTES)
            patch.setattr(packing, "_SHARED_BYTES", BLOCK_BYTES // 2)
            closed = ClosedFile(path, number * FILE_BYTES, (number + 1) * FILE_BYTES)
            self.offloading.offload(closed, self.epoch, {})

    @property
    def manifest(self) -> Manifest:
        newest = self._manifests.read_newest()
        assert newest is not None
        return newest

    def segment(self, number: int) -> Path:
        return self.place / CLUSTER / BROKER / self.manifest.segments[number].name

    def change(self, **fields: Any) -> None:
        self._manifests.add(0, lambda newest: msgspec.structs.replace(newest, **fields))

    def set_attributes(self, topic: str, **attributes: str) -> None:
        table = {"topicConfigTable": {topic: {"topicName": topic, "attributes": attributes}}}
        self.offloading.keep_tables(0, TieredTables(1, {"topics.json": json.dumps(table)}))

    def options(self, **more: str) -> ReadOptions:
        base = {"tier": str(self.place), "subscribe": "Orders,Payments", "endingOffsets": "tier"}
        base |= {"fetchOffset.numRetries": "0"}
        return read_options({name: text for name, text in (base | more).items() if text}, streaming=False)

    def of(self, topic: str, queue_id: int) -> list[Row]:
        return [row for row in self.rows if (row.topic, row.queue_id) == (topic, queue_id)]

    def ends(self, add: int = 0) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for topic, queue_id in QUEUES:
            found.setdefault(topic, {})[f"{BROKER}:{queue_id}"] = (
                self.of(topic, queue_id)[-1].offset + 1 + add
            )
        return found


COLUMNS = (
    StructType()
    .add("topic", "string")
    .add("queueId", "integer")
    .add("offset", "long")
    .add("logOffset", "long")
    .add("timestamp", "timestamp")
    .add("value", "binary")
)


def tasks(options: ReadOptions) -> list[list[TierPart]]:
    cluster = SparkCluster(options.access)
    parts, spans = planned(cluster, options)
    assert not spans
    partitions = partitions_of(spans, options, lambda *_: 1, parts)
    found = []
    for each in partitions:
        assert isinstance(each, SpansPartition)
        found.append([part for part in each.spans if isinstance(part, TierPart)])
    return found


def read(options: ReadOptions, planned_tasks: list[list[TierPart]] | None = None) -> list[Row]:
    cluster = SparkCluster(options.access)
    found = []
    for task in tasks(options) if planned_tasks is None else planned_tasks:
        for batch in read_spans(cluster, options, COLUMNS, task):
            values = batch.set_column(4, "timestamp", batch.column(4).cast("int64")).to_pylist()
            found += [
                Row(
                    each["topic"],
                    each["queueId"],
                    each["offset"],
                    each["logOffset"],
                    each["timestamp"] // 1000,
                    each["value"],
                )
                for each in values
            ]
    return sorted(found)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One that no test changes."""
    return Lake(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    ("more", "least_tasks"),
    [
        ({}, 1),
        ({"maxBytesPerPartition": "3000"}, 15),
        ({"maxRecordsPerPartition": "7"}, 20),
        ({"minPartitions": "40"}, 40),
        ({"maxPartitions": "2", "maxBytesPerPartition": "3000"}, 2),
        ({"subscribe": "", "subscribePattern": "Or.*|Pay.*"}, 1),
        ({"namesrv": "127.0.0.1:1"}, 1),
    ],
)
def test_every_message_is_read_once(whole: Lake, more: dict[str, str], least_tasks: int) -> None:
    options = whole.options(**more)
    planned_tasks = tasks(options)
    assert len(planned_tasks) >= least_tasks
    assert len(planned_tasks) <= (options.max_partitions or 1000)
    assert read(options, planned_tasks) == sorted(whole.rows)


def test_a_count_reads_no_messages(lake: Lake) -> None:
    for number in range(FILES):
        path = lake.segment(number)
        entry = lake.manifest.segments[number]
        path.write_bytes(bytes(entry.footer_at) + path.read_bytes()[entry.footer_at :])
    options, cluster = lake.options(), SparkCluster(lake.options().access)
    schema = StructType().add("topic", "string").add("offset", "long")
    batches = [batch for task in tasks(options) for batch in read_spans(cluster, options, schema, task)]
    assert sum(batch.num_rows for batch in batches) == len(lake.rows)
    with pytest.raises(DataLoss, match="cannot be read"):
        read(options)


def test_only_some_tags_are_read(whole: Lake) -> None:
    assert read(whole.options(tags="even")) == sorted(row for row in whole.rows if row.offset % 2 == 0)


def test_a_read_begins_and_ends_where_the_options_say(whole: Lake) -> None:
    place = f"{BROKER}:1"
    rows = whole.of("Orders", 1)
    assigned = {"subscribe": "", "assign": json.dumps({"Orders": [place]})}

    def offsets(number: int) -> str:
        return json.dumps({"Orders": {place: number}})

    begin, end = rows[10].offset, rows[-10].offset
    both = {"startingOffsets": offsets(begin), "endingOffsets": offsets(end)}
    assert read(whole.options(**assigned, **both)) == rows[10:-10]
    for number in (0, 1, len(rows) // 2, len(rows) - 1):
        at = str(rows[number].stored_ms)
        assert read(whole.options(**assigned, startingTimestamp=at)) == rows[number:]
        earlier = {**assigned, "endingOffsets": "", "endingTimestamp": at}
        assert read(whole.options(**earlier)) == rows[:number]
    at = json.dumps({"Orders": {place: rows[7].stored_ms}})
    assert read(whole.options(**assigned, startingOffsetsByTimestamp=at)) == rows[7:]
    # A queue without messages in the tier may be named, as brokers want it.
    ends = whole.ends()
    ends["Orders"][f"{BROKER}:2"] = 0
    assert read(whole.options(endingOffsets=json.dumps(ends))) == sorted(whole.rows)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"endingOffsets": ""}, r"endingOffsets.*latest.*only brokers know the end"),
        ({"endingOffsets": "ends+1"}, r"endingOffsets.*Orders@broker-a:0 at \d+.*where the tier ends"),
        ({"endingOffsets": "", "endingTimestamp": str(BEGIN_MS * 2)}, "endingTimestamp.*where the tier ends"),
        ({"startingOffsets": "group", "consumerGroup": "g"}, "startingOffsets.*brokers know"),
        ({"sqlFilter": "a > 1"}, "sqlFilter.*brokers evaluate it"),
        ({"dropDuplicatesWithin": "10"}, "dropDuplicatesWithin.*no tier"),
        ({"subscribe": "Unknown"}, "subscribe.*Unknown.*topics with messages in the tier"),
        ({"subscribe": "RMQ_SYS_TRANS_HALF_TOPIC"}, "topics with messages in the tier"),
        ({"subscribe": "", "assign": '{"Orders": ["broker-a:9"]}'}, "assign.*Orders@broker-a:9"),
        ({"valueFormat": "json", "valueSchema": "infer"}, "valueSchema.*infer.*brokers"),
        ({"tier": "", "namesrv": "a:1"}, "endingOffsets.*tier.*the option tier with it"),
        ({"tier": "", "endingOffsets": ""}, "namesrv"),
        ({"tierCluster": "Other"}, "tier.*Other.*nothing of it is there"),
        ({"tier": "hdfs://x/y"}, "tier.*hdfs"),
        ({"tier": "/nowhere/at/all"}, "tier.*nothing of it is there"),
    ],
)
def test_what_the_tier_cannot_do_is_refused_before_a_task_starts(
    whole: Lake, more: dict[str, str], match: str
) -> None:
    if more.get("endingOffsets") == "ends+1":
        more = {"endingOffsets": json.dumps(whole.ends(add=1))}
    with pytest.raises(ConfigError, match=match):
        tasks(whole.options(**more))


def test_one_of_two_clusters_has_to_be_chosen(tmp_path: Path, lake: Lake) -> None:
    Lake(tmp_path, cluster="D")
    with pytest.raises(ConfigError, match=r"tierCluster.*one of C, D"):
        tasks(lake.options())
    assert read(lake.options(tierCluster="C")) == sorted(lake.rows)


def test_compacted_topics_are_left_to_brokers(lake: Lake) -> None:
    lake.set_attributes("Orders", **{"cleanup.policy": "COMPACTION"})
    with pytest.raises(ConfigError, match=r"Orders.*no compacted topics"):
        tasks(lake.options())


@pytest.mark.parametrize("start", ["", "offsets"])
def test_deleted_and_expired_messages_are_not_read(lake: Lake, start: str) -> None:
    rows = lake.of("Orders", 0)
    mark = rows[len(rows) // 2].log_offset
    lake.change(deletions=(HiddenMessages("0@Orders", mark), HiddenMessages("Payments", 1 << 40)))
    options = lake.options(subscribe="Orders")
    expected = [
        row for row in lake.rows if row.topic == "Orders" and (row.queue_id or row.log_offset >= mark)
    ]
    if start:
        starts = {"Orders": {f"{BROKER}:0": rows[0].offset, f"{BROKER}:1": -2}}
        options = lake.options(subscribe="Orders", startingOffsets=json.dumps(starts), failOnDataLoss="false")
        with pytest.raises(
            DataLoss, match=rf"messages {rows[0].offset} to \d+ of Orders@broker-a:0 are gone"
        ):
            tasks(lake.options(subscribe="Orders", startingOffsets=json.dumps(starts)))
    assert read(options) == sorted(expected)
    with pytest.raises(ConfigError, match=r"subscribe.*Payments"):
        tasks(lake.options())
    lake.set_attributes("Orders", **{"reserve.time": "1"})
    with pytest.raises(ConfigError, match=r"subscribe.*Orders"):
        tasks(options)


def damage(lake: Lake) -> None:
    path = lake.segment(1)
    content = bytearray(path.read_bytes())
    content[60:70] = bytes(10)
    path.write_bytes(content)


def damage_footer(lake: Lake) -> None:
    path = lake.segment(1)
    content = bytearray(path.read_bytes())
    content[lake.manifest.segments[1].footer_at + 30] ^= 0xFF
    path.write_bytes(content)


def remove(lake: Lake) -> None:
    lake.segment(1).unlink()


@pytest.mark.parametrize("harm", [damage, damage_footer, remove])
@pytest.mark.parametrize("is_planned", [True, False])
def test_an_object_that_cannot_be_read_is_named_with_what_is_lost(
    lake: Lake, harm: Callable[[Lake], None], is_planned: bool
) -> None:
    name = lake.manifest.segments[1].name
    before = tasks(lake.options()) if is_planned else None
    harm(lake)
    with pytest.raises(DataLoss, match=name) as failed:
        read(lake.options(), before)
    if is_planned or harm is damage:
        assert "of Orders@broker-a:0" in str(failed.value)
    found = read(lake.options(failOnDataLoss="false"), before)
    others = sorted(row for row in lake.rows if row.log_offset // FILE_BYTES != 1)
    assert set(others) <= set(found) < set(lake.rows)
    assert len(found) == len(set(found))
    assert (found == others) == (harm is not damage)


def test_messages_that_were_removed_after_the_plan_are_gone_and_the_others_are_read(lake: Lake) -> None:
    before = tasks(lake.options())
    gone = [lake.of("Orders", 0)[20], lake.of("Orders", 0)[21]]
    changed = erase_from_tier(lake.upkeep, [(row.topic, f"k{row.log_offset}") for row in gone])
    assert changed
    assert not (lake.place / CLUSTER / BROKER / changed[0].name).exists()
    lost = rf"messages {gone[0].offset} to {gone[1].offset} of Orders@broker-a:0 are gone"
    for plan in (before, None):
        with pytest.raises(DataLoss, match=lost):
            read(lake.options(), plan)
        expected = sorted(set(lake.rows) - set(gone))
        assert read(lake.options(failOnDataLoss="false"), plan) == expected


class TwoBrokers(SparkCluster):
    """What name servers say of the brokers."""

    def cluster_of(self, queue: Queue) -> str:
        return CLUSTER


def test_brokers_are_asked_for_what_the_tier_does_not_have(lake: Lake) -> None:
    rows = lake.of("Orders", 1)
    end = rows[-1].offset + 1
    options = lake.options(namesrv="127.0.0.1:1", endingOffsets="")
    spans = [
        Span(Queue("Orders", BROKER, 1), 0, end + 100),
        Span(Queue("Orders", "broker-b", 0), 3, 9),
        Span(Queue("Unknown", BROKER, 0), 0, 4),
        Span(Queue("Payments", BROKER, 0), end + 1000, end + 1001),
    ]
    parts, rest = below_seam(TwoBrokers(options.access), options, spans)
    queue = spans[0].queue
    assert rest == [Span(queue, 0, 5), Span(queue, end, end + 100), *spans[1:]]
    assert read(options, [parts]) == rows
    damage_footer(lake)
    parts, rest = below_seam(TwoBrokers(options.access), options, spans[:1])
    hidden = [row.offset for row in rows if row.log_offset // FILE_BYTES == 1]
    assert rest == [Span(queue, 0, 5), Span(queue, hidden[0], hidden[-1] + 1), Span(queue, end, end + 100)]
    with pytest.raises(ConfigError, match=r"tier.*nothing of it is there"):
        below_seam(TwoBrokers(options.access), options, spans[1:2])


def test_compacted_and_deleted_messages_are_what_brokers_say(lake: Lake) -> None:
    rows = lake.of("Orders", 0)
    span = Span(Queue("Orders", BROKER, 0), 5, rows[-1].offset + 1)
    mark = rows[9]
    lake.change(deletions=(HiddenMessages("Orders", mark.log_offset),))
    more = {"namesrv": "127.0.0.1:1", "endingOffsets": ""}
    parts, rest = below_seam(TwoBrokers(lake.options().access), lake.options(**more), [span])
    assert (parts[0].start, rest) == (mark.offset, [])
    start = json.dumps({"Orders": {f"{BROKER}:0": 5}})
    options = lake.options(**more, subscribe="Orders", startingOffsets=start)
    parts, rest = below_seam(TwoBrokers(options.access), options, [span])
    assert (parts[0].start, rest) == (mark.offset, [Span(span.queue, 5, mark.offset)])
    lake.set_attributes("Orders", **{"cleanup.policy": "COMPACTION"})
    assert below_seam(TwoBrokers(options.access), options, [span]) == ([], [span])


class Streamed:
    """The tier as a stream uses it: its clock moves when a test says so."""

    def __init__(self, lake: Lake, **more: str) -> None:
        base = {"tier": str(lake.place), "subscribe": "Orders,Payments", "namesrv": "127.0.0.1:1"}
        base |= {"fetchOffset.numRetries": "0", "startingOffsets": "earliest"}
        self.lake, self.clock = lake, ManualClock()
        self.options = read_options(base | more, streaming=True)
        self.tier = TierOfStream(TwoBrokers(self.options.access), self.options, self.clock)

    def split(
        self, start: int, end: int, *, broker: str = BROKER, is_first: bool = False
    ) -> tuple[list[Row], list[Span]]:
        span = Span(Queue("Orders", broker, 1), start, end)
        parts, rest = self.tier.split([span], {span.queue} if is_first else ())
        return read(self.options, [parts]), rest


def test_a_stream_that_is_behind_finds_what_came_to_the_tier_since_its_last_batch(lake: Lake) -> None:
    stream, queue = Streamed(lake), Queue("Orders", BROKER, 1)
    end = lake.of("Orders", 1)[-1].offset + 1
    assert stream.split(end - 5, end + 20) == (lake.of("Orders", 1)[-5:], [Span(queue, end, end + 20)])
    lake.offload(FILES)
    rows = [row for row in lake.of("Orders", 1) if end - 5 <= row.offset < end + 20]
    assert stream.split(end - 5, end + 20) == (rows, [])
    assert stream.tier.record_bytes(queue, end) > len(rows[0].body)


def test_a_stream_that_is_ahead_of_the_tier_asks_it_only_now_and_then(lake: Lake) -> None:
    stream, queue = Streamed(lake), Queue("Orders", BROKER, 1)
    end = lake.of("Orders", 1)[-1].offset + 1
    assert stream.split(end, end) == ([], [])
    lake.offload(FILES)
    assert stream.split(end, end + 5) == ([], [Span(queue, end, end + 5)])
    stream.clock.advance(FRESH_S)
    assert stream.split(end, end + 5)[1] == []
    # If it is away, this does no harm, unless old messages are needed.
    newest = lake.of("Orders", 1)[-1].offset + 1
    lake.place.rename(lake.place.with_name("elsewhere"))
    stream.clock.advance(FRESH_S)
    (lake.place / CLUSTER).mkdir(parents=True)
    (lake.place / CLUSTER / BROKER).write_bytes(b"no directory")
    assert stream.split(newest, newest + 5) == ([], [Span(queue, newest, newest + 5)])
    with pytest.raises(TransportError):
        stream.split(end, end + 5)


def test_a_stream_reads_nothing_of_a_topic_that_was_deleted_a_moment_ago(lake: Lake) -> None:
    stream, rows = Streamed(lake), lake.of("Orders", 1)
    assert stream.split(rows[0].offset, rows[9].offset)[0] == rows[:9]
    lake.change(deletions=(HiddenMessages("Orders", 1 << 40),))
    everything = Span(Queue("Orders", BROKER, 1), rows[0].offset, rows[9].offset)
    assert stream.split(everything.start, everything.end) == ([], [everything])


def test_only_a_stream_that_begins_does_not_miss_what_was_deleted_before(lake: Lake) -> None:
    rows = lake.of("Orders", 1)
    lake.change(deletions=(HiddenMessages("1@Orders", rows[4].log_offset),))
    first, end = rows[0].offset, rows[9].offset
    gone = Span(Queue("Orders", BROKER, 1), first, rows[4].offset)
    assert Streamed(lake).split(first, end) == (rows[4:9], [gone])
    assert Streamed(lake).split(first, end, is_first=True) == (rows[4:9], [])


def test_a_stream_says_if_no_broker_has_a_tier_there_and_takes_one_that_comes_later(
    lake: Lake, tmp_path: Path
) -> None:
    stream = Streamed(lake, tier=str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"tier.*broker-a.*nothing of it is there"):
        stream.split(5, 6)
    other = tmp_path / "other"
    other.mkdir()
    stream = Streamed(Lake(other, broker="broker-b"))
    assert stream.split(5, 6, broker="broker-b")[1] == []
    assert stream.split(5, 6)[1] == [Span(Queue("Orders", BROKER, 1), 5, 6)]


def test_the_batches_of_a_stream_are_planned_and_small_ones_read_by_the_driver(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "SparkCluster", TwoBrokers)
    rows, queue = lake.of("Orders", 1), Queue("Orders", BROKER, 1)
    lake.change(deletions=(HiddenMessages("1@Orders", rows[4].log_offset),))
    reader = stream_reader.StreamReader(Streamed(lake).options, COLUMNS)
    begin, middle, end = rows[0].offset, rows[9].offset, rows[-1].offset + 1
    first = make_offset({queue: middle}, {queue: begin})
    (task,) = reader.partitions(FIRST, first)
    assert isinstance(task, SpansPartition)
    assert [(each.start, each.end) for each in task.spans] == [(rows[4].offset, middle)]
    cached = reader.getCache(FIRST, first)
    assert cached is not None
    assert sum(batch.num_rows for batch in cached) == 5
    large = [span for each in reader.partitions(first, make_offset({queue: end}, {})) for span in each.spans]  # type: ignore[attr-defined]
    assert (large[0].start, large[-1].end) == (middle, end)
    assert reader.getCache(first, first) is None
    # A queue that is not read for the first time misses what is gone.
    again = make_offset({queue: begin}, {queue: begin})
    lost = [span for each in reader.partitions(again, make_offset({queue: end}, {})) for span in each.spans]  # type: ignore[attr-defined]
    assert Span(queue, begin, rows[4].offset) in lost
