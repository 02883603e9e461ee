"""Where things lie, so that a test file may move without counting the folders above it."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The repository."""

GOLDEN: Final = ROOT / "tests" / "golden"
"""What Apache's programs wrote, and what ours must keep writing."""
