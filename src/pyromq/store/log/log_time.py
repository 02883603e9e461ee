"""The log's time: the machine's time, except that it never goes back and does not follow large jumps at once.

The log's time advances with the seconds since boot, which also count while the machine is suspended. Each
look compares both clocks:

- It follows small differences: clocks are adjusted all the time.
- If the clock was set back, the log's time runs 5% slower until the clock has caught up. Delayed messages
  wait a little longer, and none is delivered early.
- If the clock jumped ahead by more than a minute, the log's time follows only after `CONFIRMED_AFTER_S`. The
  jump does not count as time that delayed messages have waited.

No file is deleted for its age while the time is in doubt, see `cautious_ms`.
"""

from collections import deque
from typing import Final, NamedTuple

from pyromq.clock import Clock, SystemClock
from pyromq.store.log.log_end import LogEnd

CONFIRMED_AFTER_S: Final = 15 * 60.0
"""How long a jump ahead must last to be followed: long enough for a time service to correct the clock."""

_BELIEVED_MS: Final = 60_000
"""A jump ahead of at most this much is followed at once."""
_LONG_AWAY_MS: Final = 600_000
"""If the newest message is older than this at the start, the clock may be wrong, or the store was off."""
_CATCHING_UP: Final = 0.95
"""The pace at which the clock catches up after it was set back."""
_TOLERANCE_MS: Final = 100.0
_TOLERANCE: Final = 0.001
_TRUSTED_MS: Final = 1000
"""How long appends may use the machine's clock without asking here."""
_READING_S: Final = 0.02
_MAX_LEAPS = 64
_MAX_NOTICES = 20


class _Leap(NamedTuple):
    before_ms: float
    size_ms: float


