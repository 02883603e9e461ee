"""Commands of Apache's `mqadmin` that PyroMQ does not have, each with the reason."""

_BY_REASON = {
    "access control is not implemented yet": (
        "createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl "
        "listAcl copyAcl updateAclConfig deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr"
    ),
    "replication is not implemented yet": "haStatus resetMasterFlushOffset",
    "controller mode is not implemented yet": (
        "getBrokerEpoch getSyncStateSet electMaster getControllerMetaData getControllerConfig"
        " updateControllerConfig cleanBrokerMetadata"
    ),
    "PyroMQ runs each broker in its own process": "addBroker removeBroker",
    "pop consumption is not implemented yet": "setConsumeMode exportPopRecord",
    "static topics are not implemented yet": "updateStaticTopic remappingStaticTopic",
    "compacted topics are not implemented yet": "dumpCompactionLog",
    "PyroMQ does not use RocksDB": "checkRocksdbCqWriteProgress exportMetadataInRocksDB rocksDBConfigToJson",
    "PyroMQ does not limit cold reads": (
        "getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig"
    ),
    "PyroMQ leaves read-ahead to the operating system": "setCommitLogReadAheadMode",
    "use consumerProgress --watch instead": "startMonitoring",
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}


def why_absent(command: str) -> str | None:
    """Why PyroMQ lacks a command of Apache's, in upper or lower case; None for an unknown command."""
    return {name.lower(): reason for name, reason in ABSENT.items()}.get(command.lower())
