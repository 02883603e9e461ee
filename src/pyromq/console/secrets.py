"""Settings named like secrets are never shown, even if a broker sends them."""

import re

from pyromq.config.options import HIDDEN

_SECRET = re.compile(r"passw|secret|token|credential|private|accesskey|initauthenticationuser", re.IGNORECASE)


def masked(key: str, value: str) -> str:
    return HIDDEN if value and _SECRET.search(key) else value
