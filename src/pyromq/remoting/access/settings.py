"""The settings of access control, the same for every server."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pyromq.config.kinds import NOT_NEGATIVE, POSITIVE, Millis
from pyromq.config.options import setting
from pyromq.config.settings import Settings
from pyromq.errors import ConfigError
from pyromq.security.signature import Credentials
from pyromq.security.users import User, UserType


class _FirstUser(msgspec.Struct):
    username: str
    password: str


class _InnerCredentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str | None = None


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class AccessSettings(Settings):
    # Access control 2.0: users and policies
    deny_by_default: bool = setting(False, "Turn on access control with one setting. Callers must authenticate, policies must grant every right, and there are no exceptions.", local=True)
    authentication: bool = setting(False, "Require callers to sign their requests as a user, or to present the certificate of one.", key="authenticationEnabled", local=True)
    authorization: bool = setting(False, "Let policies decide what users may do. If false, every user may do everything. Needs authenticationEnabled.", key="authorizationEnabled", local=True)
    first_user: str | None = setting(None, 'First super user, created at start-up if the name does not exist: {"username":"...","password":"..."}.', key="initAuthenticationUser", secret=True)
    inner_credentials: str | None = setting(None, 'Credentials with which this server signs requests to other servers: {"accessKey":"...","secretKey":"..."}. With authenticationEnabled they also belong to a super user here.', key="innerClientAuthenticationCredentials", secret=True)
    authentication_whitelist: str = setting("", "Codes of requests that need no authentication, separated by commas.", local=True)
    authorization_whitelist: str = setting("", "Codes of requests that every user may send, separated by commas.", local=True)
    auth_config_path: Path | None = setting(None, "Directory of access.json (users and policies) and access.key (encrypts passwords). If empty, the directory of this server's other tables.")
    migrate_accounts: bool = setting(False, "At start-up, turn accounts of access control 1.0 into users. Existing users are kept.", key="migrateAuthFromV1Enabled", local=True)
    certificate_users: str = setting("", "Users identified by client certificates, as name=user;name=user. A single * uses the common name as the user.", local=True)
    trust_plain_connections: bool = setting(False, "Skip further signature checks of sends and pulls on connections without TLS, after one valid signature. Attackers who can change the traffic could exploit this.", key="trustPlainConnections", local=True)
    require_full_signature: bool = setting(False, "On connections without TLS from other machines, require the full signatures that PyroMQ's clients and servers make: they cover the whole request and cannot be replayed. Refuses Apache's clients there.", key="requireFullSignature", local=True)
    allow_admin_without_tls: bool = setting(False, "Accept administrative requests on connections without TLS from other machines. Attackers who read the traffic see passwords of new users, and can turn the requests of Apache's tools into others.", key="allowAdminWithoutTls", local=True)
    max_request_age_ms: Millis = setting(900_000, "Maximum difference between this server's clock and the time of a full signature, on connections without TLS from other machines.", key="maxRequestAgeMillis", check=POSITIVE, local=True)
    max_send_age_ms: Millis = setting(900_000, "Maximum difference between this server's clock and the time of a signed send, on connections without TLS. Prevents replays of recorded sends. 0 means no limit.", key="maxSendAgeMillis", check=NOT_NEGATIVE, local=True)
    max_call_age_ms: Millis = setting(900_000, "Maximum difference between this server's clock and the x-mq-date-time of a signed gRPC call, in any time zone: Apache's clients send their local time. 0 means no limit.", key="maxCallAgeMillis", check=NOT_NEGATIVE, local=True)

    # Access control 1.0: accounts in YAML files
    acl_enable: bool = setting(False, "Require callers to sign their requests with an account of aclFile.", local=True)
    acl_file: Path = setting(Path("conf/plain_acl.yml"), "File with the accounts of access control 1.0. All *.yml files in the directory acl next to it are also read. Changes are picked up.")
    # fmt: on

    def __post_init__(self) -> None:
        if self.deny_by_default:  # it means both, so both are shown
            object.__setattr__(self, "authentication", True)
            object.__setattr__(self, "authorization", True)
        super().__post_init__()

    def verify_together(self) -> None:
        super().verify_together()
        if self.acl_enable and self.authentication:
            raise ConfigError("aclEnable", "true", "false, because authenticationEnabled or denyByDefault is true")
        if self.authorization and not self.authentication:
            raise ConfigError("authorizationEnabled", "true", "authenticationEnabled to be true as well")
        if self.require_full_signature and self.trust_plain_connections:
            raise ConfigError("trustPlainConnections", "true", "false, because requireFullSignature is true")
        if self.deny_by_default and (self.free_codes or self.unchecked_codes):
            listed = self.authentication_whitelist or self.authorization_whitelist
            key = "authenticationWhitelist" if self.free_codes else "authorizationWhitelist"
            raise ConfigError(key, listed, "no codes, because denyByDefault is true")
        _ = self.free_codes, self.unchecked_codes
        _ = self.credentials, self.first_users, self.users_of_certificates  # reading them checks them

    @property
    def controls_access(self) -> bool:
        return self.authentication or self.acl_enable

    @property
    def credentials(self) -> Credentials | None:
        if not self.inner_credentials:
            return None
        try:
            read = msgspec.json.decode(self.inner_credentials, type=_InnerCredentials)
        except (msgspec.MsgspecError, UnicodeError):
            expected = '{"accessKey":"...","secretKey":"..."}'
            raise ConfigError("innerClientAuthenticationCredentials", "(hidden)", expected) from None
        return Credentials(read.access_key, read.secret_key, read.security_token)

    @property
    def first_users(self) -> list[User]:
        """Super users who are created if they do not exist."""
        users = []
        if self.first_user:
            try:
                read = msgspec.json.decode(self.first_user, type=_FirstUser)
            except (msgspec.MsgspecError, UnicodeError):
                expected = '{"username":"...","password":"..."}'
                raise ConfigError("initAuthenticationUser", "(hidden)", expected) from None
            users.append(User(read.username, read.password, UserType.SUPER))
        if (own := self.credentials) is not None:
            users.append(User(own.access_key, own.secret_key, UserType.SUPER))
        for user in users:
            if not user.name.strip() or not user.password.strip():
                raise ConfigError("initAuthenticationUser", "(hidden)", "a name and a password that are not blank")
        return users

    @property
    def free_codes(self) -> frozenset[int]:
        return _codes("authenticationWhitelist", self.authentication_whitelist)

    @property
    def unchecked_codes(self) -> frozenset[int]:
        return _codes("authorizationWhitelist", self.authorization_whitelist)

    @property
    def users_of_certificates(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for pair in filter(None, (part.strip() for part in self.certificate_users.split(";"))):
            name, separator, user = (part.strip() for part in pair.partition("="))
            if pair != "*" and not (separator and name and user):
                raise ConfigError("certificateUsers", pair, "name=user, or *")
            found[name] = user
        return found


def _codes(key: str, text: str) -> frozenset[int]:
    try:
        return frozenset(int(code) for code in text.split(",") if code.strip())
    except ValueError:
        raise ConfigError(key, text, "request codes, separated by commas") from None
