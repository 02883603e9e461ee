"""Our programs start with every settings file that Apache ships, or say why not in one sentence.

Only addresses, ports and directories are replaced, so that several can run on one machine.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.server_programs import BROKER, CONTROLLER, NAME_SERVER, PROXY, Program, Running

from pyromq.testing.held_ports import held_port

QUIET = ("--log-dir", "", "-o", "bindAddress=127.0.0.1")


def _pair(role: str, number: int) -> str:
    return f"""
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId={number}
deleteWhen=04
fileReservedTime=48
brokerRole={role}
flushDiskType=ASYNC_FLUSH
"""


def _in_container(role: str, number: int) -> str:
    return f"""
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId={number}
brokerRole={role}
flushDiskType=ASYNC_FLUSH
storePathRootDir=/root/broker-a/store
storePathCommitLog=/root/broker-a/store/commitlog
listenPort=10911
haListenPort=10912
totalReplicas=2
inSyncReplicas=2
minInSyncReplicas=1
enableAutoInSyncReplicas=true
slaveReadEnable=true
brokerHeartbeatInterval=1000
brokerNotActiveTimeoutMillis=5000
sendHeartbeatTimeoutMillis=1000
enableSlaveActingMaster=true
"""


BROKERS = {
    "broker.conf": """
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
""",
    "2m-2s-async, 2m-noslave: master": _pair("ASYNC_MASTER", 0),
    "2m-2s-sync: master": _pair("SYNC_MASTER", 0),
    "2m-2s-async, 2m-2s-sync: slave": _pair("SLAVE", 1),
    "container: master": _in_container("SYNC_MASTER", 0),
    "container: slave": _in_container("SLAVE", 1),
}

CONTROLLED = """
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = -1
brokerRole = SLAVE
deleteWhen = 04
fileReservedTime = 48
enableControllerMode = true
controllerAddr = 127.0.0.1:9878
namesrvAddr = 127.0.0.1:9876
allAckInSyncStateSet=true
listenPort=30911
storePathRootDir=/tmp/rmqstore/node00
storePathCommitLog=/tmp/rmqstore/node00/commitlog
"""

DLEDGER = """
brokerClusterName = RaftCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876
storePathRootDir=/tmp/rmqstore/node00
storePathCommitLog=/tmp/rmqstore/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
dLegerSelfId=n0
sendMessageThreadPoolNums=16
"""

CONTAINER = """
listenPort=10811
namesrvAddr=172.22.144.49:9876
fetchNamesrvAddrByAddressServer=false
brokerConfigPaths=/root/2container-2m-2s/broker-a-in-container1.conf:/root/2container-2m-2s/broker-b-in-container1.conf
"""

THREE_CONTROLLERS = """
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858
controllerDLegerSelfId = n0
"""

ONE_CONTROLLER = """
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878
controllerDLegerSelfId = n0
"""

PLAIN_ACL = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


def peer(home: Path, port: int) -> tuple[str, ...]:
    return ("-o", f"controllerDLegerPeers=n0-127.0.0.1:{port}", "-o", f"controllerStorePath={home / 'c'}")


def saved(home: Path, text: str, name: str = "apache.conf") -> str:
    (home / name).write_text(text)
    return name


def in_directory(home: Path) -> tuple[str, ...]:
    return (
        *("--port", "0", "-o", "brokerIP1=127.0.0.1", "-o", "haListenPort=0"),
        *("-o", f"storePathRootDir={home / 'store'}", "-o", f"storePathCommitLog={home / 'store/commitlog'}"),
    )


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With the only file that Apache ships for a name server without a controller."""
    home = tmp_path_factory.mktemp("namesrv")
    file = saved(home, "supportActingMaster=true\n")
    with NAME_SERVER.running(home, "-c", file, "--port", "0", *QUIET) as running:
        yield running


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_starts_with_the_file(tmp_path: Path, name_server: Running, name: str) -> None:
    file = saved(tmp_path, BROKERS[name])
    arguments = ("-c", file, "-n", name_server.boot["address"], *in_directory(tmp_path), *QUIET)
    with BROKER.running(tmp_path, *arguments) as broker:
        assert broker.boot["name"] == "broker-a"


def test_a_replica_without_name_servers_says_that_it_needs_them(tmp_path: Path) -> None:
    done = BROKER.run(tmp_path, "-c", saved(tmp_path, _pair("SLAVE", 1)), *in_directory(tmp_path), *QUIET)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "namesrvAddr=: expected the name servers" in done.stderr


def test_a_broker_under_a_controller_starts_with_the_number_that_means_none(
    tmp_path: Path, name_server: Running
) -> None:
    file = saved(tmp_path, ONE_CONTROLLER, "controller.conf")
    with (
        held_port() as port,
        CONTROLLER.running(tmp_path, "-c", file, *peer(tmp_path, port), *QUIET) as controller,
    ):
        addresses = (
            *("-n", name_server.boot["address"]),
            *("-o", f"controllerAddr={controller.boot['address']}"),
        )
        arguments = ("-c", saved(tmp_path, CONTROLLED), *addresses, *in_directory(tmp_path), *QUIET)
        with BROKER.running(tmp_path, *arguments) as broker:
            assert broker.boot["name"] == "broker-a"


def test_a_name_server_starts_with_a_controller_inside(tmp_path: Path) -> None:
    file = saved(tmp_path, f"enableControllerInNamesrv = true\n{ONE_CONTROLLER}")
    with held_port() as port:
        arguments = ("-c", file, "--port", "0", *peer(tmp_path, port), *QUIET)
        with NAME_SERVER.running(tmp_path, *arguments):
            pass


def test_the_front_starts_with_its_file(tmp_path: Path, name_server: Running) -> None:
    file = saved(tmp_path, '{"rocketMQClusterName": "DefaultCluster"}', "rmq-proxy.json")
    with PROXY.running(tmp_path, "-pc", file, "-n", name_server.boot["address"], "--port", "0", *QUIET):
        pass


def test_a_broker_starts_with_the_accounts_of_4_9(tmp_path: Path, name_server: Running) -> None:
    (tmp_path / "conf").mkdir()
    saved(tmp_path, PLAIN_ACL, "conf/plain_acl.yml")
    arguments = ("-n", name_server.boot["address"], *in_directory(tmp_path), *QUIET, "-o", "aclEnable=true")
    with BROKER.running(tmp_path, *arguments, ROCKETMQ_HOME=str(tmp_path)):
        pass


@pytest.mark.parametrize(
    ("program", "text", "sentence"),
    [
        (BROKER, DLEDGER, "enableDLegerCommitLog=true: expected false, because DLedger is not supported"),
        (BROKER, CONTAINER, "because a process runs one broker: start mqbroker once for each file"),
        (CONTROLLER, THREE_CONTROLLERS, "expected one controller, or controllerStore=etcd"),
        (
            NAME_SERVER,
            f"listenPort = 9876\nenableControllerInNamesrv = true\n{THREE_CONTROLLERS}",
            "expected one controller, or controllerStore=etcd",
        ),
    ],
    ids=["dledger", "container", "three controllers", "three controllers in name servers"],
)
def test_a_file_that_asks_for_more_is_refused_in_one_sentence(
    tmp_path: Path, program: Program, text: str, sentence: str
) -> None:
    done = program.run(tmp_path, "-c", saved(tmp_path, text), *QUIET)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
