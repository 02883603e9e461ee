"""The dialer of a server, which calls other servers of its cluster."""

from pyromq.clock import Clock
from pyromq.cluster.signing import signers
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.settings import ServerSettings


def server_dialer(settings: ServerSettings, clock: Clock) -> Dialer:
    return Dialer(
        ConnectionTerms(form=settings.header_form, clock=clock),
        tls=settings.tls_client,
        connect_timeout_s=settings.connect_timeout_ms / 1000,
        new_signer=signers(settings.credentials, clock=clock),
    )
