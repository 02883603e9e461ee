"""Maintenance of a broker's store, for operators."""

from msgspec import field

from pyromq.protocol.body import Body, DataVersion
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Int32, Int64, Request, request, wire
from pyromq.protocol.needs import GET, UPDATE, cluster, topic


class Metric(Body):
    """The number of waiting messages of a topic, and the time of the count."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetricsTable(Body):
    """`timermetrics`: messages that wait for their time, by topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, Metric] = {}


@request(306, to=BROKER, needs=(cluster(UPDATE),), java_name="clean_expired_consumequeue")
class CleanExpiredConsumeQueues(Request[Answer]):
    """Delete consume queue entries whose messages are gone."""


@request(316, to=BROKER, needs=(cluster(UPDATE),), java_name="clean_unused_topic")
class CleanUnusedTopics(Request[Answer]):
    """Delete the consume queues of deleted topics."""


@request(329, to=BROKER, needs=(cluster(UPDATE),), java_name="delete_expired_commitlog")
class DeleteExpiredCommitLog(Request[Answer]):
    """Delete expired log files now, without waiting for the usual hour."""


@request(60, to=BROKER, needs=(cluster(GET),), java_name="get_timer_check_point")
class GetTimerCheckpoint(Request[BodyAnswer[bytes]]):
    """Read the progress of timed messages, for replicas."""


@request(61, to=BROKER, needs=(cluster(GET),))
class GetTimerMetrics(Request[BodyAnswer[TimerMetricsTable]]):
    """Count the timed messages of each topic, for replicas."""


@request(
    354, to=BROKER, needs=(topic(GET, may_be_missing=True),), java_name="check_rocksdb_cq_write_progress"
)
class CheckRocksDbQueueProgress(Request[BodyAnswer[str]]):
    """Compare the queues kept in RocksDB with those kept in files."""

    topic: str
    check_store_time: Int64 = 0


@request(355, to=BROKER, needs=(cluster(GET),), java_name="export_rocksdb_config_to_json")
class ExportRocksDbConfig(Request[Answer]):
    """Write the tables kept in RocksDB to JSON files."""

    config_type: str


@request(2001, to=BROKER, needs=(cluster(UPDATE),), java_name="update_cold_data_flow_ctr_config")
class UpdateColdDataLimits(Request[Answer]):
    """Limit how fast groups may read old data, as lines of `group=threshold`."""

    body: str = ""


@request(2002, to=BROKER, needs=(cluster(UPDATE),), java_name="remove_cold_data_flow_ctr_config")
class RemoveColdDataLimit(Request[Answer]):
    """Remove the limit of the group named in the body."""

    body: str = ""


@request(2003, to=BROKER, needs=(cluster(GET),), java_name="get_cold_data_flow_ctr_info")
class GetColdDataLimits(Request[BodyAnswer[str]]):
    """Read the limits for old data and their use."""


class SetCommitLogReadModeAnswer(Answer):
    remark: str | None = None


@request(2004, to=BROKER, needs=(cluster(UPDATE),), java_name="set_commitlog_read_mode")
class SetCommitLogReadMode(Request[SetCommitLogReadModeAnswer]):
    """Switch reading ahead in the log on or off."""

    # A number of madvise: 0 reads ahead as usual, 1 does not.
    mode: Int32 = wire(name="READ_AHEAD_MODE")
