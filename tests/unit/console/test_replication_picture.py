"""The picture of a broker group: one box each, and a line from each replica to its master."""

from pyromq.admin.replication import GroupPicture, MemberPicture
from pyromq.console.pages.replication import BOX_WIDTH, WIDTH, drawn

MASTER = MemberPicture("h:1", 0, is_master=True)


def replica(number: int, **more: object) -> MemberPicture:
    return MemberPicture(f"h:{number}", number, is_master=False, **more)  # type: ignore[arg-type]


def test_masters_are_on_the_left_and_replicas_on_the_right() -> None:
    picture = drawn(GroupPicture("c", "a", [MASTER, replica(1, follows="h:1"), replica(2)]))
    assert [box["x"] for box in picture["boxes"]] == [0, WIDTH - BOX_WIDTH, WIDTH - BOX_WIDTH]
    assert [line["is_broken"] for line in picture["lines"]] == [False, True]
    assert all(box["y"] + box["height"] <= picture["height"] for box in picture["boxes"])


def test_without_a_master_nobody_is_followed() -> None:
    picture = drawn(GroupPicture("c", "a", [replica(1)]))
    assert (len(picture["boxes"]), picture["lines"]) == (1, [])
