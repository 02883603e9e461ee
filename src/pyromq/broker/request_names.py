"""What Apache calls a request in its metrics: the names that its dashboards ask for."""

import re

from pyromq.protocol.catalogue import Declaration

# java: the constants of RequestCode in lower case, where they are not our names in other letters
_OTHER_NAMES = {
    "AckMessages": "batch_ack_message",
    "ChangeInvisibleTime": "change_message_invisibletime",
    "CheckRocksDbQueueProgress": "check_rocksdb_cq_write_progress",
    "CleanExpiredConsumeQueues": "clean_expired_consumequeue",
    "CleanUnusedTopics": "clean_unused_topic",
    "CreateAcl": "auth_create_acl",
    "CreateOrUpdateGroup": "update_and_create_subscriptiongroup",
    "CreateOrUpdateGroups": "update_and_create_subscriptiongroup_list",
    "CreateOrUpdateTopic": "update_and_create_topic",
    "CreateOrUpdateTopics": "update_and_create_topic_list",
    "CreateStaticTopic": "update_and_create_static_topic",
    "CreateUser": "auth_create_user",
    "DeleteAcl": "auth_delete_acl",
    "DeleteExpiredCommitLog": "delete_expired_commitlog",
    "DeleteGroup": "delete_subscriptiongroup",
    "DeleteTopicFromBroker": "delete_topic_in_broker",
    "DeleteUser": "auth_delete_user",
    "ExchangeHaInfo": "exchange_broker_ha_info",
    "ExportRocksDbConfig": "export_rocksdb_config_to_json",
    "GetAcl": "auth_get_acl",
    "GetAllConsumerOffsets": "get_all_consumer_offset",
    "GetAllDelayOffsets": "get_all_delay_offset",
    "GetAllGroupConfigs": "get_all_subscriptiongroup_config",
    "GetAllProducers": "get_all_producer_info",
    "GetAllTopicConfigs": "get_all_topic_config",
    "GetBrokerStatistics": "view_broker_stats_data",
    "GetColdDataLimits": "get_cold_data_flow_ctr_info",
    "GetConsumeTimeSpans": "query_consume_time_span",
    "GetConsumerConnections": "get_consumer_connection_list",
    "GetConsumerIds": "get_consumer_list_by_group",
    "GetConsumerStatus": "invoke_broker_to_get_consumer_status",
    "GetEarliestStoreTime": "get_earliest_msg_storetime",
    "GetEpochs": "get_broker_epoch_cache",
    "GetGroupConfig": "get_subscriptiongroup_config",
    "GetGroupsOfTopic": "query_topic_consume_by_who",
    "GetHaStatus": "get_broker_ha_status",
    "GetMessageRequestModes": "get_all_message_request_mode",
    "GetPollingInfo": "polling_info",
    "GetProducerConnections": "get_producer_connection_list",
    "GetSubscriptionOfGroup": "query_subscription_by_consumer",
    "GetSystemTopicsFromBroker": "get_system_topic_list_from_broker",
    "GetTimerCheckpoint": "get_timer_check_point",
    "GetTopicStats": "get_topic_stats_info",
    "GetTopicsOfGroup": "query_topics_by_consumer",
    "GetUser": "auth_get_user",
    "ListAcls": "auth_list_acl",
    "ListUsers": "auth_list_user",
    "LockQueues": "lock_batch_mq",
    "QueryCorrectionOffsets": "query_correction_offset",
    "RemoveColdDataLimit": "remove_cold_data_flow_ctr_config",
    "ResetOffset": "invoke_broker_to_reset_offset",
    "ResumeTransactionCheck": "resume_check_half_message",
    "RollBackPopStore": "pop_rollback",
    "SearchOffset": "search_offset_by_timestamp",
    "SendHeartbeat": "heart_beat",
    "SendMessageBack": "consumer_send_msg_back",
    "SendMessageBatch": "send_batch_message",
    "SendReply": "send_reply_message",
    "SendReplyV2": "send_reply_message_v2",
    "SetCommitLogReadMode": "set_commitlog_read_mode",
    "UnlockQueues": "unlock_batch_mq",
    "UpdateAcl": "auth_update_acl",
    "UpdateColdDataLimits": "update_cold_data_flow_ctr_config",
    "UpdateGroupForbidden": "update_and_get_group_forbidden",
    "UpdateUser": "auth_update_user",
    "ViewMessage": "view_message_by_id",
    "WaitForMessage": "notification",
}

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def java_name(declaration: Declaration) -> str:
    """`send_message_v2` for SendMessageV2."""
    name = declaration.name
    return _OTHER_NAMES.get(name) or _WORD_START.sub("_", name).lower()
