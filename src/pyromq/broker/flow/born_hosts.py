"""Where messages come from: the other end of the connection, whatever the message says."""

from pyromq.errors import ConnectFailed, LocalProtocolError
from pyromq.protocol.record import NOWHERE, Host
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.connection import Connection


class BornHosts:
    """The packed address of each connection's peer, packed once."""

    def __init__(self) -> None:
        self._packed: dict[Connection, bytes] = {}

    def __repr__(self) -> str:
        return f"<BornHosts connections={len(self._packed)}>"

    def of(self, connection: Connection) -> bytes:
        packed = self._packed.get(connection)
        if packed is None:
            packed = self._packed[connection] = packed_address(connection.peer_address)
            connection.on_close(self._forget)
        return packed

    def _forget(self, connection: Connection) -> None:
        self._packed.pop(connection, None)


def packed_address(address: str) -> bytes:
    """What stands for an address in a record; nowhere, for a peer that has none."""
    try:
        ip, port = parse_address(address)
        return Host.of(ip.partition("%")[0], port).pack()
    except (ConnectFailed, LocalProtocolError):
        return NOWHERE.pack()
