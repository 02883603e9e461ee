"""The master under a controller, seen from its replica: first the replica's log is brought in line with it.

What the replica has and the master does not is cut off: it was never confirmed. Threads wait for the disk
meanwhile. Bytes go to the log only after the epoch that they are of is on disk. Readers see the log as far as
the master has confirmed it.
"""

import asyncio
import logging
from collections.abc import Callable

from pyromq.broker.replication.agreement import Disagreement
from pyromq.broker.replication.master_link import MasterLink
from pyromq.clock import Clock
from pyromq.disk_steps import DiskSteps, Wait
from pyromq.errors import PyroError, RemoteProtocolError, StateError, StoreError
from pyromq.protocol.epoch_replication import (
    LogFrame,
    MasterGreeting,
    MasterReader,
    ReplicaGreeting,
    encode_report,
)
from pyromq.store.log.epochs import Epoch, Epochs, agreed_end
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)


class EpochMasterLink(MasterLink):
    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        appended: Callable[[], None],
        hello: Callable[[bytes], bytes] | None = None,
        *,
        greeting: ReplicaGreeting,
        confirmed: Callable[[int], None],
        was_cut: Callable[[], None],
    ) -> None:
        """`confirmed` is called with the offset up to which readers may see the log, `was_cut` after its end
        was cut off."""
        super().__init__(store, clock, appended, hello)
        self._greeting = greeting
        self._confirmed = confirmed
        self._was_cut = was_cut
        self._reader = MasterReader()
        self._epoch: Epoch | None = None
        self._told_confirmed = -1
        self._cutting: asyncio.Task[None] | None = None
        self.is_aligned = False

    def _greet(self) -> None:
        assert self._transport is not None
        self._transport.write(self._greeting.encode())

    def _encoded_report(self, offset: int) -> bytes:
        return encode_report(offset)

    def report(self, *, even_if_known: bool = False) -> None:
        if self.is_aligned:
            super().report(even_if_known=even_if_known)

    def _take(self, data: memoryview) -> None:
        for said in self._reader.feed(data):
            if isinstance(said, MasterGreeting):
                if not self.is_aligned and self._cutting is None:
                    self._align(said)
            elif self.is_aligned:
                self._take_frame(*said)
            else:
                raise RemoteProtocolError("the master sends its log before it has said what its epochs are")

    def _align(self, master: MasterGreeting) -> None:
        store = self._store
        if not store.copying.is_on:
            raise StateError("this broker is the master now: its log is not cut for another")
        theirs: Epochs = tuple(Epoch(*each) for each in master.epochs)
        ours, end = store.epochs.epochs, store.log.end
        # A log without epochs is older than the controller; whether it agrees was asked before.
        agreed = agreed_end(ours, end, theirs, master.log_end) if ours and end else min(end, master.log_end)
        if agreed is None:
            raise Disagreement(
                f"this replica's log and that of its master have no epoch in common ({_told(ours)};"
                f" {_told(theirs)}): to copy the master's log again, stop this broker and move its store away"
            )
        if agreed < store.log.start:
            # A log that starts inside a file does not start with a record: no replica could copy it.
            agreed = 0
        cut = store.cutting.begin(agreed)
        if (wait := cut.next()) is None:
            self._aligned()
        else:
            self._cutting = asyncio.create_task(self._cut(cut, wait, agreed, end, ours), name="cut")

    async def _cut(self, cut: DiskSteps[int], wait: Wait | None, agreed: int, end: int, ours: Epochs) -> None:
        try:
            while wait is not None:
                await asyncio.to_thread(wait)
                wait = cut.next()
            if agreed < end:
                self._was_cut()
        except PyroError as problem:
            self.close(problem)
            return
        if agreed < end:
            _log.warning(
                "the end of the log was cut off, the master lacks it from=%d bytes=%d epochs=%s kept=%s",
                *(
                    agreed,
                    end - agreed,
                    _told(ours),
                    ", ".join(map(str, self._store.cutting.kept_as)) or "no",
                ),
            )
        self._aligned()

    def close(self, problem: PyroError) -> None:
        if (
            self._cutting is not None
            and not self._cutting.done()
            and self._cutting is not asyncio.current_task()
        ):
            self._cutting.cancel()
            try:
                self._store.cutting.finish()
                self._was_cut()
            except StoreError as error:
                problem = error
        super().close(problem)

    def _aligned(self) -> None:
        self.is_aligned = True
        self._appended()
        self.report(even_if_known=True)

    def _take_frame(self, frame: LogFrame, piece: memoryview) -> None:
        store = self._store
        epoch = Epoch(frame.epoch, frame.epoch_start)
        place = max(frame.offset, store.log.end)
        if epoch != self._epoch and epoch.start <= place:
            try:
                store.epochs.enter(epoch, place)
            except OSError as error:
                raise StoreError(f"epoch {epoch.number} cannot be written: {error}") from error
            self._epoch = epoch
        if piece:
            store.copying.append(frame.offset, piece)
        confirmed = min(frame.confirmed, store.log.end)
        if confirmed != self._told_confirmed:
            self._told_confirmed = confirmed
            self._confirmed(confirmed)


def _told(epochs: Epochs) -> str:
    return ", ".join(f"{each.number} from {each.start}" for each in epochs[-3:]) or "none"
