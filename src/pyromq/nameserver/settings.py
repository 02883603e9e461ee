"""The settings of a name server: Apache's keys under Apache's names, and a few of our own.

A key of `namesrv.properties` has the meaning that it has in Apache's name server. Thread pools and Netty
tuning have no counterpart in one event loop; their keys are read and checked, so existing files still work.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pyromq.config.kinds import HOST, NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds, SizeBytes
from pyromq.config.options import setting
from pyromq.errors import ConfigError
from pyromq.protocol.bodies.topics import MAX_QUEUES_PER_TOPIC
from pyromq.remoting.settings import ServerSettings, addresses_in

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_MIB = 1024 * 1024


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class NameServerSettings(ServerSettings):
    PART: ClassVar[str] = "namesrv"

    # Where it listens
    listen_port: int = setting(9876, "The TCP port to listen on; 0 lets the system choose one.", check=PORT)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping server waits for requests in flight.", key="shutdownWaitTimeSeconds", mutable=True, check=NOT_NEGATIVE)

    # Routes and brokers
    broker_expiry_ms: Millis = setting(120_000, "A broker that announces no timeout of its own is removed after this time without a heartbeat.", key="brokerExpiryMillis", mutable=True, check=POSITIVE)
    scan_interval_ms: Millis = setting(5000, "How often the name server checks for expired brokers.", key="scanNotActiveBrokerInterval", mutable=True, check=POSITIVE)
    delete_topic_with_broker_registration: bool = setting(False, "A topic that is missing from a broker's registration loses its queues on that broker.", mutable=True)
    guard_live_brokers: bool = setting(True, "A live broker cannot be replaced or unregistered from another host; a greater state version, which a controller gives out, allows it.", mutable=True)
    max_topics_per_broker: int = setting(250_000, "A registration with more topics is refused.", mutable=True, check=POSITIVE)
    max_queues_per_topic: int = setting(MAX_QUEUES_PER_TOPIC, "A topic with more queues on one broker, or with a negative number, is left out of the registration.", mutable=True, check=POSITIVE)
    return_order_topic_config_to_broker: bool = setting(True, "Answers to registrations contain the configuration of ordered topics.", mutable=True)
    order_message_enable: bool = setting(False, "Answers to route queries contain the queue layout of ordered topics.", mutable=True)
    support_acting_master: bool = setting(False, "Routes show a replica as acting master while the master is missing.", mutable=True)
    notify_min_broker_id_changed: bool = setting(False, "The name server notifies brokers when the smallest id of their group changes.", mutable=True)
    enable_all_topic_list: bool = setting(True, "Clients may ask for the list of all topics.", mutable=True)
    enable_topic_list: bool = setting(True, "Clients may ask for the topics of a cluster or unit.", mutable=True)
    need_wait_for_service: bool = setting(False, "Route queries are refused for a while after the start, while brokers register.", mutable=True)
    wait_seconds_for_service: Seconds = setting(45, "How long route queries are refused after the start, with needWaitForService.", mutable=True, check=NOT_NEGATIVE)

    # A controller beside it
    enable_controller_in_namesrv: bool = setting(False, "Run a controller in this process, with the settings of a controller in the same file; it listens on its port of controllerDLegerPeers.")

    # Cluster test: unknown routes come from another environment
    cluster_test: bool = setting(False, "Unknown routes are queried from the name servers of another environment.")
    cluster_test_namesrv_addr: str = setting("", "The name servers of the other environment, as host:port;host:port.", local=True)
    product_env_name: str = setting("center", "The unit name of the other environment.")

    # Files
    kv_config_path: Path = setting(Path("~/namesrv/kvConfig.json"), "The file for key-value configuration.")
    config_store_path: Path = setting(Path("~/namesrv/namesrv.properties"), "The file for settings that are changed over the network; the file given with -c takes precedence.")
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath", "Keys that cannot be changed over the network, separated by semicolons.", local=True)
    rocketmq_home: Path | None = setting(None, "The installation directory; RocketMQ's scripts set it.", environment="ROCKETMQ_HOME", has_effect=False)

    # Being observed
    metrics_port: int | None = setting(None, "The HTTP port for metrics and health; 0 lets the system choose one, empty opens none.", check=PORT)
    metrics_address: str = setting("127.0.0.1", "The address of the HTTP port for metrics and health.", check=HOST)
    log_dir: Path | None = setting(Path("~/logs/rocketmqlogs"), "The directory of namesrv.log; empty writes to the console only.")
    log_level: LogLevel = setting("INFO", "The lowest level of log lines that are written.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "The log file is rotated at this size.", check=POSITIVE)
    log_backups: int = setting(5, "How many rotated log files are kept.", check=NOT_NEGATIVE)

    # Known to RocketMQ, without a counterpart here
    namesrv_addr: str = setting("", "Other name servers; they do not talk to each other.", environment="NAMESRV_ADDR", has_effect=False, local=True)
    client_request_thread_pool_nums: int = setting(8, "Threads for route queries.", check=POSITIVE, has_effect=False)
    client_request_thread_pool_queue_capacity: int = setting(50000, "Route queries waiting for a thread.", check=POSITIVE, has_effect=False)
    default_thread_pool_nums: int = setting(16, "Threads for all other requests.", check=POSITIVE, has_effect=False)
    default_thread_pool_queue_capacity: int = setting(10000, "Other requests waiting for a thread.", check=POSITIVE, has_effect=False)
    un_register_broker_queue_capacity: int = setting(3000, "Unregistrations waiting for a thread.", check=POSITIVE, has_effect=False)
    server_worker_threads: int = setting(8, "Netty worker threads.", check=POSITIVE, has_effect=False)
    server_callback_executor_threads: int = setting(0, "Threads for callbacks.", check=NOT_NEGATIVE, has_effect=False)
    server_selector_threads: int = setting(3, "Netty selector threads.", check=POSITIVE, has_effect=False)
    server_oneway_semaphore_value: int = setting(256, "Oneway requests sent at the same time.", check=POSITIVE, has_effect=False)
    server_async_semaphore_value: int = setting(64, "Calls made at the same time.", check=POSITIVE, has_effect=False)
    write_buffer_low_water_mark: SizeBytes = setting(0, "Netty write buffer, lower mark.", check=NOT_NEGATIVE, has_effect=False)
    server_netty_worker_group_enable: bool = setting(True, "A Netty thread group of its own for workers.", has_effect=False)
    server_pooled_byte_buf_allocator_enable: bool = setting(True, "Netty buffer pooling.", has_effect=False)
    enable_shutdown_gracefully: bool = setting(False, "Wait for requests in flight when stopping. PyroMQ always does.", has_effect=False)
    use_epoll_native_selector: bool = setting(False, "Netty's native epoll.", has_effect=False)
    client_worker_threads: int = setting(4, "Netty worker threads of the client side.", check=POSITIVE, has_effect=False)
    client_callback_executor_threads: int = setting(4, "Threads for callbacks of the client side.", check=NOT_NEGATIVE, has_effect=False)
    client_oneway_semaphore_value: int = setting(65535, "Oneway requests of the client side at the same time.", check=POSITIVE, has_effect=False)
    client_async_semaphore_value: int = setting(65535, "Calls of the client side at the same time.", check=POSITIVE, has_effect=False)
    connect_timeout_millis: Millis = setting(3000, "How long the client side waits for a connection.", check=POSITIVE, has_effect=False)
    channel_not_active_interval: Millis = setting(60_000, "Unused by RocketMQ itself.", check=NOT_NEGATIVE, has_effect=False)
    scan_available_name_srv: bool = setting(True, "The client side looks for reachable name servers.", has_effect=False)
    client_channel_max_idle_time_seconds: Seconds = setting(120, "A silent connection of the client side is closed.", check=POSITIVE, has_effect=False)
    client_socket_snd_buf_size: SizeBytes = setting(0, "Send buffer of the client side.", check=NOT_NEGATIVE, has_effect=False)
    client_socket_rcv_buf_size: SizeBytes = setting(0, "Receive buffer of the client side.", check=NOT_NEGATIVE, has_effect=False)
    client_pooled_byte_buf_allocator_enable: bool = setting(False, "Netty buffer pooling of the client side.", has_effect=False)
    client_close_socket_if_timeout: bool = setting(True, "A timed-out call closes its connection.", has_effect=False)
    use_tls: bool = setting(False, "The client side speaks TLS.", key="useTLS", has_effect=False, local=True)
    socks_proxy_config: str = setting("{}", "SOCKS proxies of the client side, JSON.", has_effect=False, local=True)
    disable_callback_executor: bool = setting(False, "No callback threads on the client side.", has_effect=False)
    disable_netty_worker_group: bool = setting(False, "No Netty worker group on the client side.", has_effect=False)
    max_reconnect_interval_time_seconds: Seconds = setting(60, "The longest pause between reconnects of the client side.", check=POSITIVE, has_effect=False)
    enable_reconnect_for_go_away: bool = setting(True, "The client side reconnects when told to go away.", has_effect=False)
    tls_enable: bool = setting(False, "The client side speaks TLS.", key="tls.enable", has_effect=False)
    tls_client_cert_path: Path | None = setting(None, "Certificate chain of the client side.", key="tls.client.certPath", has_effect=False)
    tls_client_key_path: Path | None = setting(None, "Private key of the client side.", key="tls.client.keyPath", has_effect=False)
    tls_client_key_password: str | None = setting(None, "Password of the client side's key.", key="tls.client.keyPassword", secret=True, has_effect=False)
    tls_client_trust_cert_path: Path | None = setting(None, "Certificates the client side trusts.", key="tls.client.trustCertPath", has_effect=False)
    tls_client_auth_server: bool = setting(False, "The client side checks the server's certificate.", key="tls.client.authServer", has_effect=False)
    # fmt: on

    def __repr__(self) -> str:
        return f"<NameServerSettings {self.bind_address}:{self.listen_port} tls={self.tls_mode}>"

    def verify_together(self) -> None:
        super().verify_together()
        if self.cluster_test and not self.cluster_test_name_servers:
            raise ConfigError("clusterTestNamesrvAddr", "", "host:port;host:port, because clusterTest is true")

    @property
    def cluster_test_name_servers(self) -> tuple[str, ...]:
        return addresses_in(self.cluster_test_namesrv_addr, key="clusterTestNamesrvAddr")

    @property
    def unchangeable_keys(self) -> frozenset[str]:
        """Keys that a request over the network may not change."""
        listed = {key.strip() for key in self.config_black_list.split(";")}
        return frozenset(listed - {""}) | {"rocketmqHome"}  # java: always refused, whatever the list says
