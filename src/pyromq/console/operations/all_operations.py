"""The one table of everything that the console can change; pages, JSON and tests go by it."""

from pyromq.console.operations.access import (
    ChangeUser,
    CreateUserOperation,
    DeletePolicy,
    DeleteUserOperation,
    PutPolicy,
)
from pyromq.console.operations.brokers import (
    CleanBroker,
    DrainBroker,
    PutEntry,
    SetOnBroker,
    SetOnNameServers,
)
from pyromq.console.operations.groups import DeleteGroupOperation, PutGroup
from pyromq.console.operations.lite import DeleteLiteTopic
from pyromq.console.operations.messages import Redeliver, ResendLetters, SendAgain, SendMessageOperation
from pyromq.console.operations.offsets import CloneOffsets, ResetOffsets, UndoReset
from pyromq.console.operations.operation import Operation
from pyromq.console.operations.stores import VerifyStore
from pyromq.console.operations.topics import DeleteTopic, DeleteTopics, PutTopic

OPERATIONS: dict[str, type[Operation]] = {
    each.NAME: each
    for each in (
        PutTopic,
        DeleteTopic,
        DeleteTopics,
        DeleteLiteTopic,
        PutGroup,
        DeleteGroupOperation,
        ResetOffsets,
        UndoReset,
        CloneOffsets,
        SendMessageOperation,
        SendAgain,
        Redeliver,
        ResendLetters,
        SetOnBroker,
        DrainBroker,
        CleanBroker,
        SetOnNameServers,
        PutEntry,
        VerifyStore,
        CreateUserOperation,
        ChangeUser,
        DeleteUserOperation,
        PutPolicy,
        DeletePolicy,
    )
}


def operations(*, read_only: bool) -> dict[str, type[Operation]]:
    """A console that is read-only has none."""
    return {} if read_only else OPERATIONS
