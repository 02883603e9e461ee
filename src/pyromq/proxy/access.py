"""Access control of calls: the servers' rules, with the signature of gRPC clients.

    authorization: MQv2-HMAC-SHA1 Credential=USER, SignedHeaders=x-mq-date-time, Signature=HEX

The signature is made over the time that the client states. It proves the identity of the caller, not what the
call contains: whoever can read the traffic can use it, so access control without TLS protects little.
"""

from collections.abc import Iterable

from pyromq.protocol.needs import Need
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.remoting.access.control import AccessControl
from pyromq.security.address_patterns import host_of
from pyromq.security.call_signature import is_signed_call, read_authorization
from pyromq.security.decision import described

_NOBODY_KEY = "a key that no user has"


class FrontAccess:
    """The admission of a front, by the rules of `control`."""

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    def __repr__(self) -> str:
        return f"<FrontAccess {self._control!r}>"

    def identify(self, call: Call) -> str:
        """The user who sent the call; raises Rejected if it is not signed by one, or not lately."""
        user, stated = self._user_of(call), call.metadata.get(b"x-mq-date-time")
        if stated and not self._control.is_call_time(stated):
            self._control.refused += 1
            raise Rejected(
                Code.UNAUTHORIZED, f"the call of {user} states the time {stated}; check the client's clock"
            )
        return user

    def _user_of(self, call: Call) -> str:
        """A stream is asked again as long as it lives, so its age does not count here."""
        rules, host = self._control.rules, host_of(call.peer_address)
        signature = read_authorization(call.metadata.get(b"authorization"))
        user = signature.access_key if signature else ""
        if rules.free_pass(user, host):
            return user
        if signature is None or not user:
            raise Rejected(Code.UNAUTHORIZED, "the call is not signed: give the client credentials")
        secrets = rules.secrets_of(user)
        stated = call.metadata.get(b"x-mq-date-time")
        # An unknown user takes as long as a known one, and gets the same answer.
        is_signed = any(is_signed_call(signature, stated, secret) for secret in secrets or (_NOBODY_KEY,))
        if not is_signed or not secrets or not stated:
            self._control.refused += 1
            raise Rejected(Code.UNAUTHORIZED, f"the signature of {user} is wrong")
        return user

    def authorize(self, needs: Iterable[Need], call: Call) -> None:
        """Raises Rejected unless the sender of the call has all these rights."""
        user, host = self._user_of(call), host_of(call.peer_address)
        for need in needs:
            if not self._control.rules.decide(user, need, host).is_allowed:
                self._control.refused += 1
                raise Rejected(Code.UNAUTHORIZED, f"{user} may not {described(need)}")
