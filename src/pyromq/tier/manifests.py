"""The manifests of a tier: reading the newest one, and adding the next without ever overwriting one.

Version N + 1 is created only if it is absent, by a master that has read version N. A master creates one
first, its claim: from then on one with a lower epoch, or another one with the same epoch, finds it, and
stops. So the last one that claimed the tier writes it, also if two brokers believe that they are the master.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from pyromq import chance
from pyromq.errors import PyroError, TransportError
from pyromq.tier.manifest import Manifest, pack_manifest, parse_manifest
from pyromq.tier.names import FORMAT, HINT, MANIFESTS, manifest_name, parse_manifest_name
from pyromq.tier.objects import ObjectExists, ObjectMissing, Objects, create_settled
from pyromq.tier.segment_format import BadObject

FORMAT_NAME: Final = "pyromq tier 1"
_RACES: Final = 20


class Fenced(PyroError):
    """Another master has claimed this tier."""


class WrongTier(PyroError):
    """The objects found there do not belong to this store. An operator has to decide."""


class OtherBroker(WrongTier):
    """The tier is that of another broker."""


class TierFormat(msgspec.Struct, frozen=True, rename="camel"):
    """The object `format`: whose tier this is."""

    format: str
    cluster: str
    broker: str
    tier_id: str


Change = Callable[[Manifest], Manifest | None]
"""The next manifest, from the newest one; None if nothing has to change."""


class Manifests:
    def __init__(
        self, objects: Objects, cluster: str, broker: str, writer: str, remembered: Manifest | None = None
    ) -> None:
        """`writer`: who this is; no other process has the same. `remembered`: the newest manifest that an
        earlier process of this broker knew. A tier that lacks what it had is not taken for a new one."""
        self.objects = objects
        self._cluster = cluster
        self._broker = broker
        self.writer = writer
        self._newest: Manifest | None = None
        self._tier_id: str | None = None
        self._remembered = remembered if remembered is not None and remembered.segments else None

    def __repr__(self) -> str:
        return f"<Manifests {self.objects.place} {self._newest.number if self._newest else 'none'}>"

    @property
    def known(self) -> Manifest | None:
        """The newest one that was read."""
        return self._newest

    def tier_id(self, *, create: bool = False) -> str | None:
        """The number of this tier, read each time; None if there is no tier yet. Raises WrongTier."""
        known = self._newest if self._newest is not None else self._remembered
        try:
            raw = self.objects.read(FORMAT)
        except ObjectMissing:
            if known is not None:
                raise self._lost(known, "has no tier") from None
            if not create:
                return None
            mine = TierFormat(FORMAT_NAME, self._cluster, self._broker, chance.uuid().hex)
            raw = msgspec.json.encode(mine)
            try:
                create_settled(self.objects, FORMAT, raw)
            except ObjectExists:
                raw = self.objects.read(FORMAT)
        tier_id = self._parse_format(raw).tier_id
        if known is not None and tier_id != known.tier_id:
            raise self._lost(known, f"has the tier {tier_id}")
        self._tier_id = tier_id
        return tier_id

    def _lost(self, known: Manifest, found: str) -> WrongTier:
        return WrongTier(
            f"{self.objects.place} {found}, but this broker knows the tier {known.tier_id} with the log up to"
            f" {known.end} (manifest {known.number}): mount or bring back that one. To begin a new tier"
            " without the old messages, stop the broker and remove the directory `tier` of its store"
        )

    def _parse_format(self, raw: bytes) -> TierFormat:
        try:
            found = msgspec.json.decode(raw, type=TierFormat)
        except msgspec.DecodeError as problem:
            raise BadObject(f"{self.objects.place}/{FORMAT}: {problem}") from None
        expected = (FORMAT_NAME, self._cluster, self._broker)
        if (found.format, found.cluster, found.broker) != expected:
            raise OtherBroker(
                f"{self.objects.place}/{FORMAT} is of {found.format!r}, cluster {found.cluster!r}, broker"
                f" {found.broker!r}: expected {expected}"
            )
        return found

    # Reading

    def read_newest(self) -> Manifest | None:
        """The newest manifest; None if there is none yet. Raises WrongTier if it lacks what was known."""
        found = self._newest
        number = found.number if found is not None else 0
        if number == 0 or (self._read(number + 1) is None and self._hint() > number):
            # Nothing is known, or what follows was removed because it is old.
            number = self._start_number()
            found = self._read(number) if number else None
        while (following := self._read(number + 1)) is not None:
            found, number = following, number + 1
        if found is not None and self._tier_id is not None and found.tier_id != self._tier_id:
            raise WrongTier(f"{manifest_name(found.number)} is of another tier than {FORMAT}")
        self._compare(found)
        self._newest = found
        return found

    def _compare(self, found: Manifest | None) -> None:
        """A tier never has less than it had: its last segment is never dropped."""
        known = self._remembered
        if known is None:
            return
        if found is None:
            raise self._lost(known, "has no manifest")
        if found.tier_id != known.tier_id:
            raise self._lost(known, f"has the tier {found.tier_id}")
        if found.number < known.number or found.end < known.end:
            raise self._lost(known, f"has only the log up to {found.end} (manifest {found.number})")

    def _start_number(self) -> int:
        """The number of a recent manifest; 0 if there is none. Listings may be old, a hint may be lost."""
        names = [each.name for each in self.objects.list(MANIFESTS)]
        numbers = [number for name in names if (number := parse_manifest_name(name)) is not None]
        remembered = self._remembered.number if self._remembered is not None else 0
        others = {self._hint(), remembered} - {0}
        numbers += [each for each in others if self.objects.info(manifest_name(each)) is not None]
        return max(numbers, default=0)

    def _hint(self) -> int:
        """The number of a manifest that there is, or was; 0 if that is not known."""
        try:
            raw = self.objects.read(HINT, 0, 20)
        except ObjectMissing:
            return 0
        return int(raw) if raw.isdigit() else 0

    def _read(self, number: int) -> Manifest | None:
        try:
            raw = self.objects.read(manifest_name(number))
        except ObjectMissing:
            return None
        manifest = parse_manifest(raw)
        if manifest.number != number:
            raise BadObject(f"{manifest_name(number)} has number {manifest.number}")
        return manifest

    # Writing

    def claim(self, epoch: int, begin: Callable[[Manifest], Manifest] = lambda newest: newest) -> Manifest:
        """Write this tier from now on, as the master of an epoch. `begin` may refuse the newest manifest, or
        change it.

        Raises Fenced if there is a master of a later epoch."""

        def change(newest: Manifest) -> Manifest | None:
            wanted = msgspec.structs.replace(begin(newest), epoch=epoch, writer=self.writer)
            return None if newest.number and wanted == newest else wanted

        return self._change(change, epoch)

    def is_claimed(self, epoch: int) -> bool:
        """Whether the newest known one says that this process writes the tier."""
        newest = self._newest
        return newest is not None and (newest.epoch, newest.writer) == (epoch, self.writer)

    def add(self, epoch: int, change: Change) -> Manifest:
        """Make the change and return the manifest that has it. It may have been made before, by a write whose
        answer was lost: then `change` says so.

        Raises Fenced unless this tier is claimed, TransportError if it cannot be known what has become of
        it, or what `change` raises.
        """

        def as_master(newest: Manifest) -> Manifest | None:
            self._require_claim(newest, epoch)
            return change(newest)

        return self._change(as_master, epoch)

    def owned(self, epoch: int) -> Manifest:
        """The newest one, read now: who removes an object must still be the one that writes the tier.

        Raises Fenced if it is not."""
        newest = self.read_newest()
        if newest is None:
            raise Fenced(f"{self.objects.place} has no manifest")
        self._require_claim(newest, epoch)
        return newest

    def _require_claim(self, newest: Manifest, epoch: int) -> None:
        if (newest.epoch, newest.writer) != (epoch, self.writer):
            raise Fenced(f"{manifest_name(newest.number)} was written by {newest.writer or 'another'}")

    @contextmanager
    def borrowed(self) -> Iterator[int]:
        """Write the tier for a while as a tool, and give it back to its master. The value is the epoch.

        Raises WrongTier if there is none."""
        found = self.read_newest()
        if found is None:
            raise WrongTier(f"{self.objects.place} has no tier yet")
        self.claim(found.epoch)
        try:
            yield found.epoch
        finally:
            self.add(found.epoch, lambda newest: msgspec.structs.replace(newest, writer=found.writer))

    def _change(self, change: Change, epoch: int) -> Manifest:
        tier_id = self.tier_id(create=True)
        assert tier_id is not None
        for _ in range(_RACES):
            newest = self.read_newest()
            if newest is not None and newest.epoch > epoch:
                raise Fenced(
                    f"{manifest_name(newest.number)} is of epoch {newest.epoch}, this master of {epoch}"
                )
            before = newest if newest is not None else Manifest(tier_id=tier_id)
            wanted = change(before)
            if wanted is None:
                return before
            if (written := self._create(wanted, before)) is not None:
                return written
        raise TransportError(f"{self.objects.place}: others were faster {_RACES} times")

    def _create(self, wanted: Manifest, before: Manifest) -> Manifest | None:
        """The next manifest; None if another one took its number."""
        number = before.number + 1
        candidate = msgspec.structs.replace(wanted, number=number, attempt=chance.uuid().hex)
        try:
            create_settled(self.objects, manifest_name(number), pack_manifest(candidate))
        except ObjectExists:
            return None
        if self._hint() > number:
            # We slept, and the number was free because what had it was removed; or others were quick.
            self._newest = None
            return None
        self._newest = candidate
        with suppress(TransportError):  # only a hint: readers look for newer ones anyway
            self.objects.replace(HINT, b"%020d" % number)
        return candidate
