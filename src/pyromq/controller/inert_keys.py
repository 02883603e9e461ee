"""Keys of RocketMQ's controller without effect here, each with RocketMQ's default (on four processors).

Thread pools and Netty have no counterpart in one event loop. DLedger and JRaft keep decisions in a log of
their own, which here is a journal or etcd; reads always go through it.
"""

from collections.abc import Mapping
from types import MappingProxyType

_LINES = """
channelNotActiveInterval=60000
clientAsyncSemaphoreValue=65535
clientCallbackExecutorThreads=4
clientChannelMaxIdleTimeSeconds=120
clientCloseSocketIfTimeout=true
clientOnewaySemaphoreValue=65535
clientPooledByteBufAllocatorEnable=false
clientSocketRcvBufSize=0
clientSocketSndBufSize=0
clientWorkerThreads=4
connectTimeoutMillis=3000
controllerRequestThreadPoolQueueCapacity=50000
controllerThreadPoolNums=16
disableCallbackExecutor=false
disableNettyWorkerGroup=false
enableReconnectForGoAway=true
enableShutdownGracefully=false
isProcessReadEvent=false
jRaftControllerRPCAddr=
jRaftElectionTimeoutMs=1000
jRaftGroupId=jRaft-Controller
jRaftInitConf=
jRaftScanWaitTimeoutMs=1000
jRaftServerId=
jRaftSnapshotIntervalSecs=3600
mappedFileSize=1073741824
maxReconnectIntervalTimeSeconds=60
metricGrpcExporterIntervalInMills=60000
metricGrpcExporterTimeOutInMills=3000
metricLoggingExporterIntervalInMills=10000
metricsGrpcExporterHeader=
metricsGrpcExporterTarget=
metricsInDelta=false
metricsLabel=
rocketmqHome=
scanAvailableNameSrv=true
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverWorkerThreads=8
socksProxyConfig={}
useEpollNativeSelector=false
useTLS=false
writeBufferLowWaterMark=0
"""

INERT_KEYS: Mapping[str, str] = MappingProxyType(
    dict(line.split("=", 1) for line in _LINES.strip().splitlines())
)
