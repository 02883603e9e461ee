"""The fast path of plain route queries, compiled: bytes of a read become bytes of a write.

It takes queries by topic for a topic with an encoded route, without a watch, a zone or other unusual fields,
and only while all routes are plain (`RouteLookup.is_plain`). It stops at the first other frame, and the
general path continues there. Both give the same answers, byte for byte. Connections with grants, which exist
only under access control, do not take it. Without the compiled core there is only the general path.
"""

from typing import cast

from pyromq.clock import Clock
from pyromq.compiled import twin
from pyromq.nameserver.metering import NameServerMetering
from pyromq.nameserver.route_lookup import RouteLookup
from pyromq.remoting.connection_group import FastPath
from pyromq.remoting.limits import ServerLimits

_native = twin("nameserver.fast_path")


def fast_path(
    lookup: RouteLookup, metering: NameServerMetering, clock: Clock, limits: ServerLimits
) -> FastPath | None:
    """None without the compiled core."""
    if _native is None:
        return None
    return cast(
        FastPath,
        _native.RouteLookup(
            lookup,
            lookup.answers,
            metering.found_queries(),
            clock.monotonic,
            max_frame_bytes=limits.max_frame_bytes,
            high_water_bytes=limits.write_high_water_bytes,
        ),
    )
