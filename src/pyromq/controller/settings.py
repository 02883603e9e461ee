"""The settings of a controller: Apache's keys under Apache's names, and a few of ours."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pyromq.config.inert import InertKey, inert_keys
from pyromq.config.kinds import NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds
from pyromq.config.options import setting
from pyromq.controller.etcd_gateway import Endpoint, endpoints_in
from pyromq.controller.store import Leader
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.settings import ServerSettings

StoreKind = Literal["file", "etcd"]

_MIB = 1024 * 1024


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class ControllerSettings(ServerSettings):
    PART: ClassVar[str] = "controller"
    NEVER_CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
    INERT: ClassVar[Mapping[str, InertKey]] = inert_keys("server", "controller")

    # Where it listens
    listen_port: int = setting(19876, "TCP port to listen on if controllerDLegerPeers is empty. 0 lets the system choose.", check=PORT)
    peers: str = setting("", "All controllers, as id-host:port;id-host:port. Each listens on its port of this list and announces its address of this list to brokers.", key="controllerDLegerPeers", local=True)
    self_id: str = setting("n0", "Id of this controller in controllerDLegerPeers.", key="controllerDLegerSelfId", local=True)
    group_name: str = setting("", "Name of this group of controllers, for operators.", key="controllerDLegerGroup", local=True)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping controller waits for requests in flight.", key="shutdownWaitTimeSeconds", mutable=True, check=NOT_NEGATIVE)

    # Where it keeps its decisions
    store_kind: StoreKind = setting("file", "Where decisions are stored. file: a journal, for a single controller. etcd: for several controllers.", key="controllerStore", local=True)
    store_path: Path = setting(Path("~/controller"), "Directory of the journal, with controllerStore=file.", key="controllerStorePath")
    etcd_endpoints: str = setting("", "Addresses of the etcd servers, as http://host:port;http://host:port, or with https.", key="controllerEtcdEndpoints", local=True)
    etcd_prefix: str = setting("/pyromq/controller/", "Prefix of all keys in etcd. Controllers of different clusters need different prefixes.", key="controllerEtcdPrefix", local=True)
    etcd_lease_seconds: Seconds = setting(5, "Lease of the leading controller. If the leader dies, another controller takes over within this time.", key="controllerEtcdLeaseSeconds", check=POSITIVE, local=True)
    etcd_user: str = setting("", "User name at etcd. Leave it empty if etcd has no users.", key="controllerEtcdUser", local=True)
    etcd_password: str = setting("", "Password of controllerEtcdUser.", key="controllerEtcdPassword", secret=True)
    etcd_trust_cert_path: Path | None = setting(None, "Trusted certificates for verifying etcd, PEM. If empty, those of the system.", key="controllerEtcdTrustCertPath")
    etcd_cert_path: Path | None = setting(None, "Certificate chain that the controller presents to etcd, PEM.", key="controllerEtcdCertPath")
    etcd_key_path: Path | None = setting(None, "Private key of the certificate in controllerEtcdCertPath, PEM.", key="controllerEtcdKeyPath")

    # Brokers and elections
    scan_interval_ms: Millis = setting(5000, "How often the controller checks for brokers whose heartbeats have stopped.", key="scanNotActiveBrokerInterval", mutable=True, check=POSITIVE)
    scan_masters_interval_ms: Millis = setting(5000, "How often the controller checks for groups without a live master.", key="scanInactiveMasterInterval", mutable=True, check=POSITIVE)
    unheard_broker_timeout_ms: Millis = setting(10_000, "After the controller starts, how long it waits for a broker's first heartbeat before it treats the broker as dead.", key="unheardBrokerTimeoutMillis", check=POSITIVE)
    elect_master_max_retry_count: int = setting(3, "Maximum number of attempts to store the result of an election.", mutable=True, check=POSITIVE)
    elects_unclean: bool = setting(False, "Allow a replica that is not in sync to become master if no other is alive. Acknowledged messages may be lost.", key="enableElectUncleanMaster", mutable=True)
    notifies_brokers: bool = setting(True, "Notify brokers of a new master immediately. If false, they learn of it when they next ask.", key="notifyBrokerRoleChanged", mutable=True)

    # Files
    config_store_path: Path = setting(Path("~/controller/controller.properties"), "File for settings changed over the network. The file given with -c takes precedence.")
    config_black_list: str = setting("configBlackList;configStorePath", "Keys that cannot be changed over the network, separated by semicolons.", local=True)

    # Being observed
    metrics_port: int = setting(5557, "HTTP port for metrics and health. 0 lets the system choose.", key="metricsPromExporterPort", check=PORT)
    metrics_address: str = setting("127.0.0.1", "Address of the HTTP port for metrics and health.", key="metricsPromExporterHost", local=True)
    # fmt: on

    def __repr__(self) -> str:
        return f"<ControllerSettings {self.self_id} {self.bind_address}:{self.port}>"

    def verify_together(self) -> None:
        super().verify_together()
        peers = self.all_peers
        if peers and self.self_id not in peers:
            raise ConfigError("controllerDLegerSelfId", self.self_id, f"one of {', '.join(sorted(peers))}")
        if len(peers) > 1 and self.store_kind == "file":
            expected = "one controller, or controllerStore=etcd: only etcd lets several share their decisions"
            raise ConfigError("controllerDLegerPeers", self.peers, expected)
        if self.store_kind == "etcd" and not self.all_etcd_endpoints:
            raise ConfigError("controllerEtcdEndpoints", "", "http://host:port, because controllerStore=etcd")

    @property
    def all_peers(self) -> dict[str, Leader]:
        """The controllers by id."""
        found: dict[str, Leader] = {}
        for each in filter(None, map(str.strip, self.peers.split(";"))):
            name, _, address = each.partition("-")
            try:
                parse_address(address)
            except ConnectFailed:
                name = ""
            if not name or name in found:
                raise ConfigError("controllerDLegerPeers", self.peers, "id-host:port;id-host:port")
            found[name] = Leader(name, address)
        return found

    @property
    def all_etcd_endpoints(self) -> tuple[Endpoint, ...]:
        return endpoints_in(self.etcd_endpoints, key="controllerEtcdEndpoints")

    def etcd_tls(self) -> ssl.SSLContext:
        """Raises ConfigError if the files cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.etcd_trust_cert_path)
            if self.etcd_cert_path is not None:
                context.load_cert_chain(self.etcd_cert_path, self.etcd_key_path)
        except OSError as problem:
            files = f"{self.etcd_trust_cert_path}, {self.etcd_cert_path}, {self.etcd_key_path}"
            expected = f"readable PEM files ({problem.strerror or problem})"
            raise ConfigError("controllerEtcdTrustCertPath and others", files, expected) from None
        return context

    @property
    def port(self) -> int:
        own = self.all_peers.get(self.self_id)
        return self.listen_port if own is None else parse_address(own.address)[1]
