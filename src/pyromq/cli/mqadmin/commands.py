"""Which commands `mqadmin` has, by noun, and which of Apache's it has not, each with the reason."""

NOUNS: dict[str, tuple[str, dict[str, str]]] = {
    "cluster": (
        "Cluster",
        {
            "clusterList": "List brokers with their versions, rates and disk usage.",
            "clusterRT": "Measure send times to every broker.",
        },
    ),
    "topics": (
        "Topics",
        {
            "topicList": "List topics.",
            "topicRoute": "Show which brokers hold a topic.",
            "topicStatus": "Show the first and last offset of each queue of a topic.",
            "topicClusterList": "List the clusters that hold a topic.",
            "updateTopic": "Create or change a topic.",
            "updateTopicList": "Create or change topics from a JSON file.",
            "updateTopicPerm": "Change the permission of a topic.",
            "updateOrderConf": "Set, get or delete the fixed queues of an ordered topic.",
            "deleteTopic": "Delete a topic.",
            "purgeQueue": "Purge queues of a topic up to an offset: earlier messages are not delivered.",
            "allocateMQ": "Show how queues would be allocated to members.",
        },
    ),
    "erasing": (
        "Erasing",
        {
            "eraseMessages": "Erase all messages with a key, in logs and in the lake tier.",
            "erasureStatus": "Show which keys brokers erase, and which are gone.",
        },
    ),
    "lite": (
        "Lite topics",
        {
            "getBrokerLiteInfo": "Show how many lite topics and subscriptions brokers have.",
            "getParentTopicInfo": "Show how many lite topics a topic has, and which groups read them.",
            "getLiteTopicInfo": "Show the offsets and subscribers of a lite topic.",
            "getLiteClientInfo": "Show how many lite topics a client reads.",
            "getLiteGroupInfo": "Show the lag of a group in lite topics.",
            "triggerLiteDispatch": "Make brokers check the lite topics of a group for messages.",
            "listLiteTopics": "List the lite topics of a topic.",
            "deleteLiteTopic": "Delete a lite topic.",
        },
    ),
    "progress": (
        "Progress",
        {
            "consumerProgress": "Show the lag of groups.",
            "consumeTimeSpan": "Show the lag of a group in a topic as time.",
            "sparkCheckpoint": "Show the progress of a streaming query of Spark, from its checkpoint.",
            "brokerConsumeStats": "Show the lag of all groups of a broker.",
            "statsAll": "Show rates and lag of every topic and group.",
            "startMonitoring": "Watch the lag of all groups and report members in trouble.",
        },
    ),
    "groups": (
        "Consumer groups",
        {
            "getConsumerConfig": "Show the settings of a group.",
            "updateSubGroup": "Create or change a group.",
            "updateSubGroupList": "Create or change groups from a JSON file.",
            "deleteSubGroup": "Delete a group.",
            "setConsumeMode": "Set whether a group pulls or pops a topic.",
        },
    ),
    "static_topics": (
        "Static topics",
        {
            "updateStaticTopic": "Create a static topic, or give one more queues.",
            "remappingStaticTopic": "Move queues of a static topic to other brokers.",
        },
    ),
    "offsets": (
        "Offsets",
        {
            "resetOffsetByTime": "Reset the offsets of a group to a point in time.",
            "skipAccumulatedMessage": "Reset a group to the end of all queues.",
            "cloneGroupOffset": "Copy the offsets of a group to another.",
        },
    ),
    "messages": (
        "Messages",
        {
            "queryMsgById": "Show a message by its id.",
            "queryMsgByKey": "List messages by a key.",
            "queryMsgByUniqueKey": "Show a message by its unique id.",
            "queryMsgByOffset": "Show a message by its queue and offset.",
            "decodeMessageId": "Decode the unique id of a message.",
            "queryCq": "Show entries of a consume queue.",
            "resumeCheckHalfMessage": "Check a transaction again that was given up.",
        },
    ),
    "traces": (
        "Traces",
        {
            "queryMsgTraceById": "Show who sent and consumed a message, as traced.",
        },
    ),
    "reading": (
        "Reading and sending",
        {
            "printMsg": "Print the messages of a topic.",
            "printMsgByQueue": "Print the messages of a queue, or count them by tag.",
            "consumeMessage": "Print messages without changing any offsets.",
            "sendMessage": "Send a message.",
            "checkMsgSendRT": "Measure send times to each queue of a topic.",
            "sendMsgStatus": "Send test messages to a broker.",
        },
    ),
    "tier": (
        "Lake tier",
        {"tierStatus": "Show what is on the disk and in the tier, and how far uploads are behind."},
    ),
    "mirrors": (
        "Mirrors",
        {
            "mirrorStatus": "Show how far mirrors have the log of another cluster.",
            "promoteMirror": "Have mirrors copy another cluster no longer, and accept messages.",
        },
    ),
    "brokers": (
        "Brokers",
        {
            "brokerStatus": "Show the runtime figures of brokers.",
            "halfMessages": "Show how many transactions are open, and for how long.",
            "getBrokerConfig": "Show the settings of brokers.",
            "updateBrokerConfig": "Change a setting of running brokers.",
            "drainBroker": "Make a broker and its replicas read-only, or writable again.",
            "setCommitLogReadAheadMode": "Switch reading ahead in the commit log on or off.",
            "exportPopRecord": "Have brokers write their popped messages into their logs.",
            "cleanExpiredCQ": "Delete consume queue entries whose messages are gone.",
            "deleteExpiredCommitLog": "Delete expired commit log files.",
            "cleanUnusedTopic": "Delete the consume queues of deleted topics.",
        },
    ),
    "replication": (
        "Replication",
        {
            "haStatus": "Show how far replicas have the log.",
            "replicationStatus": "Show broker groups: roles, who follows whom, who is in sync.",
            "resetMasterFlushOffset": "Tell a replica how far its master has flushed the log.",
        },
    ),
    "connections": (
        "Connections",
        {
            "consumerStatus": "Show what the members of a group report.",
            "getConsumerStatus": "Show the offsets that the members of a group report.",
            "diagnoseGroup": "Show what is wrong with a group and its members.",
            "consumerConnection": "List the members of a consumer group.",
            "producerConnection": "List the members of a producer group.",
            "producer": "List every producer of a broker.",
        },
    ),
    "name_servers": (
        "Name servers",
        {
            "namesrvDiff": "Show where name servers disagree.",
            "getNamesrvConfig": "Show the settings of name servers.",
            "updateNamesrvConfig": "Change a setting of running name servers.",
            "updateKvConfig": "Set a key.",
            "deleteKvConfig": "Remove a key.",
            "wipeWritePerm": "Remove the write permission of a broker until name servers restart.",
            "addWritePerm": "Give a broker its write permission back.",
        },
    ),
    "controllers": (
        "Controllers",
        {
            "getControllerMetaData": "Show which controller leads.",
            "getSyncStateSet": "Show the master and the replicas in sync of broker groups.",
            "getBrokerEpoch": "Show which masters wrote which parts of the logs.",
            "electMaster": "Make a replica in sync the master of its group.",
            "cleanBrokerMetadata": "Have the controller forget brokers.",
            "getControllerConfig": "Show the settings of controllers.",
            "updateControllerConfig": "Change a setting of running controllers.",
        },
    ),
    "access": (
        "Access control",
        {
            "createUser": "Create a user.",
            "updateUser": "Change a user.",
            "deleteUser": "Delete a user and its policies.",
            "getUser": "Show a user.",
            "listUser": "List users.",
            "copyUser": "Copy users from one broker to another.",
            "createAcl": "Allow or deny actions on resources.",
            "updateAcl": "Change what is allowed or denied.",
            "deleteAcl": "Delete the policies of a user.",
            "getAcl": "Show the policies of a user.",
            "listAcl": "List the policies of all users.",
            "copyAcl": "Copy policies from one broker to another.",
            "updateAclConfig": "Create or change an account of access control 1.0.",
            "deleteAclConfig": "Delete an account of access control 1.0.",
            "clusterAclConfigVersion": "Show the versions of account files.",
            "updateGlobalWhiteAddr": "Set the addresses that need no account.",
        },
    ),
    "exports": (
        "Exports",
        {
            "exportConfigs": "Write the settings of a cluster to a file.",
            "exportMetadata": "Write the topics and groups of a cluster to a file.",
            "exportMetrics": "Write the figures of a cluster to a file.",
        },
    ),
}

_BY_REASON = {
    "broker containers are not supported: each broker is its own process": "addBroker removeBroker",
    "timers have one engine": "switchTimerEngine",
    "its answer has the secret keys of all accounts": "getAclConfig",
    "clients from before 3.0.7 are not supported": "resetOffsetByTimeOld",
    "compacted topics have no log of their own": "dumpCompactionLog",
    "the store does not use RocksDB": (
        "checkRocksdbCqWriteProgress exportMetadataInRocksDB rocksDBConfigToJson"
    ),
    "reads of old messages are not limited": (
        "getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig"
    ),
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
