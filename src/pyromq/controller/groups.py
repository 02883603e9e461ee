"""A controller's lasting record of a broker group: a value that only decisions change."""

import msgspec

from pyromq.errors import StoreError

FORMAT_VERSION = 1
FIRST_BROKER_ID = 1


class ReplicaRecord(msgspec.Struct, frozen=True):
    """A broker that has an id. The check code distinguishes its claim to the id from those of other
    brokers."""

    address: str
    check_code: str
    incarnation: str = ""
    """A name for the time from its last start on, which the broker has chosen; empty if it has not."""
    brought_epoch: int | None = None
    """The newest epoch that its log had at a start, if it came with an id or an epoch from elsewhere."""
    is_learner: bool = False
    """Whether it said so when it registered: it is never in sync and never master, and none waits for it."""


class Offer(msgspec.Struct, frozen=True):
    """A broker's log, as offered to a controller that has no record of its group."""

    epoch: int
    """The newest epoch of its log."""
    log_end: int
    awaited: frozenset[int] = frozenset()
    """Of a running master: the brokers without which it acknowledges nothing, itself among them."""
    members: frozenset[int] = frozenset()
    """All brokers of the group that it has heard of."""


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group without replicas was cleaned; it keeps its numbers, so that none is given out twice."""

    cluster: str
    name: str
    next_id: int = FIRST_BROKER_ID
    replicas: dict[int, ReplicaRecord] = {}
    master_id: int | None = None
    master_epoch: int = 0
    sync_set: frozenset[int] = frozenset()
    """The replicas that hold everything that was acknowledged; the master is one of them."""
    sync_set_epoch: int = 0
    """The version of the in-sync set: every change of it and every start of a broker raises it."""
    first_epoch: int = 0
    """The master epoch at which the group was empty. While it is this one, no message can be lost, unless the
    group is returning."""
    offers: dict[int, Offer] = {}
    """The offers of brokers since the last of them started, while the group returns."""

    @property
    def is_without_data(self) -> bool:
        return self.master_epoch == self.first_epoch

    @property
    def is_returning(self) -> bool:
        """Whether brokers have come with ids or logs of which there is no record."""
        return self.is_without_data and any(each.brought_epoch is not None for each in self.replicas.values())

    @property
    def candidates(self) -> frozenset[int]:
        """All but learners."""
        return frozenset(each for each, replica in self.replicas.items() if not replica.is_learner)

    @property
    def master_address(self) -> str | None:
        return None if self.master_id is None else self.replicas[self.master_id].address


class _Versioned(msgspec.Struct):
    version: int
    group: GroupRecord


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Versioned)


def encode_group(group: GroupRecord) -> bytes:
    return _encoder.encode(_Versioned(FORMAT_VERSION, group))


def decode_group(data: bytes) -> GroupRecord:
    """Raises StoreError."""
    try:
        found = _decoder.decode(data)
    except msgspec.DecodeError as problem:
        raise StoreError(f"a broker group of the controller cannot be read: {problem}") from None
    if found.version != FORMAT_VERSION:
        raise StoreError(
            f"a broker group of the controller has format version {found.version}, expected {FORMAT_VERSION}"
        )
    return found.group
