"""Keys of Netty, which every server of RocketMQ has; see `config/inert.py`."""

from pyromq.config.inert import Lines, inert_keys

HARMLESS: Lines = {
    "one event loop serves every connection": """
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverWorkerThreads=8
useEpollNativeSelector=false
writeBufferLowWaterMark=0
""",
    "client certificates are always verified": """
tls.server.authClient=true
""",
    "a stopping server always answers requests in flight": """
enableShutdownGracefully=false
""",
    "connections to other servers have separate settings": """
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
disableCallbackExecutor=false
disableNettyWorkerGroup=false
enableReconnectForGoAway=true
maxReconnectIntervalTimeSeconds=60
scanAvailableNameSrv=true
""",
}

REFUSED: Lines = {
    "use tls.enable=true instead": """
useTLS=false
""",
    "certificates are not generated: set tls.server.certPath and tls.server.keyPath": """
tls.test.mode.enable=false
""",
    "SOCKS proxies are not supported": """
socksProxyConfig={}
""",
}

NETTY_KEYS = inert_keys(HARMLESS, REFUSED)
