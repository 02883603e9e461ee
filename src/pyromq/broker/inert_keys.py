"""Keys of RocketMQ's broker without effect here, with RocketMQ's defaults on four processors.

A feature takes its keys out of this file. `config/inert.py` says which ones are refused.
"""

from pyromq.config.inert import inert_keys

_HARMLESS = {
    "one event loop serves every request: there are no thread pools": """
ackMessageThreadPoolNums=16
ackThreadPoolQueueCapacity=100000
adminBrokerThreadPoolNums=16
adminBrokerThreadPoolQueueCapacity=10000
asyncSendEnable=true
batchDispatchRequestThreadPoolNums=16
clientManageThreadPoolNums=32
clientManagerThreadPoolQueueCapacity=1000000
consumerManageThreadPoolNums=32
consumerManagerThreadPoolQueueCapacity=1000000
dispatchCqCacheNum=4096
dispatchCqThreads=10
dispatchFromSenderThread=false
enableAsyncReput=true
enableBuildConsumeQueueConcurrently=false
enableFastChannelEventProcess=false
enableScheduleAsyncDeliver=false
endTransactionPoolQueueCapacity=100000
endTransactionThreadPoolNums=16
heartbeatThreadPoolNums=4
heartbeatThreadPoolQueueCapacity=50000
litePullMessageThreadPoolNums=24
litePullThreadPoolQueueCapacity=100000
loadBalanceProcessorThreadPoolNums=32
loadBalanceThreadPoolQueueCapacity=100000
maxAsyncPutMessageRequests=5000
processReplyMessageThreadPoolNums=24
pullMessageThreadPoolNums=24
pullThreadPoolQueueCapacity=100000
putMessageFutureThreadPoolNums=4
putThreadPoolQueueCapacity=10000
queryMessageThreadPoolNums=12
queryThreadPoolQueueCapacity=20000
recoverConcurrently=false
recoverThreadPoolNums=32
replyThreadPoolQueueCapacity=10000
scheduleAsyncDeliverMaxPendingLimit=2000
scheduleAsyncDeliverMaxResendNum2Blocked=3
sendMessageThreadPoolNums=4
sendThreadPoolQueueCapacity=10000
timerGetMessageThreadNum=3
timerPutMessageThreadNum=3
""",
    "only sends wait before they are served": """
waitTimeMillsInAckQueue=3000
waitTimeMillsInAdminBrokerQueue=5000
waitTimeMillsInHeartbeatQueue=31000
waitTimeMillsInLitePullQueue=5000
waitTimeMillsInPullQueue=5000
waitTimeMillsInTransactionQueue=3000
""",
    "one thread owns the store: there are no locks": """
debugLockEnable=false
spinLockCollisionRetreatOptimalDegree=1000
topicQueueLockNum=32
useABSLock=false
useReentrantLockWhenPutMessage=true
""",
    "messages go to the page cache at once, without buffers": """
commitCommitLogLeastPages=4
commitCommitLogThoroughInterval=200
commitIntervalCommitLog=200
fastFailIfNoBufferInStorePool=false
putConsumeQueueDataByFileChannel=true
readUnCommitted=false
sharedByteBufferNum=16
transferMsgByHeap=true
transientStorePoolEnable=false
transientStorePoolSize=5
wakeCommitWhenPutMessage=true
writeWithoutMmap=false
""",
    "the system decides which mapped pages stay in memory": """
accessMessageInMemoryHotRatio=26
cleanSwapedMapInterval=300000
commitLogForceSwapMapInterval=43200000
commitLogSwapMapInterval=3600000
commitLogSwapMapReserveFileNum=100
flushLeastPagesWhenWarmMapedFile=4096
logicQueueForceSwapMapInterval=43200000
logicQueueSwapMapInterval=3600000
logicQueueSwapMapReserveFileNum=20
mappedFileSwapEnable=true
""",
    "the log is flushed every flushIntervalCommitLog": """
enableRunningFlagsInFlush=false
flushCommitLogTimed=true
wakeFlushWhenPutMessage=false
""",
    "files are deleted one by one, without pauses": """
correctLogicMinOffsetForceInterval=300000
correctLogicMinOffsetSleepInterval=1
deleteCommitLogFilesInterval=100
deleteConsumeQueueFilesInterval=100
maxBatchDeleteFilesNum=50
redeleteHangedFileInterval=120000
""",
    "diskSpaceCleanForciblyRatio applies to queues as well": """
logicalDiskSpaceCleanForciblyThreshold=0.8
""",
    "recovery always checks every record and rebuilds what lags behind the log": """
checkCRCOnRecover=true
checkCommitLogOffsetOnRecover=false
commitLogRecoverMaxNum=10
enableAcceleratedRecovery=false
enableLogConsumeQueueRepeatedlyBuildWhenRecover=false
maxRecoveryCommitlogFiles=30
messageIndexSafe=false
recheckReputOffsetFromCq=false
""",
    "a record has the version that its topic needs": """
autoMessageVersionOnTopicLen=true
""",
    "reads examine as many units as they need": """
mapperFileSizeBatchConsumeQueue=13800000
maxChecksumRange=1073741824
maxConsumeQueueScan=20000
maxOffsetMapSize=104857600
sampleCountThreshold=5000
sampleSteps=32
searchBcqByCacheEnable=true
travelCqFileNumWhenGetMessage=1
""",
    "queues have no extension files": """
bitMapLengthConsumeQueueExt=64
enableCalcFilterBitMap=false
expectConsumerNumUseFilter=32
mappedFileSizeConsumeQueueExt=50331648
maxErrorRateOfBloomFilter=20
""",
    "used only for compacted topics, which are refused": """
compactionCqMappedFileSize=10485760
compactionMappedFileSize=104857600
compactionScheduleInternal=900000
compactionThreadNum=6
enableCompaction=true
""",
    "the store does not use RocksDB": """
bottomMostCompressionTypeForConsumeQueueStore=zstd
cleanRocksDBDirtyCQIntervalMin=60
combineAssignOffsetCQType=default
combineCQEnableCheckSelf=false
combineCQLoadingCQTypes=default;defaultRocksDB
combineCQMaxExtraSearchCommitLogFiles=3
combineCQPreferCQType=default
combineCQUseRocksdbForLmq=false
enableRocksDBLog=false
flushConsumerOffsetHistoryInterval=60000
iteratorWhenUseRocksdbConsumeQueue=true
maxRocksDBIndexQueryDays=7
memTableFlushIntervalMs=3600000
persistConsumerOffsetIncrementally=false
realTimePersistRocksDBConfig=true
rocksdbCompressionType=lz4
rocksdbFlushWalFrequency=1024
rocksdbWalFileRollingThreshold=1073741824
statRocksDBCQIntervalSec=10
timerRecallToTimeWheelEnable=true
timerRecallToTimelineEnable=true
timerReputServiceCorePoolSize=6
timerReputServiceMaxPoolSize=6
timerReputServiceQueueCapacity=10000
timerRocksDBPrecisionMs=1000
timerRocksDBRollIntervalHours=1
timerRocksDBRollMaxTps=8000.0
timerRocksDBRollRangeHours=2
timerRocksDBStopScan=false
timerRocksDBTimeExpiredMaxTps=200000.0
transWriteOriginTransHalfEnable=true
transactionCheckRocksdbCoreThreads=2
transactionCheckRocksdbMaxThreads=5
transactionCheckRocksdbQueueCapacity=2000
useSeparateStorePathForRocksdbCQ=false
""",
    "reads of old messages are not limited": """
cgColdReadThreshold=3145728
coldDataScanEnable=false
globalColdReadThreshold=104857600
timerColdDataCheckIntervalMs=60000
usePIDColdCtrStrategy=true
""",
    "light message queues are not supported": """
enableLiteEventMode=true
enableLitePopLog=false
enableLmqQuota=false
liteEventCheckInterval=10000
liteEventFullDispatchDelayTime=10000
liteEventFullDispatchDelayTimeForWildcardGroup=10000
liteLagCountMetricsEnable=false
liteLagLatencyCollectEnable=false
liteLagLatencyMetricsEnable=false
liteLagLatencyTopK=50
liteSubscriptionCheckInterval=120000
liteSubscriptionCheckTimeoutMills=180000
liteTtlCheckInterval=120000
maxClientEventCount=100
maxLiteSubscriptionCount=100000
maxLmqConsumeQueueNum=20000
minLiteTTl=900000
""",
    "used only with DLedger, which is not supported": """
dLegerGroup=
dLegerPeers=
dLegerSelfId=
enableBatchPush=false
preferredLeaderId=
storePathDLedgerCommitLog=
""",
    "a replica trusts only its own disk": """
syncMasterFlushOffsetWhenStartup=false
""",
    "a replica always asks for tables in pages": """
enableSplitMetadata=true
splitMetadataSize=2000
""",
    "namesrvAddr names the name servers": """
fetchNamesrvAddrInterval=10000
loadBalancePollNameServerInterval=30000
updateNameServerAddrPeriod=120000
""",
    "heartbeats and registrations suit name servers of every release": """
compatibleWithOldNameSrv=true
enableSingleTopicRegister=false
sendHeartbeatTimeoutMillis=1000
""",
    "the server stops reading from connections that do not read": """
enableNetWorkFlowControl=false
""",
    "a heartbeat replaces the subscriptions of its group": """
subscriptionExpiredTimeout=600000
""",
    "the members of a broadcasting group keep their offsets": """
broadcastOffsetExpireMaxSecond=300
broadcastOffsetExpireSecond=120
enableBroadcastOffsetStore=true
""",
    "delivery of a timed message is retried until it succeeds": """
timerEnableRetryUntilSuccess=false
timerSkipUnknownError=false
""",
    "the timer wheel is a mapped file": """
timerWheelSnapshotFlush=false
timerWheelSnapshotIntervalMs=10000
""",
    "counters of timed messages are always exact": """
timerEnableCheckMetrics=true
timerMetricSmallThreshold=1000000
timerProgressLogIntervalMs=10000
""",
    "counters live as long as their topics and groups": """
autoDeleteUnusedStats=true
diskFallRecorded=true
enableDetailStat=true
enableScheduleMessageStats=true
maxStatsIdleTimeInMinutes=-1
""",
    "there is no billing": """
accountStatsEnable=true
accountStatsPrintZeroValues=true
commercialBaseCount=1
commercialBigCount=1
commercialEnable=true
commercialSizePerMsg=4096
commercialTimerCount=1
commercialTransCount=1
""",
    "there is one log file, with logLevel": """
enablePopLog=false
isolateLogEnable=false
printChannelGroups=false
printChannelGroupsMinNum=5
""",
    "metrics are read over HTTP and cost nothing until then": """
enableConnectionMetrics=true
enableLagAndDlqMetrics=true
enableMessageStoreMetrics=true
enablePopMetrics=true
enableRemotingMetrics=true
enableRequestMetrics=true
enableStatsMetrics=true
enableTransactionMetrics=true
estimateAccumulation=true
metricGrpcExporterIntervalInMills=60000
metricGrpcExporterTimeOutInMills=3000
metricLoggingExporterIntervalInMills=10000
metricsExportBatchMaxDataPoints=1000
metricsGrpcExporterHeader=
metricsGrpcExporterTarget=
metricsInDelta=false
metricsOtelCardinalityLimit=50000
useStaticSubscription=false
""",
    "static topics are not supported yet": """
forwardTimeout=3000
""",
    "not used by RocketMQ's broker either": """
cleanOfflineBrokerInterval=30000
enableCleanExpiredOffset=false
filterServerNums=0
highSpeedMode=false
maxDelayTime=40
maxSlaveResendLength=268435456
maxTopicLength=127
pullBatchMaxMessageCount=160
putMessageTimeout=8000
putMsgIndexHightWater=600000
timerInterceptDelayLevel=false
""",
    "users and policies are in access.json, and all of them in memory": """
aclCacheExpiredSecond=600
aclCacheMaxNum=1000
aclCacheRefreshSecond=60
authenticationMetadataProvider=
authenticationProvider=
authenticationStrategy=
authorizationMetadataProvider=
authorizationProvider=
authorizationStrategy=
statefulAuthenticationCacheExpiredSecond=60
statefulAuthenticationCacheMaxNum=10000
statefulAuthorizationCacheExpiredSecond=60
statefulAuthorizationCacheMaxNum=10000
userCacheExpiredSecond=600
userCacheMaxNum=1000
userCacheRefreshSecond=60
""",
    "checkpoints and acknowledgements go into the log at once, without buffers": """
appendAckAsync=false
appendCkAsync=false
enablePopBufferMerge=false
popCkMaxBufferSize=200000
popCkOffsetMaxQueueSize=20000
popCkStayBufferTime=10000
popCkStayBufferTimeOut=3000
""",
    "the state of pops is never in a key-value store": """
popConsumerFSServiceInit=true
popConsumerKVServiceInit=false
popConsumerKVServiceLog=false
popReviveMaxAttemptTimes=16
popReviveMaxReturnSizePerRead=16384
""",
    "a pop is settled when it is due and all its acknowledgements are known": """
enableSkipLongAwaitingAck=false
popReviveConcurrency=32
popReviveSkipIfGroupAbsent=true
reviveAckWaitMs=180000
reviveInterval=1000
reviveMaxSlow=3
reviveScanTime=10000
skipWhenCKRePutReachMaxTimes=false
""",
    "a waiting pop wakes whenever there may be something for it": """
enableNotifyAfterPopOrderLockRelease=true
enableNotifyBeforePopCalculateLag=true
maxMessageFilterNumForNotification=64
popLongPollingForceNotifyInterval=800
popPollingMapExpireTimeSeconds=600
popPollingMapSize=100000
useMessageFilterForNotification=true
""",
    "batch acknowledgements are always accepted": """
enablePopBatchAck=false
""",
}

