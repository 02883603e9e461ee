"""Keys of RocketMQ's controller without effect here; see `config/inert.py`."""

from pyromq.config.inert import inert_keys

_HARMLESS = {
    "one event loop serves every request: there are no thread pools": """
controllerRequestThreadPoolQueueCapacity=50000
controllerThreadPoolNums=16
""",
    "decisions are kept in a journal or in etcd, and reads always go through them": """
isProcessReadEvent=false
mappedFileSize=1073741824
""",
    "used only with jRaft": """
jRaftControllerRPCAddr=
jRaftElectionTimeoutMs=1000
jRaftGroupId=jRaft-Controller
jRaftInitConf=
jRaftScanWaitTimeoutMs=1000
jRaftServerId=
jRaftSnapshotIntervalSecs=3600
""",
    "metrics are read over HTTP": """
metricGrpcExporterIntervalInMills=60000
metricGrpcExporterTimeOutInMills=3000
metricLoggingExporterIntervalInMills=10000
metricsGrpcExporterHeader=
metricsGrpcExporterTarget=
metricsInDelta=false
""",
}

_REFUSED = {
    "several controllers share their decisions with controllerStore=etcd": """
controllerType=DLedger
""",
    "metrics of a controller have no custom labels": """
metricsLabel=
""",
}

INERT_KEYS = inert_keys(_HARMLESS, _REFUSED)
