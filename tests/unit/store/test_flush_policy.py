"""Flush policies: what `flushDiskType` decides."""

from pathlib import Path
from typing import get_args

from pyromq.store.flush_policy import FLUSH_POLICIES, FlushDiskType
from pyromq.store.settings import StoreSettings


def test_every_flush_disk_type_has_a_policy() -> None:
    assert set(FLUSH_POLICIES) == set(get_args(FlushDiskType))


def test_only_synchronous_flush_keeps_senders_waiting_and_sweeps_up_after_them() -> None:
    found = {name: (policy.is_sync, policy.sweep_ms) for name, policy in FLUSH_POLICIES.items()}
    assert found == {"ASYNC_FLUSH": (False, None), "SYNC_FLUSH": (True, 10)}


def test_the_settings_name_the_policy() -> None:
    settings = StoreSettings(root=Path("store"), flush_disk_type="SYNC_FLUSH")
    assert settings.flush_policy is FLUSH_POLICIES["SYNC_FLUSH"]
