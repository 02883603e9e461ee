"""Commands of Apache's `mqadmin` that are not here, each with the reason."""

_BY_REASON = {
    "access control is not there yet": (
        "createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl "
        "listAcl copyAcl updateAclConfig deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr"
    ),
    "replication is not there yet": "haStatus resetMasterFlushOffset",
    "there is no controller mode": (
        "getBrokerEpoch getSyncStateSet electMaster getControllerMetaData getControllerConfig"
        " updateControllerConfig cleanBrokerMetadata"
    ),
    "a broker is a process of its own here": "addBroker removeBroker",
    "popping is not there yet": "setConsumeMode exportPopRecord",
    "static topics are not there yet": "updateStaticTopic remappingStaticTopic",
    "compacted topics are not there yet": "dumpCompactionLog",
    "there is no RocksDB here": "checkRocksdbCqWriteProgress exportMetadataInRocksDB rocksDBConfigToJson",
    "reading old messages is not limited here": (
        "getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig"
    ),
    "reading ahead is left to the system": "setCommitLogReadAheadMode",
    "consumerProgress --watch shows who falls behind": "startMonitoring",
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}


def why_absent(command: str) -> str | None:
    """Why a command of Apache's is not here; upper and lower case make no difference."""
    return {name.lower(): reason for name, reason in ABSENT.items()}.get(command.lower())
