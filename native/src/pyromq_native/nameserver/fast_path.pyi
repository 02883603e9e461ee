from collections.abc import Callable

from pyromq.nameserver.metering import FoundQueries
from pyromq.nameserver.route_answers import RouteAnswers
from pyromq.nameserver.route_lookup import RouteLookup as GeneralLookup
from pyromq.remoting.connection import Connection

class RouteLookup:
    def __init__(
        self,
        lookup: GeneralLookup,
        answers: RouteAnswers,
        found: FoundQueries,
        monotonic: Callable[[], float],
        *,
        max_frame_bytes: int,
        high_water_bytes: int,
    ) -> None: ...
    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...