_REFUSED = {
    "a process runs one broker: start mqbroker once for each file": """
brokerConfigPaths=
""",
    "DLedger is not supported": """
enableDLegerCommitLog=false
""",
    "system groups are always created": """
enableCreateSysGroup=true
""",
    "queues have no extension files": """
enableConsumeQueueExt=false
""",
    "records have no checksum of their properties": """
enabledAppendPropCRC=false
forceVerifyPropCRC=false
""",
    "the log is in one directory": """
readOnlyCommitLogStorePaths=
""",
    "a store does not share its disk partition": """
replicasPerDiskPartition=1
""",
    "the store has no plug-ins": """
messageStorePlugIn=
""",
    "the store does not use RocksDB": """
configManagerVersion=v1
indexRocksDBEnable=false
rocksdbCQDoubleWriteEnable=false
storeType=default
timerRocksDBEnable=false
transRocksDBEnable=false
useSingleRocksDBForAllConfigs=false
""",
    "reads of old messages are not limited": """
coldCtrStrategyEnable=false
coldDataFlowControlEnable=false
""",
    "light message queues are not supported": """
enableLmq=false
enableLmqStats=false
enableMultiDispatch=false
""",
    "two masters never copy each other": """
duplicationEnable=false
""",
    "a queue is locked on one broker": """
lockInStrictMode=false
""",
    "a broker registers as soon as it is ready": """
disappearTimeAfterStart=-1
""",
    "a replica leaves offsets to its master": """
offsetCheckInSlave=false
""",
    "the epochs and the identity of a broker are in storePathRootDir": """
storePathBrokerIdentity=
storePathEpochFile=
""",
    "namesrvAddr must name the name servers": """
fetchNameSrvAddrByDnsLookup=false
fetchNamesrvAddrByAddressServer=false
""",
    "the state of pops is never in a key-value store": """
popConsumerKVServiceEnable=false
""",
    "messageIndexEnable controls index files": """
indexFileReadEnable=true
indexFileWriteEnable=true
""",
    "a timed message is recalled by its unique key": """
appendTopicForTimerDeleteKey=false
""",
    "retries of pops have no separate queues": """
useSeparateRetryQueue=false
""",
}

INERT_KEYS = inert_keys(_HARMLESS, _REFUSED)
