"""Changes of settings that come over the network: how much one request may bring.

The limits are checked before anything is parsed, searched or kept: the loop that reads such a request also
serves all other clients.
"""

from collections.abc import Callable, Iterable

from pyromq.config import properties
from pyromq.config.settings import Notice
from pyromq.errors import ConfigError

MAX_CHANGE_CHARS = 64 * 1024
MAX_CHANGE_LINES = 2048
MAX_UNKNOWN_KEYS = 16
_NAMED_KEYS = 3
_SHOWN_KEY_CHARS = 64


def not_over_the_network(keys: Iterable[str]) -> str:
    return (
        f"{', '.join(sorted(keys))} cannot be changed over the network, only in the file given with -c, "
        "in the environment or on the command line; nothing was changed"
    )


def summary(remarks: Iterable[Notice]) -> str | None:
    """The report for the operator who asked for the changes."""
    return "; ".join(map(str, remarks)) or None


def parse_changes(text: str, is_known: Callable[[str], bool]) -> dict[str, str]:
    """The values of a request by key; raises ConfigError if there are too many or they cannot be read.

    java: unknown keys are passed over. A few of them are typing errors or settings of another version; a
    request with more is refused.
    """
    if len(text) > MAX_CHANGE_CHARS:
        raise ConfigError("request", f"{len(text)} characters", f"at most {MAX_CHANGE_CHARS} of them")
    lines = text.count("\n") + text.count("\r")
    if lines > MAX_CHANGE_LINES:
        raise ConfigError("request", f"{lines} lines", f"at most {MAX_CHANGE_LINES} of them")
    changes = properties.parse(text)
    unknown = [key for key in changes if not is_known(key)]
    if len(unknown) > MAX_UNKNOWN_KEYS:
        named = ", ".join(key[:_SHOWN_KEY_CHARS] for key in unknown[:_NAMED_KEYS])
        raise ConfigError(
            "request",
            f"{len(unknown)} unknown settings ({named}, …)",
            f"at most {MAX_UNKNOWN_KEYS} of them; nothing was changed",
        )
    return changes
