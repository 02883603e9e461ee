"""Keys of Apache's proxy without effect here, see `config/inert.py`, and those that once had other names."""

from collections.abc import Mapping
from types import MappingProxyType

from pyromq.config.inert import inert_keys

_HARMLESS = {
    "one event loop serves every request: there are no thread pools": """
consumerProcessorThreadPoolNums=4
consumerProcessorThreadPoolQueueCapacity=10000
enableGrpcEpoll=false
grpcBossLoopNum=1
grpcClientManagerThreadPoolNums=4
grpcClientManagerThreadQueueCapacity=10000
grpcConsumerThreadPoolNums=4
grpcConsumerThreadQueueCapacity=10000
grpcProducerThreadPoolNums=4
grpcProducerThreadQueueCapacity=10000
grpcRouteThreadPoolNums=4
grpcRouteThreadQueueCapacity=10000
grpcThreadPoolNums=24
grpcThreadPoolQueueCapacity=100000
grpcTransactionThreadPoolNums=4
grpcTransactionThreadQueueCapacity=10000
grpcWorkerLoopNum=8
heartbeatSyncerThreadPoolNums=4
heartbeatSyncerThreadPoolQueueCapacity=100
lockTimeoutMsInHandleGroup=3000
metadataThreadPoolNums=3
metadataThreadPoolQueueCapacity=100000
printThreadPoolStatusInMillis=3000
producerProcessorThreadPoolNums=4
producerProcessorThreadPoolQueueCapacity=10000
remotingDefaultThreadPoolNums=16
remotingDefaultThreadPoolQueueCapacity=50000
remotingHeartbeatThreadPoolNums=8
remotingHeartbeatThreadPoolQueueCapacity=50000
remotingPullMessageThreadPoolNums=16
remotingPullThreadPoolQueueCapacity=50000
remotingSendMessageThreadPoolNums=16
remotingSendThreadPoolQueueCapacity=10000
remotingTopicRouteThreadPoolNums=8
remotingTopicRouteThreadPoolQueueCapacity=50000
remotingUpdateOffsetThreadPoolNums=16
remotingUpdateOffsetThreadPoolQueueCapacity=10000
remotingWaitTimeMillsInDefaultQueue=3000
remotingWaitTimeMillsInHeartbeatQueue=31000
remotingWaitTimeMillsInPullQueue=5000
remotingWaitTimeMillsInSendQueue=3000
remotingWaitTimeMillsInTopicRouteQueue=3000
remotingWaitTimeMillsInUpdateOffsetQueue=3000
renewMaxThreadPoolNums=4
renewThreadPoolNums=2
renewThreadPoolQueueCapacity=300
rocketmqMQClientNum=6
topicRouteServiceThreadPoolNums=4
topicRouteServiceThreadPoolQueueCapacity=5000
transactionHeartbeatThreadPoolNums=20
transactionHeartbeatThreadPoolQueueCapacity=200
""",
    "routes come from the name server as they change": """
topicRouteServiceCacheExpiredSeconds=300
topicRouteServiceCacheMaxNum=20000
topicRouteServiceCacheRefreshSeconds=20
""",
    "settings of topics and groups are refreshed every topicConfigCacheRefreshSeconds": """
aclCacheExpiredSeconds=300
aclCacheMaxNum=20000
aclCacheRefreshSeconds=20
subscriptionGroupConfigCacheExpiredSeconds=300
subscriptionGroupConfigCacheMaxNum=20000
subscriptionGroupConfigCacheRefreshSeconds=20
topicConfigCacheExpiredSeconds=300
topicConfigCacheMaxNum=20000
userCacheExpiredSeconds=300
userCacheMaxNum=20000
userCacheRefreshSeconds=20
""",
    "users come from the broker in the same process, or from authConfigPath; mqadmin createUser accepts the"
    " address of the proxy": """
aclCacheExpiredSecond=600
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
userCacheRefreshSecond=60
""",
    "routes contain the address that the client used": """
localServeAddr=
""",
    "a proxy is identified by its address": """
proxyName=
""",
    "brokers know the members themselves": """
channelExpiredInSeconds=60
contextExpiredInSeconds=30
heartbeatSyncerTopicClusterName=
heartbeatSyncerTopicName=DefaultHeartBeatSyncerTopic
proxyClusterName=DefaultCluster
transactionHeartbeatBatchNum=100
transactionHeartbeatPeriodSecond=20
""",
    "expired transactions are found without a scan": """
transactionDataExpireScanPeriodMillis=10000
transactionDataMaxNum=15
transactionDataMaxWaitClearMillis=30000
""",
    "clients of the remoting protocol connect to brokers directly": """
enableRemotingLocalProxyGrpc=true
localProxyConnectTimeoutMs=3000
remotingAccessAddr=
""",
    "sends rotate over the brokers": """
detectInterval=2000
detectTimeout=200
sendLatencyEnable=false
startDetectorEnable=false
""",
    "changed certificates are loaded at once": """
tlsCertWatchIntervalMs=3600000
""",
    "stacks are printed on a signal": """
enablePrintJstack=true
printJstackInMillis=60000
""",
    "the proxy signs with innerClientAuthenticationCredentials if they are set": """
enableAclRpcHookForClusterMode=false
""",
    "clients are configured not to send metrics": """
metricCollectorAddress=
metricCollectorMode=off
""",
    "metrics are read over HTTP": """
metricGrpcExporterIntervalInMills=60000
metricGrpcExporterTimeOutInMills=3000
metricLoggingExporterIntervalInMills=10000
metricsGrpcExporterHeader=
metricsGrpcExporterTarget=
metricsInDelta=false
metricsLabel=
""",
    "delivery times are exact; delay levels are not used": """
messageDelayLevel=
""",
    "acknowledgements are sent as they come": """
enableBatchAck=false
longPollingReserveTimeInMillis=100
""",
}

_REFUSED = {
    "access control 1.0 applies at brokers only; use denyByDefault for the proxy": """
enableACL=false
""",
    "name servers are given by namesrvAddr": """
namesrvDomain=
namesrvDomainSubgroup=
""",
    "delivery times are exact; delay levels are not used": """
useDelayLevel=false
""",
    "traces are sent by clients": """
regionId=
traceOn=false
""",
}

INERT_KEYS = inert_keys(_HARMLESS, _REFUSED)

RENAMED_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "grpcClientConsumerLongPollingTimeoutMillis": "grpcClientConsumerMaxLongPollingTimeoutMillis",
        "grpcTlsCertPath": "tlsCertPath",
        "grpcTlsKeyPath": "tlsKeyPath",
        "grpcTlsTestModeEnable": "tlsTestModeEnable",
        "renewSliceTimeMillis": "defaultInvisibleTimeMills",
        "subscriptionGroupConfigCacheExpiredInSeconds": "subscriptionGroupConfigCacheRefreshSeconds",
        "topicConfigCacheExpiredInSeconds": "topicConfigCacheRefreshSeconds",
        "topicRouteServiceCacheExpiredInSeconds": "topicRouteServiceCacheRefreshSeconds",
    }
)
"""By the names in 5.0 and 5.1: a certificate that is not read would be replaced by one made at the start."""