class LogTime:
    def __init__(self, clock: Clock, log: LogEnd) -> None:
        self._clock = clock
        self._log = log
        # Only compiled code and this one may read the machine's clock instead of `clock`.
        self._trusted_ms = _TRUSTED_MS if type(clock) is SystemClock else 0
        self._leaps: deque[_Leap] = deque(maxlen=_MAX_LEAPS)
        self._notices: deque[str] = deque(maxlen=_MAX_NOTICES)
        self.leap_count = 0
        """How many jumps ahead were followed."""
        self.begin()

    def __repr__(self) -> str:
        return f"<LogTime {self._now_ms:.0f} clock={self._clock.now_ms() - self._now_ms:+.0f} ms>"

    def begin(self) -> None:
        """Start from the clock, or from the log's newest message if that is later."""
        self._seen, wall_ms = self._read()
        self._began = self._seen
        self._newest_ms = newest_ms = self._log.last_store_timestamp
        self._now_ms = float(max(wall_ms, newest_ms))
        self._set_back = False
        self._held: tuple[float, float] | None = None
        """A jump ahead that is not followed yet: since when, and its size."""
        self._is_in_doubt = newest_ms > 0 and wall_ms - newest_ms > _LONG_AWAY_MS
        self._trust(wall_ms, wall_ms >= newest_ms)
        if self._is_in_doubt:
            self._tell(
                f"the newest message is {_span(wall_ms - newest_ms)} old: the store was not in use, or the "
                f"clock is wrong; no file is deleted for its age for {_span(CONFIRMED_AFTER_S * 1000)}"
            )

    def now_ms(self) -> int:
        """Milliseconds since the epoch, never less than before."""
        return int(self.look())

    def append_ms(self) -> int:
        """The time for an append: the machine's clock while it is trusted."""
        log = self._log
        if log.wall_from_ms < log.wall_until_ms:
            wall_ms = self._clock.now_ms()
            if log.wall_from_ms <= wall_ms < log.wall_until_ms:
                return wall_ms
        return int(self.look())

    def look(self) -> float:
        """Compare the clocks; must be called about once a second."""
        seen, wall_ms = self._read()
        passed_ms = max(seen - self._seen, 0.0) * 1000
        expected_ms = self._now_ms + passed_ms
        gap_ms = wall_ms - expected_ms
        tolerance_ms = _TOLERANCE_MS + passed_ms * _TOLERANCE
        self._seen = seen
        if abs(gap_ms) <= tolerance_ms:
            self._follow(wall_ms)
        elif gap_ms < 0:
            self._go_on_alone(self._now_ms + passed_ms * _CATCHING_UP, wall_ms)
        elif gap_ms <= _BELIEVED_MS:
            self._leap(expected_ms, wall_ms)
        else:
            self._doubt(expected_ms, gap_ms, wall_ms)
        return self._now_ms

    def cautious_ms(self) -> int:
        """The earliest possible current time, for deciding which files have expired."""
        now_ms = min(self.now_ms(), self._clock.now_ms())
        if self._is_in_doubt:
            up_s = self._clock.since_boot() - self._began
            if up_s < CONFIRMED_AFTER_S:
                return min(now_ms, self._newest_ms + int(up_s * 1000))
            self._is_in_doubt = False
        return now_ms

    def leapt_since(self, stamp_ms: float) -> float:
        """The sum of the jumps ahead since a time, in ms: time that did not really pass."""
        return sum(leap.size_ms for leap in self._leaps if stamp_ms <= leap.before_ms)

    def take_notices(self) -> list[str]:
        """Log texts about the clock since the last call."""
        notices = list(self._notices)
        self._notices.clear()
        return notices

    # Results of a look

    def _follow(self, wall_ms: int) -> None:
        if self._set_back or self._held is not None:
            self._tell("the clock agrees with the log's time again")
            self._set_back, self._held = False, None
        self._trust(wall_ms, wall_ms >= self._now_ms)
        self._now_ms = max(self._now_ms, float(wall_ms))

    def _go_on_alone(self, slowly_ms: float, wall_ms: int) -> None:
        self._held = None
        self._now_ms = max(slowly_ms, float(wall_ms))
        self._trust(wall_ms, False)
        if not self._set_back:
            self._set_back = True
            self._tell(
                f"the clock is {_span(self._now_ms - wall_ms)} behind the time of the log, "
                "which runs 5% slower until the clock has caught up"
            )

    def _leap(self, before_ms: float, wall_ms: int) -> None:
        self._set_back, self._held = False, None
        self._leaps.append(_Leap(before_ms, wall_ms - before_ms))
        self.leap_count += 1
        self._now_ms = float(wall_ms)
        self._trust(wall_ms, True)

    def _doubt(self, expected_ms: float, gap_ms: float, wall_ms: int) -> None:
        self._set_back = False
        if self._held is None or abs(gap_ms - self._held[1]) > _BELIEVED_MS:
            self._held = self._seen, gap_ms
            self._tell(
                f"the clock jumped ahead by {_span(gap_ms)}: the broker ignores the jump, and deletes "
                f"no file for its age, until it has lasted {_span(CONFIRMED_AFTER_S * 1000)}"
            )
        elif self._seen - self._held[0] >= CONFIRMED_AFTER_S:
            self._tell(f"the clock is still {_span(gap_ms)} ahead: the broker follows it now")
            self._leap(expected_ms, wall_ms)
            return
        self._now_ms = expected_ms
        self._trust(wall_ms, False)

    def _trust(self, wall_ms: int, is_trusted: bool) -> None:
        self._log.wall_from_ms = wall_ms
        self._log.wall_until_ms = wall_ms + self._trusted_ms if is_trusted else wall_ms

    def _read(self) -> tuple[float, int]:
        """Both clocks at one moment, as far as the system lets us."""
        for _ in range(3):
            before, wall_ms = self._clock.since_boot(), self._clock.now_ms()
            if self._clock.since_boot() - before < _READING_S:
                break
        return before, wall_ms

    def _tell(self, text: str) -> None:
        self._notices.append(text)


def _span(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.1f} seconds"
