"""The settings of every server: where it listens, its limits, which proxies it trusts, and TLS both ways."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pyromq.clock import Clock
from pyromq.config.inert import InertKey, inert_keys
from pyromq.config.kinds import HOST, NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds, SizeBytes
from pyromq.config.options import setting
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.protocol.frame import HeaderForm
from pyromq.remoting.access.settings import AccessSettings
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.exporter_settings import ExporterSettings
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.networks import Networks
from pyromq.remoting.ports import Ports
from pyromq.remoting.tls import ClientAuth, TlsMode, TlsOptions, TlsServer

SerializeType = Literal["JSON", "ROCKETMQ"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_MIB = 1024 * 1024


def addresses_in(text: str, *, key: str) -> tuple[str, ...]:
    """The addresses in `host:port;host:port`, without duplicates; raises ConfigError that names `key`."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    for address in found:
        try:
            parse_address(address)
        except ConnectFailed:
            raise ConfigError(key, text, "host:port;host:port") from None
    return found


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class ServerSettings(ExporterSettings, AccessSettings):
    INCLUDED_FILE_KEY: ClassVar[str] = "tls.config.file"
    INERT: ClassVar[Mapping[str, InertKey]] = inert_keys("server")
    NEVER_CHANGEABLE: ClassVar[frozenset[str]] = frozenset()
    """java: refused over the network whatever `configBlackList` says"""

    rocketmq_home: Path | None = setting(None, "Home directory. RocketMQ's start scripts set it.", environment="ROCKETMQ_HOME", has_effect=False)

    # Where it listens
    bind_address: str = setting("0.0.0.0", "Address to listen on.", check=HOST)
    listen_port: int = setting(0, "TCP port to listen on. 0 lets the system choose.", check=PORT)
    socket_backlog: int = setting(1024, "Maximum number of connections waiting to be accepted.", key="serverSocketBacklog", check=POSITIVE)
    socket_send_buffer_bytes: SizeBytes = setting(0, "Send buffer of each socket. 0 uses the system's default.", key="serverSocketSndBufSize", check=NOT_NEGATIVE)
    socket_receive_buffer_bytes: SizeBytes = setting(0, "Receive buffer of each socket. 0 uses the system's default.", key="serverSocketRcvBufSize", check=NOT_NEGATIVE)
    idle_seconds: Seconds = setting(120, "Close connections that are idle for this long.", key="serverChannelMaxIdleTimeSeconds", check=POSITIVE)
    serialize_type: SerializeType = setting("JSON", "Header encoding of requests that this server sends. Answers use the encoding of their request.", environment="ROCKETMQ_SERIALIZE_TYPE")

    # Limits
    max_frame_bytes: SizeBytes = setting(16 * _MIB, "Maximum size of a frame. A larger frame closes the connection.", check=POSITIVE)
    max_connections: int = setting(0, "Maximum number of open connections. Further connections are closed at once. 0 means no limit.", check=NOT_NEGATIVE)
    max_in_flight_per_connection: int = setting(1024, "Maximum number of unanswered requests on one connection. Further requests get SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_bytes_per_connection: SizeBytes = setting(64 * _MIB, "Maximum size of all unanswered requests on one connection. Further requests get SYSTEM_BUSY, and the server stops reading from the socket.", check=POSITIVE)
    max_in_flight_total: int = setting(65536, "Maximum number of unanswered requests on all connections. Further requests get SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_bytes_total: SizeBytes = setting(512 * _MIB, "Maximum size of all unanswered requests on all connections. Further requests get SYSTEM_BUSY.", check=POSITIVE)
    max_partial_bytes: SizeBytes = setting(256 * _MIB, "Maximum size of incomplete frames on all connections. Above it, the connection with the largest incomplete frame is closed.", check=POSITIVE)
    max_unsent_bytes_per_connection: SizeBytes = setting(64 * _MIB, "Unsent bytes above which a connection is closed, because its peer does not read.", check=POSITIVE)
    write_high_water_bytes: SizeBytes = setting(0, "Unsent bytes above which the server stops reading from a connection. 0 means 256 KiB.", key="writeBufferHighWaterMark", check=NOT_NEGATIVE)
    handshake_seconds: Seconds = setting(10, "Close connections whose TLS handshake takes longer than this.", check=POSITIVE)

    # Logs
    private_files: bool = setting(False, "Create every file so that only the user of this server can read it, and close the store directory to other users.", local=True)
    log_dir: Path | None = setting(Path("~/logs/rocketmqlogs"), "Directory of the log file. If empty, the server logs to the console only.")
    log_level: LogLevel = setting("INFO", "Minimum level of log messages.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "Size at which the log file is rotated.", check=POSITIVE)
    log_backups: int = setting(5, "Number of rotated log files to keep.", check=NOT_NEGATIVE)
    audit_log_file: Path | None = setting(None, "Separate file for the audit log, rotated like the log file. If empty, audit lines go to the log.")

    # Changes over the network
    config_black_list: str = setting("configBlackList", "Keys that cannot be changed over the network, separated by semicolons.", local=True)

    # Trusted proxies
    proxy_protocol_trusted_addresses: str = setting("", "Addresses and networks of proxies that may send a PROXY preamble, separated by commas. A preamble from any other address closes the connection.", local=True)

    # TLS
    tls_mode: TlsMode = setting("permissive", "Whether clients may use TLS. disabled: no. permissive: yes, if there is a certificate. enforcing: they must.", key="tls.server.mode")
    tls_cert_path: Path | None = setting(None, "Certificate chain of this server, PEM.", key="tls.server.certPath")
    tls_key_path: Path | None = setting(None, "Private key of this server, PEM.", key="tls.server.keyPath")
    tls_key_password: str | None = setting(None, "Password of the private key in tls.server.keyPath.", key="tls.server.keyPassword", secret=True)
    tls_trust_cert_path: Path | None = setting(None, "Trusted certificates for verifying client certificates, PEM.", key="tls.server.trustCertPath")
    tls_client_auth: ClientAuth = setting("none", "Whether clients present a certificate: require, optional or none. A certificate that is presented must be trusted.", key="tls.server.need.client.auth")
    tls_config_file: Path = setting(Path("/etc/rocketmq/tls.properties"), "File with tls.* settings, read if it exists. It overrides the file given with -c.", key="tls.config.file")

    # Towards other servers
    connect_timeout_ms: Millis = setting(3000, "How long this server waits for a connection to another server to open.", key="connectTimeoutMillis", check=POSITIVE)
    tls_enable: bool = setting(False, "Use TLS for connections to other servers.", key="tls.enable")
    tls_client_cert_path: Path | None = setting(None, "Certificate chain that this server presents to other servers, PEM.", key="tls.client.certPath")
    tls_client_key_path: Path | None = setting(None, "Private key of the certificate in tls.client.certPath, PEM.", key="tls.client.keyPath")
    tls_client_key_password: str | None = setting(None, "Password of the private key in tls.client.keyPath.", key="tls.client.keyPassword", secret=True)
    tls_client_trust_cert_path: Path | None = setting(None, "Trusted certificates for verifying other servers, PEM.", key="tls.client.trustCertPath")
    tls_client_auth_server: bool = setting(False, "Verify the certificates of servers that this server connects to.", key="tls.client.authServer")
    # fmt: on

    def verify_together(self) -> None:
        super().verify_together()
        _ = self.trusted_proxies  # reading them checks them
        files = [each.key for each in self.all_settings() if each.name in ("tls_cert_path", "tls_key_path")]
        if (self.tls_cert_path is None) != (self.tls_key_path is None):
            present, missing = reversed(files) if self.tls_cert_path is None else files
            raise ConfigError(missing, "", f"a file, because {present} is set")
        if self.tls_mode == "enforcing" and not self.offers_tls:
            raise ConfigError("tls.server.mode", "enforcing", f"{' and '.join(files)} to be set as well")
        if self.tls_client_auth != "none" and self.offers_tls and self.tls_trust_cert_path is None:
            raise ConfigError(
                "tls.server.trustCertPath", "", "a file, because clients are asked for certificates"
            )

    @property
    def unchangeable_keys(self) -> frozenset[str]:
        """Keys that a request over the network may not change."""
        return frozenset({key.strip() for key in self.config_black_list.split(";")} - {""}) | self.NEVER_CHANGEABLE

    @property
    def offers_tls(self) -> bool:
        """Whether there is a certificate and TLS is not disabled."""
        return self.tls_mode != "disabled" and self.tls_cert_path is not None

    @property
    def trusted_proxies(self) -> Networks:
        return Networks.parse(self.proxy_protocol_trusted_addresses, key="proxyProtocolTrustedAddresses")

    @property
    def lets_anyone_in(self) -> bool:
        """Whether anyone who reaches the port may do everything: no access control, no client certificates."""
        needs_certificate = (
            self.offers_tls and self.tls_mode == "enforcing" and self.tls_client_auth == "require"
        )
        return not (self.controls_access or needs_certificate)

    @property
    def header_form(self) -> HeaderForm:
        """The header form of requests that the server sends itself."""
        return HeaderForm.BINARY if self.serialize_type == "ROCKETMQ" else HeaderForm.JSON

    @property
    def limits(self) -> ServerLimits:
        return ServerLimits(
            max_frame_bytes=self.max_frame_bytes,
            max_in_flight_per_connection=self.max_in_flight_per_connection,
            max_in_flight_bytes_per_connection=self.max_in_flight_bytes_per_connection,
            max_in_flight=self.max_in_flight_total,
            max_in_flight_bytes=self.max_in_flight_bytes_total,
            max_partial_bytes=self.max_partial_bytes,
            max_unsent_bytes_per_connection=self.max_unsent_bytes_per_connection,
            write_high_water_bytes=self.write_high_water_bytes or ServerLimits().write_high_water_bytes,
            max_connections=self.max_connections,
            idle_s=self.idle_seconds,
            handshake_s=self.handshake_seconds,
        )

    @property
    def tls_client(self) -> TlsOptions | None:
        """TLS of connections to other servers."""
        if not self.tls_enable:
            return None
        return TlsOptions(
            certificate_path=self.tls_client_cert_path,
            key_path=self.tls_client_key_path,
            key_password=self.tls_client_key_password,
            trust_path=self.tls_client_trust_cert_path,
            verify=self.tls_client_auth_server,
        )

    def take_port(self, ports: Ports, port: int) -> socket.socket:
        """Raises OSError."""
        return ports.listen(
            self.bind_address,
            port,
            send_buffer_bytes=self.socket_send_buffer_bytes,
            receive_buffer_bytes=self.socket_receive_buffer_bytes,
        )

    def tls_server(
        self, clock: Clock, *, offers_http2: bool = False, offers_http1: bool = False
    ) -> TlsServer:
        """Raises ConfigError if the files cannot be used."""
        return TlsServer(
            mode=self.tls_mode,
            certificate_path=self.tls_cert_path,
            key_path=self.tls_key_path,
            key_password=self.tls_key_password,
            trust_path=self.tls_trust_cert_path,
            client_auth=self.tls_client_auth,
            offers_http2=offers_http2,
            offers_http1=offers_http1,
            clock=clock,
        )
