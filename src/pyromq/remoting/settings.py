"""The settings of every server: where it listens, its limits, which proxies it trusts, and TLS both ways."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pyromq.clock import Clock
from pyromq.config.inert import InertKey
from pyromq.config.kinds import HOST, NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds, SizeBytes
from pyromq.config.options import setting
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.protocol.frame import HeaderForm
from pyromq.remoting.access.settings import AccessSettings
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.inert_keys import NETTY_KEYS
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.networks import Networks
from pyromq.remoting.tls import ClientAuth, TlsMode, TlsOptions, TlsServer

SerializeType = Literal["JSON", "ROCKETMQ"]
MetricsExporter = Literal["DISABLE", "PROM"]
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
class ServerSettings(AccessSettings):
    INCLUDED_FILE_KEY: ClassVar[str] = "tls.config.file"
    INERT: ClassVar[Mapping[str, InertKey]] = NETTY_KEYS
    NEVER_CHANGEABLE: ClassVar[frozenset[str]] = frozenset()
    """java: refused over the network whatever `configBlackList` says"""

    rocketmq_home: Path | None = setting(None, "RocketMQ's scripts set it to their directory.", environment="ROCKETMQ_HOME", has_effect=False)

    # Where it listens
    bind_address: str = setting("0.0.0.0", "The address to listen on.", check=HOST)
    listen_port: int = setting(0, "The TCP port to listen on; 0 lets the system choose one.", check=PORT)
    socket_backlog: int = setting(1024, "How many connections may wait to be accepted.", key="serverSocketBacklog", check=POSITIVE)
    socket_send_buffer_bytes: SizeBytes = setting(0, "Send buffer of each socket; 0 leaves it to the system.", key="serverSocketSndBufSize", check=NOT_NEGATIVE)
    socket_receive_buffer_bytes: SizeBytes = setting(0, "Receive buffer of each socket; 0 leaves it to the system.", key="serverSocketRcvBufSize", check=NOT_NEGATIVE)
    idle_seconds: Seconds = setting(120, "A connection that is idle for this long is closed.", key="serverChannelMaxIdleTimeSeconds", check=POSITIVE)
    serialize_type: SerializeType = setting("JSON", "The header form of requests that this server sends; an answer has the form of its request.", environment="ROCKETMQ_SERIALIZE_TYPE")

    # Limits
    max_frame_bytes: SizeBytes = setting(16 * _MIB, "The size limit of a frame; a longer one closes the connection.", check=POSITIVE)
    max_connections: int = setting(0, "The limit of open connections; further ones are closed at once. 0 means no limit.", check=NOT_NEGATIVE)
    max_in_flight_per_connection: int = setting(1024, "The limit of unanswered requests per connection; further ones are answered SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_bytes_per_connection: SizeBytes = setting(64 * _MIB, "The limit of bytes in unanswered requests per connection; further requests are answered SYSTEM_BUSY and the socket is not read.", check=POSITIVE)
    max_in_flight_total: int = setting(65536, "The limit of unanswered requests on all connections; further ones are answered SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_bytes_total: SizeBytes = setting(512 * _MIB, "The limit of bytes in unanswered requests on all connections; further requests are answered SYSTEM_BUSY.", check=POSITIVE)
    max_partial_bytes: SizeBytes = setting(256 * _MIB, "The limit of bytes in incomplete frames on all connections; beyond it the connection with the largest one is closed.", check=POSITIVE)
    max_unsent_bytes_per_connection: SizeBytes = setting(64 * _MIB, "A connection with more unsent bytes is closed, because its peer does not read.", check=POSITIVE)
    write_high_water_bytes: SizeBytes = setting(0, "While more bytes than this are unsent to a peer, nothing is read from it; 0 means 256 KiB.", key="writeBufferHighWaterMark", check=NOT_NEGATIVE)
    handshake_seconds: Seconds = setting(10, "A TLS handshake that takes longer closes its connection.", check=POSITIVE)

    # Logs
    log_dir: Path | None = setting(Path("~/logs/rocketmqlogs"), "The directory of the log file; empty writes to the console only.")
    log_level: LogLevel = setting("INFO", "The lowest level of log lines that are written.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "The log file is rotated at this size.", check=POSITIVE)
    log_backups: int = setting(5, "How many rotated log files are kept.", check=NOT_NEGATIVE)
    audit_log_file: Path | None = setting(None, "A file for the audit log alone, rotated like the log file; empty leaves its lines in the log.")

    # Changes over the network
    config_black_list: str = setting("configBlackList", "Keys that cannot be changed over the network, separated by semicolons.", local=True)

    # Trusted proxies
    proxy_protocol_trusted_addresses: str = setting("", "Addresses and networks, separated by commas, of proxies whose PROXY preamble is accepted; a preamble from any other address closes the connection.", local=True)

    # TLS
    tls_mode: TlsMode = setting("permissive", "Whether TLS is refused (disabled), possible once there is a certificate (permissive) or required (enforcing).", key="tls.server.mode")
    tls_cert_path: Path | None = setting(None, "The server's certificate chain, PEM.", key="tls.server.certPath")
    tls_key_path: Path | None = setting(None, "The server's private key, PEM.", key="tls.server.keyPath")
    tls_key_password: str | None = setting(None, "The password of the private key.", key="tls.server.keyPassword", secret=True)
    tls_trust_cert_path: Path | None = setting(None, "The trusted certificates that client certificates are checked against, PEM.", key="tls.server.trustCertPath")
    tls_client_auth: ClientAuth = setting("none", "Whether clients must (require), may (optional) or need not (none) show a certificate; a certificate that is shown must be trusted.", key="tls.server.need.client.auth")
    tls_config_file: Path = setting(Path("/etc/rocketmq/tls.properties"), "A file of tls.* settings, read if it exists; it overrides the file given with -c.", key="tls.config.file")

    # Towards other servers
    connect_timeout_ms: Millis = setting(3000, "Time limit for opening a connection to another server.", key="connectTimeoutMillis", check=POSITIVE)
    tls_enable: bool = setting(False, "Connections to other servers use TLS.", key="tls.enable")
    tls_client_cert_path: Path | None = setting(None, "The certificate chain that is presented to them, PEM.", key="tls.client.certPath")
    tls_client_key_path: Path | None = setting(None, "The private key of that certificate, PEM.", key="tls.client.keyPath")
    tls_client_key_password: str | None = setting(None, "The password of that key.", key="tls.client.keyPassword", secret=True)
    tls_client_trust_cert_path: Path | None = setting(None, "The trusted certificates that theirs are checked against, PEM.", key="tls.client.trustCertPath")
    tls_client_auth_server: bool = setting(False, "Their certificates are checked.", key="tls.client.authServer")
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

    def tls_server(self, clock: Clock, *, offers_http2: bool = False) -> TlsServer:
        """Raises ConfigError if the files cannot be used."""
        return TlsServer(
            mode=self.tls_mode,
            certificate_path=self.tls_cert_path,
            key_path=self.tls_key_path,
            key_password=self.tls_key_password,
            trust_path=self.tls_trust_cert_path,
            client_auth=self.tls_client_auth,
            offers_http2=offers_http2,
            clock=clock,
        )
