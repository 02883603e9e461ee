"""The settings of the console; clusters are named here, and nowhere else, so that no viewer can point it anywhere."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pyromq.admin.pipeline_runs import RUNS
from pyromq.cluster.connection_url import KEY_FILE_VARIABLE, TRUST_VARIABLE, credentials_in
from pyromq.cluster.name_servers import name_server_addresses
from pyromq.config.kinds import HOST, NOT_NEGATIVE, PORT, POSITIVE, Seconds, SizeBytes
from pyromq.config.options import HIDDEN, setting
from pyromq.errors import ConfigError
from pyromq.remoting.exporter_settings import ExporterSettings, MetricsExporter
from pyromq.remoting.networks import Networks, is_loopback
from pyromq.remoting.settings import addresses_in
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials

AnonymousRole = Literal["NONE", "VIEWER", "OPERATOR", "ADMIN"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

DEFAULT_CLUSTER = "default"
_MIB = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BASE_PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)*")


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class ConsoleSettings(ExporterSettings):
    PART: ClassVar[str] = "console"

    # Where it listens, and for whom
    bind_address: str = setting("127.0.0.1", "Address to listen on. Any address other than loopback requires users.", check=HOST)
    listen_port: int = setting(8088, "TCP port to listen on. 0 lets the system choose.", check=PORT)
    base_path: str = setting("", "Path under which a proxy serves the console, for example /mq.", local=True)
    allowed_hosts: str = setting("", "Host names under which browsers may reach the console, separated by commas. Loopback names and the address that the console listens on are always allowed.", local=True)
    trusted_proxies: str = setting("", "Addresses and networks of proxies whose X-Forwarded-Proto, X-Forwarded-Host and X-Forwarded-For headers are trusted.", local=True)
    tls_cert_path: Path | None = setting(None, "Certificate chain of the console, PEM. If empty, the console does not use TLS.")
    tls_key_path: Path | None = setting(None, "Private key of the console, PEM.")

    # The clusters it shows
    namesrv_addr: str = setting("", "Name servers of the cluster named default, as host:port;host:port.", environment="NAMESRV_ADDR", local=True)
    clusters: str = setting("", "More clusters, as name=host:port;host:port,name=host:port.", local=True)
    access_key: str = setting("", "User that signs requests to the clusters.", local=True, environment="PYROMQ_ACCESS_KEY")
    secret_key: str | None = setting(None, "Secret of the user in accessKey.", secret=True, environment="PYROMQ_SECRET_KEY")
    key_file: Path | None = setting(None, "File with the keys that sign requests to the clusters, as `mqadmin --key-file` reads it. Used without accessKey and secretKey.", environment=KEY_FILE_VARIABLE)
    cluster_key_files: str = setting("", "Files with the keys for single clusters, as name=FILE,name=FILE. Other clusters use accessKey or keyFile.", local=True)
    cluster_tls: bool = setting(False, "Use TLS for connections to the clusters.", local=True)
    cluster_trust_path: Path | None = setting(None, "Trusted certificates for verifying the servers of the clusters, PEM. Turns on TLS.", environment=TRUST_VARIABLE)
    checkpoints: str = setting("", "Directories of tables and checkpoints of Spark's streaming queries, separated by commas. The pages of topics compare them with the brokers.", local=True)
    local_stores: str = setting("", "Store directories of brokers on this machine, separated by commas. Administrators can inspect and verify them.", local=True)
    pipeline_runs: Path = setting(RUNS, "Directory in which runs of `pyromq pipeline` report their progress (their --runs).")
    dialled_networks: str = setting("", "Link-local addresses and networks that the console may connect to when a name server reports them. All other link-local addresses are refused.", local=True)
    schema_registry: str = setting("", "URL of a schema registry with Confluent's API, http:// or https://. The page of a message then shows Avro, Protobuf and JSON bodies that name their schema. Needs `pyromq[schemas]`.", local=True)
    schema_registry_auth: str | None = setting(None, "User and password at the schema registry, as user:password.", secret=True)
    timeout_seconds: Seconds = setting(3, "How long the console waits for a server to answer a request.", check=POSITIVE)

    # Alerts
    webhook_url: str | None = setting(None, "URL to which alarms and warnings are posted as JSON, http:// or https://. The field text suits most chat services.", secret=True, environment="PYROMQ_CONSOLE_WEBHOOK")
    webhook_after_seconds: Seconds = setting(30, "How long a problem must last before it is posted to webhookUrl.", check=NOT_NEGATIVE)

    # Users
    home: Path = setting(Path("~/.pyromq/console"), "Directory of the users file, the audit log and the record of posted alerts.")
    anonymous_role: AnonymousRole = setting("NONE", "Role of visitors who are not logged in. Only allowed on loopback.", local=True)
    user_header: str = setting("", "Header in which trustedProxies name the logged-in user, for example X-Forwarded-User. Roles come from the users file.", local=True)
    oidc_issuer: str = setting("", "URL of a provider of OpenID Connect, https://, by which users log in. Needs `pyromq[oidc]`.", local=True)
    oidc_client_id: str = setting("", "Name of the console at the provider.", local=True)
    oidc_client_secret: str | None = setting(None, "Secret of the console at the provider. A public client has none.", secret=True, environment="PYROMQ_OIDC_CLIENT_SECRET")
    oidc_scopes: str = setting("openid profile", "Scopes that the console asks the provider for, separated by spaces.", local=True)
    oidc_name_claim: str = setting("preferred_username", "Claim with the name of the user.", local=True)
    oidc_roles_claim: str = setting("groups", "Claim that oidcRoles looks at, for example realm_access.roles.", local=True)
    oidc_roles: str = setting("", "Roles by the values of oidcRolesClaim, as mq-admins=admin,mq-team=operator+bodies. If empty, roles come from the users file.", local=True)
    oidc_trust_path: Path | None = setting(None, "Trusted certificates for verifying the provider, PEM. If empty, those of the system.")
    read_only: bool = setting(False, "Disable every operation that changes something.", local=True)
    masked_fields: str = setting("", "Names of JSON fields and properties whose values are hidden from everyone, separated by commas. * and ? work as in file names.", local=True)
    session_idle_seconds: Seconds = setting(8 * 3600, "Time without use after which a session ends.", check=POSITIVE)

    # Limits
    max_request_bytes: SizeBytes = setting(_MIB, "Maximum size of a request.", check=POSITIVE)
    max_scans: int = setting(8, "Maximum number of message queries that a person may run at once.", check=POSITIVE)
    max_tails: int = setting(2, "Maximum number of live tails that a person may have open.", check=POSITIVE)
    scan_seconds: Seconds = setting(10, "Time after which a message query stops. The page shows how far it got.", check=POSITIVE)
    max_body_bytes: SizeBytes = setting(64 * 1024, "Size at which the pages cut message bodies. A download always has every byte.", check=POSITIVE)
    audit_max_bytes: SizeBytes = setting(16 * _MIB, "Size at which the audit log is rotated.", check=POSITIVE)
    audit_backups: int = setting(8, "Number of rotated audit logs to keep.", check=NOT_NEGATIVE)

    # Being observed
    metrics_exporter: str = setting("DISABLE", "Where metrics go besides the page /metrics. OTLP_GRPC: sent to an OpenTelemetry collector. LOG: written to the log. DISABLE: nowhere else. Several are separated by commas.", key="metricsExporterType")

    # The log
    log_dir: Path | None = setting(None, "Directory of console.log. If empty, the console logs to the terminal only.")
    log_level: LogLevel = setting("INFO", "Minimum level of log messages.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "Size at which the log file is rotated.", check=POSITIVE)
    log_backups: int = setting(5, "Number of rotated log files to keep.", check=NOT_NEGATIVE)
    # fmt: on

    def __repr__(self) -> str:
        return f"<ConsoleSettings {self.bind_address}:{self.listen_port} {','.join(self.cluster_addresses())}>"

    def verify_together(self) -> None:
        super().verify_together()
        self.cluster_addresses()
        self.proxies()
        self.dialled()
        if not _BASE_PATH.fullmatch(self.base_path):
            raise ConfigError("basePath", self.base_path, "nothing, or a path like /mq without a slash at its end")
        if (self.tls_cert_path is None) != (self.tls_key_path is None):
            raise ConfigError("tlsCertPath", self.tls_cert_path, "to be set together with tlsKeyPath")
        if self.anonymous_role != "NONE" and not self.is_on_loopback:
            raise ConfigError("anonymousRole", self.anonymous_role, f"NONE, because {self.bind_address} is not loopback")
        if self.user_header and not self.trusted_proxies:
            raise ConfigError("userHeader", self.user_header, "to be set together with trustedProxies")
        if self.webhook_url and not self.webhook_url.startswith(("http://", "https://")):
            raise ConfigError("webhookUrl", HIDDEN, "an address that begins with http:// or https://")
        if self.schema_registry and not self.schema_registry.startswith(("http://", "https://")):
            raise ConfigError("schemaRegistry", self.schema_registry, "a URL like http://host:8081")
        self._verify_openid()
        for name in self.key_files():
            if name not in self.cluster_addresses():
                raise ConfigError("clusterKeyFiles", name, f"one of {', '.join(self.cluster_addresses()) or 'no clusters'}")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey", self.access_key, "to be set together with secretKey")

    @property
    def metric_exporters(self) -> frozenset[MetricsExporter]:
        return super().metric_exporters - {"PROM"}  # there is a page for that

    def checkpoint_directories(self) -> list[Path]:
        return _directories(self.checkpoints)

    def store_directories(self) -> list[Path]:
        return _directories(self.local_stores)

    def masked_names(self) -> list[str]:
        return [each.strip() for each in self.masked_fields.split(",") if each.strip()]

    @property
    def is_on_loopback(self) -> bool:
        return is_loopback(self.bind_address)

    @property
    def users_file(self) -> Path:
        return self.home / "users.json"

    @property
    def audit_file(self) -> Path:
        return self.home / "audit.log"

    @property
    def alerts_file(self) -> Path:
        return self.home / "alerts.json"

    def _verify_openid(self) -> None:
        if not self.oidc_issuer:
            if self.oidc_roles:
                raise ConfigError("oidcRoles", self.oidc_roles, "to be set together with oidcIssuer")
            return
        parts = urlsplit(self.oidc_issuer)
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))):
            raise ConfigError("oidcIssuer", self.oidc_issuer, "an address that begins with https://")
        if not self.oidc_client_id:
            raise ConfigError("oidcClientId", "", "the name of the console at the provider, because oidcIssuer is set")
        if "openid" not in self.oidc_scopes.split():
            raise ConfigError("oidcScopes", self.oidc_scopes, "openid to be one of them")

    def key_files(self) -> Mapping[str, Path]:
        found: dict[str, Path] = {}
        for entry in filter(None, map(str.strip, self.cluster_key_files.split(","))):
            name, _, path = entry.partition("=")
            if not name or not path:
                raise ConfigError("clusterKeyFiles", entry, "name=FILE")
            found[name] = Path(path).expanduser()
        return found

    def credentials_of(self, cluster: str) -> Credentials | None:
        own = self.key_files().get(cluster)
        return credentials_in(own) if own is not None else self.credentials()

    def credentials(self) -> Credentials | None:
        if self.secret_key:
            return Credentials(self.access_key, self.secret_key)
        return credentials_in(self.key_file) if self.key_file is not None else None

    def tls(self) -> TlsOptions | None:
        return TlsOptions.chosen(self.cluster_tls, self.cluster_trust_path)

    def proxies(self) -> Networks:
        return Networks.parse(self.trusted_proxies, key="trustedProxies")

    def dialled(self) -> Networks:
        return Networks.parse(self.dialled_networks, key="dialledNetworks")

    def host_names(self) -> frozenset[str]:
        return frozenset(each.strip().lower() for each in self.allowed_hosts.split(",") if each.strip())

    def cluster_addresses(self) -> Mapping[str, str]:
        """The name servers of each cluster by its name. One that `clusters` names is not shown again as the default."""
        default = name_server_addresses(self.namesrv_addr)
        addresses_in(";".join(default), key="namesrvAddr")
        found = {DEFAULT_CLUSTER: self.namesrv_addr} if default else {}
        for entry in filter(None, map(str.strip, self.clusters.split(","))):
            name, _, addresses = entry.partition("=")
            listed = name_server_addresses(addresses)
            if not _NAME.fullmatch(name) or not listed or name in found:
                raise ConfigError("clusters", entry, "name=host:port;host:port, each name once, of letters, digits, _ . -")
            addresses_in(";".join(listed), key=f"clusters={name}")
            found[name] = addresses
            if set(listed) == set(default):
                found.pop(DEFAULT_CLUSTER, None)
        return found


def _directories(text: str) -> list[Path]:
    return [Path(each.strip()).expanduser() for each in text.split(",") if each.strip()]
