"""The born host of messages: the address of the channel's peer, whatever the message says."""

from pyromq.errors import ConnectFailed, LocalProtocolError
from pyromq.protocol.record import NOWHERE, Host
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.channel import Channel


class BornHosts:
    """The packed address of each channel's peer, packed once."""

    def __init__(self) -> None:
        self._packed: dict[Channel, bytes] = {}

    def __repr__(self) -> str:
        return f"<BornHosts connections={len(self._packed)}>"

    def of(self, channel: Channel) -> bytes:
        packed = self._packed.get(channel)
        if packed is None:
            packed = self._packed[channel] = packed_address(channel.peer_address)
            channel.on_close(self._forget)
        return packed

    def _forget(self, channel: Channel) -> None:
        self._packed.pop(channel, None)


def packed_address(address: str) -> bytes:
    """The address as a record holds it; 0.0.0.0:0 for a peer without an address."""
    try:
        ip, port = parse_address(address)
        return Host.of(ip.partition("%")[0], port).pack()
    except (ConnectFailed, LocalProtocolError):
        return NOWHERE.pack()
