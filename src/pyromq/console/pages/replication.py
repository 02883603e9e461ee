"""Replication and fail-over as a picture: for each broker group who is master, who follows, and how far."""

from typing import Any

from pyromq.admin import replication
from pyromq.admin.replication import GroupPicture, MemberPicture
from pyromq.console.page import Data
from pyromq.console.visit import Visit

WIDTH, BOX_WIDTH, BOX_HEIGHT, GAP = 640, 250, 56, 16


async def show(visit: Visit) -> Data:
    groups = await replication.pictures(visit.cluster)
    return {
        "groups": [
            {
                "cluster": group.cluster,
                "name": group.broker_name,
                "members": group.members,
                "remarks": group.remarks,
                "controlled": group.controlled,
            }
            for group in groups
        ],
        "_pictures": [drawn(group) for group in groups],
    }


def drawn(group: GroupPicture) -> dict[str, Any]:
    """Boxes and lines: masters on the left, replicas on the right, a line from each replica to its master."""
    masters = [member for member in group.members if member.is_master]
    replicas = [member for member in group.members if not member.is_master]
    rows = max(len(masters), len(replicas), 1)
    boxes = [_box(member, 0, place) for place, member in enumerate(masters)]
    boxes += [_box(member, WIDTH - BOX_WIDTH, place) for place, member in enumerate(replicas)]
    lines = [
        {
            "x1": BOX_WIDTH,
            "y1": BOX_HEIGHT / 2,
            "x2": WIDTH - BOX_WIDTH,
            "y2": place * (BOX_HEIGHT + GAP) + BOX_HEIGHT / 2,
            "behind": member.behind_bytes,
            "is_broken": bool(member.problem) or not member.follows,
        }
        for place, member in enumerate(replicas)
        if masters
    ]
    return {"width": WIDTH, "height": rows * (BOX_HEIGHT + GAP) - GAP, "boxes": boxes, "lines": lines}


def _box(member: MemberPicture, x: int, place: int) -> dict[str, Any]:
    return {
        "x": x,
        "y": place * (BOX_HEIGHT + GAP),
        "width": BOX_WIDTH,
        "height": BOX_HEIGHT,
        "member": member,
        "epoch": member.epochs[-1].epoch if member.epochs else None,
    }
