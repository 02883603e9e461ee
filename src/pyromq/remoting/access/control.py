"""Applies the rules to every request: who sends it, and may they?

A caller proves its identity with a signature on each request, or with the certificate of its connection.
The fast path takes sends and pulls like those that this file has authorized before on the same connection,
with the same access key, and only while the rules are the same. It checks their signatures, too, unless only
the caller can write to the connection: without TLS, someone who repeats a signed request that they have seen
could add others to it. There, too, a full signature is accepted only once, and administrative requests only
from other servers.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyromq.clock import Clock
from pyromq.errors import Refused
from pyromq.protocol.catalogue import CATALOGUE, Declaration, Request
from pyromq.protocol.codes import ResponseCode, code_name
from pyromq.protocol.frame import Frame
from pyromq.protocol.names import is_retry_topic
from pyromq.protocol.needs import CREATE, DELETE, UPDATE, Need
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.remoting.admission import Grants, Proof
from pyromq.remoting.connection import Connection
from pyromq.remoting.routing import Caller
from pyromq.security.address_patterns import host_of
from pyromq.security.call_signature import is_call_time
from pyromq.security.decision import Rules, described
from pyromq.security.full_signature import FULL_SIGNATURE, is_fully_signed, read_stamp
from pyromq.security.replays import Replayed, Replays
from pyromq.security.signature import ACCESS_KEY, SIGNATURE, is_signed, signing_key

_audit = logging.getLogger("pyromq.audit")

_CHANGES: Final = frozenset({CREATE, UPDATE, DELETE})
_NOBODY_KEY: Final = "a key that no user has"
_REFUSALS_PER_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strictness:
    """The demands of a server on requests, whatever the rules say. `inner_user` is the user of servers among
    themselves."""

    free_codes: frozenset[int] = frozenset()
    unchecked_codes: frozenset[int] = frozenset()
    certificate_users: Mapping[str, str] = field(default_factory=dict)
    inner_user: str = ""
    trusts_plain_connections: bool = False
    requires_full_signatures: bool = False
    allows_admin_without_tls: bool = False
    max_request_age_ms: int = 900_000
    max_send_age_ms: int = 0
    max_call_age_ms: int = 0
    is_version_1: bool = False


class AccessControl:
    """An Admission."""

    def __init__(self, rules: Rules, clock: Clock, strictness: Strictness | None = None) -> None:
        asked = strictness if strictness is not None else Strictness()
        self.rules = rules
        self.version = 0
        self._clock = clock
        self._free_codes = asked.free_codes
        self._unchecked_codes = asked.unchecked_codes | asked.free_codes
        self._certificate_users = asked.certificate_users
        self._inner_user = asked.inner_user
        self._trusts_plain_connections = asked.trusts_plain_connections
        self._requires_full_signatures = asked.requires_full_signatures
        self._allows_admin_without_tls = asked.allows_admin_without_tls
        self._replays = Replays(asked.max_request_age_ms)
        self._began_ms = clock.now_ms()
        self._max_send_age_ms = asked.max_send_age_ms
        self._max_call_age_ms = asked.max_call_age_ms
        self._is_version_1 = asked.is_version_1
        self.lack: Callable[[], str] = lambda: ""
        """Why this server cannot know the users of others yet."""
        self.refused = 0
        self._refusals_left = _REFUSALS_PER_S
        self._refused_at = clock.monotonic()

    def __repr__(self) -> str:
        return f"<AccessControl version={self.version} refused={self.refused}>"

    def replace(self, rules: Rules) -> None:
        """Apply new rules, from the next request on every connection."""
        self.rules = rules
        self.version += 1

    def secrets_of_server(self, who: str) -> tuple[str, ...]:
        """The keys of an account that servers may have among themselves: it may do everything."""
        return self.rules.secrets_of(who) if self.rules.is_administrator(who) else ()

    def identify(self, caller: Caller) -> None:
        if caller.frame.code in self._free_codes:
            return
        access_key = caller.frame.ext.get(ACCESS_KEY, "")
        host = host_of(caller.address)
        rules = self.rules
        if rules.free_pass(access_key, host):
            caller.user = access_key
            return
        if not access_key:
            caller.user = self._user_of_certificate(caller)
            return
        if self._secret_used(caller.frame, access_key) is None:
            lack = self.lack()
            problem = f"Check signature failed for accessKey={access_key}"
            raise self._refusal(caller, f"{problem}: {lack}" if lack else problem)
        caller.user = access_key
        if not _is_private(caller):
            self._check_once(caller)

    def _secret_used(self, frame: Frame, access_key: str) -> str | None:
        """The secret of this account that the frame is signed with; None if it is with none."""
        is_full, secrets = FULL_SIGNATURE in frame.ext, self.rules.secrets_of(access_key)
        # An unknown user takes as long as a known one, and gets the same answer.
        for secret in secrets or (_NOBODY_KEY,):
            if is_fully_signed(frame, secret) if is_full else is_signed(frame.ext, frame.body, secret):
                return secret if secrets else None
        return None

    def _check_once(self, caller: Caller) -> None:
        """Others could have overheard the request: it must not have been sent before."""
        field = caller.frame.ext.get(FULL_SIGNATURE)
        problem = "it has none, and requireFullSignature is true: use TLS, or a client of PyroMQ"
        if field is not None:
            stamp = read_stamp(field)
            try:
                session = self._replays.accept(caller.user, stamp, caller.channel, self._clock.now_ms())
            except Replayed as replayed:
                raise self._refusal(caller, f"Check full signature failed: {replayed}") from None
            if stamp.time_ms >= self._began_ms:
                caller.session = session
                return
            # What was sent to this server before it was started again is not remembered.
            problem = "it is older than the start of this server, or the caller's clock is slow"
        if self._requires_full_signatures:
            raise self._refusal(caller, f"Check full signature failed: {problem}")

    def _user_of_certificate(self, caller: Caller) -> str:
        channel = caller.channel
        if self._certificate_users and isinstance(channel, Connection):
            for name in channel.certificate_names:
                user = self._certificate_users.get(name) or (name if "*" in self._certificate_users else "")
                if user and self.rules.secrets_of(user):
                    return user
        raise self._refusal(caller, "No accessKey is configured")

    def authorize(self, declaration: Declaration, request: Request[Any], caller: Caller) -> None:
        if caller.frame.code in self._unchecked_codes:
            return
        if declaration.is_administrative and not (_is_private(caller) or self._allows_admin_without_tls):
            self._check_server(declaration, caller)
        caller.authority = self._check
        for need in declaration.needs_of(request):
            rule = self._check(caller, need)
            if _CHANGES.issuperset(need.actions) and caller.user != self._inner_user:
                caller.allowed += f" allowed={described(need)} rule={rule}"
        channel = caller.channel
        connection = channel if isinstance(channel, Connection) else None
        is_private = _is_private(caller) or (connection is not None and self._trusts_plain_connections)
        if not is_private and isinstance(request, SendMessage | SendMessageV2 | SendMessageBatch):
            self._check_age(request.born_timestamp, caller)
        if connection is not None and not self.rules.has_quota(caller.user):
            self._remember(request, caller, connection, is_private)

    def finished(self, caller: Caller, declaration: Declaration, code: int) -> None:
        changed = f" changed={caller.changed}" if caller.changed else ""
        _audit.info(
            "user=%s peer=%s request=%s outcome=%s%.2000s%s",
            caller.user or "-",
            caller.address,
            declaration.name,
            code_name(code),
            changed,
            caller.allowed,
        )

    def _check_server(self, declaration: Declaration, caller: Caller) -> None:
        """Without TLS only servers send each other administrative requests, which they sign fully."""
        if caller.session is None or caller.user != self._inner_user:
            raise self._refusal(
                caller,
                f"{declaration.name} is refused without TLS: connect with TLS or from this machine,"
                " or set allowAdminWithoutTls=true on this server",
            )

    def is_call_time(self, date_time: str) -> bool:
        """Whether a gRPC call that states this time is recent enough."""
        limit_ms = self._max_call_age_ms
        return not limit_ms or is_call_time(date_time, self._clock.now_ms(), limit_ms)

    def _check_age(self, born_ms: int, caller: Caller) -> None:
        """A send that was overheard can be repeated, but not for long."""
        age_ms = self._clock.now_ms() - born_ms
        if self._max_send_age_ms and SIGNATURE in caller.frame.ext and abs(age_ms) > self._max_send_age_ms:
            raise self._refusal(caller, f"the send is {age_ms} ms old by the clock of this server")

    def _check(self, caller: Caller, need: Need) -> str:
        """The rule that allows it; raises Refused if none does."""
        host = host_of(caller.address)
        decision = self.rules.decide(caller.user, need, host)
        if not decision.is_allowed:
            raise self._refusal(caller, self._denial(caller, need, host), decision.rule)
        return decision.rule

    def _remember(
        self, request: Request[Any], caller: Caller, connection: Connection, is_private: bool
    ) -> None:
        """Let the fast path take more requests like this one."""
        access_key = caller.frame.ext.get(ACCESS_KEY, "")
        key = access_key.encode("utf-8", "replace")
        grants = connection.grants
        proof = grants.proof if grants is not None else None
        session = None if is_private else caller.session
        is_other = session is not None and (proof is None or proof.session is not session)
        if (
            grants is None
            or is_other
            or connection.vouched_version != self.version
            or grants.access_key != key
        ):
            proof = None
            if not is_private:
                secret = self._secret_used(caller.frame, access_key)
                if secret is None:
                    return
                proof = Proof(
                    signing_key(secret),
                    signing_key(secret, "sha256"),
                    session,
                    self._requires_full_signatures,
                    self._max_send_age_ms,
                    self._replays.max_age_ms,
                    self._clock.now_ms,
                )
            grants = connection.grants = Grants(key, proof)
            connection.vouched_version = self.version
        if isinstance(request, SendMessage | SendMessageV2 | SendMessageBatch):
            grants.allow_send(request.topic)
        elif isinstance(request, PullMessage | LitePullMessage):
            grants.allow_pull(request.topic, request.consumer_group)
        elif isinstance(request, AckMessage) and not is_retry_topic(request.topic):
            # To acknowledge retries takes less than to pull them.
            grants.allow_pull(request.topic, request.consumer_group)

    def _denial(self, caller: Caller, need: Need, host: str) -> str:
        if self._is_version_1:
            return f"No permission for {caller.user}: {described(need)}"
        # java: tools look for these words
        resource = f"{need.resource_type}:{need.name or '*'}"
        return f"User:{caller.user} has no permission to access {resource} from {host}"

    def _refusal(self, caller: Caller, remark: str, rule: str = "") -> Refused:
        self.refused += 1
        now = self._clock.monotonic()
        self._refusals_left = min(
            _REFUSALS_PER_S, self._refusals_left + (now - self._refused_at) * _REFUSALS_PER_S
        )
        self._refused_at = now
        if self._refusals_left >= 1:  # an attack must not fill the log
            self._refusals_left -= 1
            code = caller.frame.code
            known = CATALOGUE.get(code)
            name = f"code {code}" if known is None else known.name
            _audit.warning(
                "refused peer=%s request=%s: %.200r rule=%.200r", caller.address, name, remark, rule
            )
        if self._is_version_1:
            # java: the broker of 4.x answers with the text of its exception
            return Refused(
                ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {remark}"
            )
        return Refused(ResponseCode.NO_PERMISSION, remark)


def _is_private(caller: Caller) -> bool:
    """Whether no one else can read what the caller sends, or send in its name."""
    channel = caller.channel
    return isinstance(channel, Connection) and channel.is_private
