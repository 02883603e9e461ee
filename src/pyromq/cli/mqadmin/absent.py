"""Commands of Apache's `mqadmin` that PyroMQ does not have, each with the reason."""

_BY_REASON = {
    "access control is not supported yet": (
        "createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl "
        "listAcl copyAcl updateAclConfig deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr"
    ),
    "replicas do not act as master": "resetMasterFlushOffset",
    "broker containers are not supported: each broker is its own process": "addBroker removeBroker",
    "pop consumption is not supported yet": "setConsumeMode exportPopRecord",
    "static topics are not supported yet": "updateStaticTopic remappingStaticTopic",
    "compacted topics are not supported yet": "dumpCompactionLog",
    "the store does not use RocksDB": (
        "checkRocksdbCqWriteProgress exportMetadataInRocksDB rocksDBConfigToJson"
    ),
    "reads of old messages are not limited": (
        "getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig"
    ),
    "the operating system decides about read-ahead": "setCommitLogReadAheadMode",
    "use consumerProgress --watch instead": "startMonitoring",
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}


def why_absent(command: str) -> str | None:
    """Why PyroMQ lacks a command of Apache's, in upper or lower case; None for an unknown command."""
    return {name.lower(): reason for name, reason in ABSENT.items()}.get(command.lower())
