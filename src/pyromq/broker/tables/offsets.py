"""The offsets of consumer groups, and the resets that operators ask for.

Commits are kept in memory and written periodically: after a crash a group may read messages again, but skips
none. What an offset depends on is in the log: a pop moves it when its checkpoint is there. So the table is
written when the log is flushed up to where it ended.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Iterator, Set
from contextlib import asynccontextmanager
from itertools import chain

from pyromq.broker.tables.offset_pairs import OffsetPairs, Pair, Queues
from pyromq.clock import Clock
from pyromq.errors import StoreError
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.remoting.slices import Slices
from pyromq.store.json_table import JsonTable
from pyromq.store.message_store import MessageStore

_SEPARATOR = "@"


async def _nothing() -> None:
    """There are no replicas."""


class OffsetTable:
    def __init__(
        self,
        file: JsonTable,
        clock: Clock,
        store: MessageStore | None = None,
        *,
        commits_per_version: int = 500,
        server_side_reset: bool = True,
    ) -> None:
        self._file = file
        self._store = store
        self._clock = clock
        self._commits_per_version = commits_per_version
        self._server_side_reset = server_side_reset
        loaded = file.load(ConsumerOffsetSerializeWrapper) or ConsumerOffsetSerializeWrapper()
        self.loaded_from_ms = file.modified_ms
        """When the offsets of the start were written."""
        self._committed = OffsetPairs()
        for key, queues in loaded.offset_table.items():
            topic, _, group = key.partition(_SEPARATOR)
            self._committed.put(topic, group, queues)
        self._pulled: dict[tuple[str, str], Queues] = {}
        self.resets: dict[tuple[str, str], Queues] = {}
        """Pending resets by topic and group, and the ends that groups are held to."""
        self._held: set[tuple[str, str, int]] = set()
        """The latter: topic, group, queue id."""
        self._commits = self._other_changes = 0
        self._is_dirty = False
        self._leaving: set[str] = set()
        """Topics that are about to be removed: neither files nor replicas get their offsets any more."""
        self._own: set[tuple[str, str, int]] | None = None
        self.is_copy = False
        """Whether these are another cluster's: then commits are ignored."""
        self._saving = threading.Lock()
        self._turn = self._saved_turn = 0
        self.data_version = loaded.data_version or DataVersion()
        self.before_saving: Callable[[], None] = lambda: None
        self.promises = 0
        """Counts the times when an operator was promised something."""
        self.at_replicas: Callable[[], Awaitable[None]] = _nothing
        """Returns when the replicas in sync have the promises so far; raises Refused."""

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def changes(self) -> int:
        """Counts the changes."""
        return self._commits + self._other_changes

    def __repr__(self) -> str:
        return f"<OffsetTable pairs={len(self._committed)} resets={len(self.resets)} dirty={self._is_dirty}>"

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit an offset; True if it moved back.

        While a reset is pending, commits of the group are ignored, and so are those beyond the end that it is
        held to. So are negative offsets, which a pull may carry. java: they are kept, and the group starts
        again
        """
        if offset < 0 or self.is_copy or (self.resets and self._is_ignored(group, topic, queue_id, offset)):
            return False
        queues = self._committed.get_or_add(topic, group)
        before = queues.get(queue_id, -1)
        queues[queue_id] = offset
        self._is_dirty = True
        self._commits += 1
        if self._own is not None:
            self._own.add((topic, group, queue_id))
        # A master that comes back takes over a table that is newer than its own. Apache's, which may have
        # lost its file, has no other way to tell: a commit at the acting master counts at once.
        if self._own is not None or self._commits % self._commits_per_version == 0:
            version = self.data_version
            self.data_version = version.next(self._clock.now_ms(), version.state_version)
        return offset < before

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or -1."""
        if self.resets:
            reset = self.pending_reset(group, topic, queue_id)
            if reset is not None:
                return reset
        queues = self._committed.get(topic, group)
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> Queues:
        return self._committed.get(topic, group) or {}

    def topics_of(self, group: str) -> list[str]:
        return [topic for topic, each in self._committed if each == group]

    def groups_of(self, topic: str) -> list[str]:
        return self._committed.groups_of(topic)

    def pairs(self) -> Iterator[Pair]:
        """Every (topic, group) that has offsets; they may change during the walk."""
        return iter(self._committed)

    def ordinary_pairs(self) -> list[Pair]:
        """Those of topics other than light queues, the oldest first."""
        return list(self._committed.ordinary)

    def light_pairs(self) -> Iterator[Pair]:
        """Those of light queues; they may change during the walk."""
        return self._committed.light()

    # Pulled offsets, which are ahead of the committed ones

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        pulled = self._pulled.get((topic, group), {}).get(queue_id)
        return self.query(group, topic, queue_id) if pulled is None else pulled

    def all_pulled(self) -> Iterator[tuple[str, str, Queues]]:
        """Every (topic, group) with pulls since the start, with its pulled offset in each queue."""
        for (topic, group), queues in self._pulled.items():
            yield topic, group, queues

    # Resets on the server

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to an offset, at its next pull."""
        self.resets.setdefault((topic, group), {})[queue_id] = offset
        self._held.discard((topic, group, queue_id))
        self._committed.get_or_add(topic, group)[queue_id] = offset
        self._changed()

    def pending_resets(self) -> ConsumerOffsetSerializeWrapper:
        """All of them, without the ends that groups are held to."""
        found: dict[str, Queues] = {}
        for (topic, group), queues in self.resets.items():
            pending = {each: at for each, at in queues.items() if (topic, group, each) not in self._held}
            if pending:
                found[f"{topic}{_SEPARATOR}{group}"] = pending
        return ConsumerOffsetSerializeWrapper(offset_table=found)

    def copy_resets(self, table: ConsumerOffsetSerializeWrapper) -> None:
        """Take over a master's pending resets: they are as good at the next master."""
        self._held.clear()
        self.resets = {}
        for key, queues in table.offset_table.items():
            topic, _, group = key.partition(_SEPARATOR)
            self.resets[topic, group] = dict(queues)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        queues = self.resets.get((topic, group))
        if queues is None or not self._server_side_reset or (topic, group, queue_id) in self._held:
            return None
        return queues.get(queue_id)

    def take_reset(self, group: str, topic: str, queue_id: int, reads_at: int | None = None) -> int | None:
        """Where a group that is about to read a queue has to read instead: an operator has reset it, or it is
        beyond the end that it is held to.

        That is so until it reads from there, because an answer may get lost. `reads_at` is None for a pop,
        which reads where this says.
        """
        queues = self.resets.get((topic, group))
        if queues is None or (offset := queues.get(queue_id)) is None:
            return None
        is_held = (topic, group, queue_id) in self._held
        is_reset = not is_held and self._server_side_reset
        if reads_at is not None and is_reset and reads_at != offset:
            return offset
        if reads_at is not None and is_held and reads_at > offset:
            # Its consumer forgets what it has read and not finished: all of that is delivered again.
            return min(offset, self.queues(group, topic).get(queue_id, offset))
        self._held.discard((topic, group, queue_id))
        del queues[queue_id]
        if not queues:
            del self.resets[topic, group]
        if is_reset:
            self._changed()  # replicas need not keep it any longer
        return offset if is_reset and reads_at is None else None

    def _is_ignored(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        if (topic, group, queue_id) in self._held:
            return offset > self.resets[topic, group][queue_id]
        return self.pending_reset(group, topic, queue_id) is not None

    # After the log has lost its end

    def set_back(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Also an operator's reset beyond it."""
        self._committed.get_or_add(topic, group)[queue_id] = offset
        if self.pending_reset(group, topic, queue_id) is not None:
            self.resets[topic, group][queue_id] = offset
        self._changed()

    def hold(self, group: str, topic: str, queue_id: int, end: int) -> None:
        """Hold the group to the end of a queue: it can have read nothing behind that. An operator's reset is
        stronger."""
        if self.pending_reset(group, topic, queue_id) is None:
            self.resets.setdefault((topic, group), {})[queue_id] = end
            self._held.add((topic, group, queue_id))

    # Copies of a master's offsets

    def note_own(self, is_replica: bool) -> None:
        """A replica notes which offsets were committed here: they may be newer than its master's."""
        if is_replica != (self._own is not None):
            self._own = set() if is_replica else None

    def copy(
        self, table: ConsumerOffsetSerializeWrapper, *, is_complete: bool = True
    ) -> list[tuple[str, str, int, int]]:
        """Take over a master's offsets, except where those committed here are ahead of them.

        Returns the latter: topic, group, queue id and offset. If the table is complete, what it lacks goes.
        """
        ahead: list[tuple[str, str, int, int]] = []
        if is_complete:
            self._remove_missing(table)
        for key, theirs in table.offset_table.items():
            topic, _, group = key.partition(_SEPARATOR)
            queues = self._committed.get_or_add(topic, group)
            for queue_id, offset in theirs.items():
                before = queues.get(queue_id, -1)
                if before > offset and self._own is not None and (topic, group, queue_id) in self._own:
                    ahead.append((topic, group, queue_id, before))
                elif before != offset:
                    queues[queue_id] = offset
                    self._changed()
        if self._own is not None:
            known = {(topic, group, queue_id) for topic, group, queue_id, _ in ahead}
            for topic, group, queue_id in self._own - known:
                theirs = table.offset_table.get(f"{topic}{_SEPARATOR}{group}", {})
                ours = self.queues(group, topic).get(queue_id)
                if queue_id not in theirs and ours is not None:
                    ahead.append((topic, group, queue_id, ours))
                else:
                    self._own.discard((topic, group, queue_id))
        if table.data_version is not None:
            self.data_version = table.data_version
        return ahead

    def _remove_missing(self, table: ConsumerOffsetSerializeWrapper) -> None:
        own: Set[tuple[str, str, int]] = self._own or frozenset()
        for (topic, group), queues in self._committed.items():
            theirs = table.offset_table.get(f"{topic}{_SEPARATOR}{group}", {})
            for queue_id in [each for each in queues if each not in theirs]:
                if (topic, group, queue_id) not in own:
                    del queues[queue_id]
                    self._changed()
            if not queues:
                self._committed.remove(topic, group)

    def take_over(self, table: ConsumerOffsetSerializeWrapper) -> None:
        """Take over the offsets of a replica that acted as master: all of them if its table is newer, else
        those that are ahead."""
        version = table.data_version or DataVersion()
        if self.data_version.is_newer_than(version):
            return
        is_newer = version.is_newer_than(self.data_version)
        for key, theirs in table.offset_table.items():
            topic, _, group = key.partition(_SEPARATOR)
            queues = self._committed.get_or_add(topic, group)
            for queue_id, offset in theirs.items():
                if is_newer or offset > queues.get(queue_id, -1):
                    queues[queue_id] = offset
                    self._changed()
        self.data_version = version

    def forget_own(self, group: str, topic: str, queue_id: int) -> None:
        """The master knows this offset now."""
        if self._own is not None:
            self._own.discard((topic, group, queue_id))

    # Many at once

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        if (queues := self._committed.get(topic, source_group)) is not None:
            self._committed.put(topic, target_group, dict(queues))
            self._changed()

    def remove_topic(self, topic: str) -> None:
        self._remove_all(lambda key: key[0] == topic)

    def remove_topics(self, topics: Container[str]) -> None:
        self._remove_all(lambda key: key[0] in topics)

    def remove_pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Each of a topic and a group."""
        for pair in pairs:
            self._remove(pair)

    def remove_group(self, group: str) -> None:
        self._remove_all(lambda key: key[1] == group)

    def remove_dead(
        self,
        is_subscribed: Callable[[str, str], bool],
        min_offset: Callable[[str, int], int],
        among: Iterable[tuple[str, str]] | None = None,
    ) -> list[tuple[str, str]]:
        """Remove the offsets of groups without subscription whose messages are all deleted.

        `among`: the pairs of topic and group to examine; all if None.
        """
        dead = [
            (topic, group)
            for topic, group in (self._committed if among is None else among)
            if (queues := self._committed.get(topic, group))
            and not is_subscribed(group, topic)
            and all(offset <= min_offset(topic, queue_id) for queue_id, offset in queues.items())
        ]
        for key in dead:
            self._remove(key)
        return dead

    def _remove_all(self, is_wanted: Callable[[tuple[str, str]], bool]) -> None:
        for key in {*self._committed, *self._pulled, *self.resets}:
            if is_wanted(key):
                self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        self._held.difference_update([(*key, queue_id) for queue_id in self.resets.get(key, ())])
        removed = self._committed.remove(*key), self._pulled.pop(key, None), self.resets.pop(key, None)
        if any(each is not None for each in removed):
            self._changed()

    def _changed(self) -> None:
        self._is_dirty = True
        self._other_changes += 1

    # On disk

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        return ConsumerOffsetSerializeWrapper(
            data_version=self.data_version,
            offset_table={
                f"{topic}{_SEPARATOR}{group}": queues
                for (topic, group), queues in self._committed.items()
                if topic not in self._leaving
            },
        )

    def persist(self) -> None:
        """Write the changes; on return they are on disk, and no thread writes any more. Raises StoreError or
        OSError."""
        if self._is_dirty or self._saved_turn != self._turn:
            self.before_saving()
            self._is_dirty = False
            self._save(self.wrapper(), self._next_turn(), self._log_end)

    def abandon(self) -> None:
        """Keep threads from writing from now on."""
        with self._saving:
            self._saved_turn = self._turn

    async def persist_in_thread(self, slices: Slices) -> None:
        """Write a copy in a thread, so that the event loop waits neither for the disk nor for the copy."""
        if self._is_dirty or self._saved_turn != self._turn:
            self.before_saving()
            self._is_dirty = False
            # Before the copy: if this is cancelled in between, `persist` still writes.
            turn = self._next_turn()
            # Changes during the copy may be in it or not; the next round writes them.
            copy = await self.copied(slices)
            await asyncio.to_thread(self._save, copy, turn, self._log_end)

    async def promised(self, slices: Slices) -> None:
        """An operator has changed offsets: return when they are on disk, and at the replicas in sync. Raises
        StoreError, OSError, and Refused if replicas take too long."""
        self.promises += 1
        await self.persist_in_thread(slices)
        await self.at_replicas()

    @asynccontextmanager
    async def written_without(self, topics: Set[str], slices: Slices) -> AsyncIterator[dict[str, list[str]]]:
        """Inside, neither the disk nor a replica in sync has offsets of these topics, so that a crash brings
        none of them back. In memory they stay for a topic that is not removed after all.

        Yields the groups that have some, by topic. Raises as `promised`.
        """
        self._leaving |= topics
        try:
            self._changed()
            await self.promised(slices)
            groups: dict[str, list[str]] = {}
            async for topic, group in slices.spread(chain(self._committed, list(self._pulled))):
                if topic in topics:
                    groups.setdefault(topic, []).append(group)
            yield groups
        finally:
            self._leaving -= topics
            self._changed()

    async def copied(self, slices: Slices) -> ConsumerOffsetSerializeWrapper:
        """A copy of the table, made in slices."""
        wrapper = ConsumerOffsetSerializeWrapper(data_version=self.data_version)
        async for (topic, group), queues in slices.spread(self._committed.items()):
            if topic not in self._leaving:
                wrapper.offset_table[f"{topic}{_SEPARATOR}{group}"] = dict(queues)
        return wrapper

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn

    @property
    def _log_end(self) -> int:
        return 0 if self._store is None else self._store.log.end

    def _save(self, wrapper: ConsumerOffsetSerializeWrapper, turn: int, log_end: int) -> None:
        """The turn keeps a late thread from overwriting a newer table."""
        try:
            if self._store is not None and not self._store.flushes.flush_log_to(log_end):
                raise StoreError(f"the log could not be flushed up to {log_end}, which the offsets depend on")
            with self._saving:
                if turn > self._saved_turn:
                    self._file.save_from_thread(wrapper)
                    self._saved_turn = turn
        except BaseException:
            self._is_dirty = True
            raise
