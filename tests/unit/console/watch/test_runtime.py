"""Runtime information as figures: texts of our brokers and of Apache's, and what they leave out."""

import pytest

from pyromq.admin.cluster import BrokerMember
from pyromq.console.watch import runtime
from pyromq.console.watch.broker_part import BrokerPart
from pyromq.console.watch.values import BrokerKind


def part(**told: str) -> BrokerPart:
    made = BrokerPart(BrokerMember("c", "a", 0, "h:1"))
    made.runtime = told
    return made


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0 B", 0),
        ("17 B", 17),
        ("1.5 KiB", 1536),
        ("2.0 GiB", 2 << 30),
        ("1,5 KiB", 1536),
        ("", None),
        ("x", None),
    ],
)
def test_sizes_are_read(text: str, size_bytes: int | None) -> None:
    assert runtime.size(text) == size_bytes


def test_a_capacity_is_total_and_free() -> None:
    assert runtime.capacity("Total : 1.0 TiB, Free : 512.0 GiB.") == (1 << 40, 512 << 30)
    assert runtime.capacity("") == (None, None)


def test_what_is_not_told_is_none_and_not_zero() -> None:
    view = runtime.view(part(), None)
    assert (view.in_per_s, view.disk_ratio, view.log_bytes, view.oldest_ms, view.topics) == (None,) * 5
    assert view.source is BrokerKind.UNKNOWN


def test_a_broker_is_known_by_its_version() -> None:
    assert runtime.view(part(pyromqVersion="1.0", brokerVersionDesc="V5_3_3"), None).version == "PyroMQ 1.0"
    assert runtime.view(part(brokerVersionDesc="V4_9_7"), None).version == "V4_9_7"
    assert runtime.view(part(brokerVersionDesc="V4_9_7"), None).source is BrokerKind.APACHE


def test_the_spelling_of_releases_before_5_is_known() -> None:
    assert runtime.view(part(getTransferedTps="3.5 1 1"), None).out_per_s == 3.5


def test_odd_numbers_are_not_told() -> None:
    view = runtime.view(part(putTps="many", commitLogDiskRatio="-1.0", earliestMessageTimeStamp="-1"), None)
    assert (view.in_per_s, view.disk_ratio, view.oldest_ms) == (None, None, None)


def test_retention_comes_from_the_settings_of_apaches_brokers() -> None:
    made = part(commitLogDiskRatio="0.9")
    assert runtime.retention_s(made) is None
    made.settings = {"fileReservedTime": "48", "diskMaxUsedSpaceRatio": "60"}
    assert runtime.retention_s(made) == 48 * 3600
    assert runtime.clean_at(made) == 0.6
    assert runtime.is_cleaning_early(made)
