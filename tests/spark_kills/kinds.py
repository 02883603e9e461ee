"""The names of the pipelines that are killed."""

from typing import Final

from tests.spark_kills import jobs, tables

KINDS: Final[dict[str, type[jobs.Job]]] = {
    "archive": jobs.Archive,
    "archive-delta": tables.DeltaArchive,
    "archive-iceberg": tables.IcebergArchive,
    "changes-delta": tables.DeltaChanges,
    "changes-iceberg": tables.IcebergChanges,
    "sessions-delta": tables.DeltaSessions,
    "sessions-iceberg": tables.IcebergSessions,
    "files": jobs.Files,
    "topic": jobs.Topic,
    "transactional": jobs.TransactionalTopic,
    "state": jobs.State,
    "together": jobs.Together,
    "replay": jobs.Replay,
    "redrive": jobs.Redrive,
    "redrive-group": jobs.RedriveToGroup,
    "trace": jobs.Trace,
    "archive-s3": jobs.ArchiveInStore,
    "transactional-s3": jobs.TransactionalInStore,
    "changes-delta-s3": tables.DeltaChangesInStore,
    "changes-iceberg-s3": tables.IcebergChangesInStore,
}
