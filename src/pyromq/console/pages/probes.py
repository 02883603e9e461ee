"""For machines: `/health` (it runs), `/ready` (every cluster has been seen), `/metrics` (how it does)."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from pyromq.console.state import State

Probe = Callable[[Request], Awaitable[Response]]


def health(state: State) -> Probe:
    async def probe(request: Request) -> Response:
        return JSONResponse({"status": "UP"})

    return probe


def ready(state: State) -> Probe:
    async def probe(request: Request) -> Response:
        waiting = [name for name, shown in state.clusters.items() if shown.snapshot.is_first]
        return JSONResponse(
            {"status": "DOWN" if waiting else "UP", "waiting": len(waiting)}, 503 if waiting else 200
        )

    return probe


def metrics(state: State) -> Probe:
    """Numbers alone: no names of topics, groups or people."""

    async def probe(request: Request) -> Response:
        lines = [f"pyromq_console_sessions {len(state.sessions)}"]
        if state.alerts is not None:
            lines.append(f"pyromq_console_alerts_sent_total {state.alerts.sent}")
            lines.append(f"pyromq_console_alerts_dropped_total {state.alerts.dropped}")
        for name, shown in state.clusters.items():
            snapshot, label = shown.snapshot, f'{{cluster="{name}"}}'
            age_s = max(0, state.clock.now_ms() - snapshot.at_ms) / 1000 if snapshot.at_ms else float("nan")
            lines += [
                f"pyromq_console_questions_total{label} {shown.watch.asked}",
                f"pyromq_console_snapshot_age_seconds{label} {age_s}",
                f"pyromq_console_brokers{label} {len(snapshot.brokers)}",
                f"pyromq_console_brokers_silent{label} {len(snapshot.silent)}",
                f"pyromq_console_topics{label} {len(snapshot.topics)}",
                f"pyromq_console_groups{label} {len(snapshot.groups)}",
                f"pyromq_console_problems{label} {len(snapshot.problems)}",
            ]
        return PlainTextResponse("\n".join(lines) + "\n")

    return probe
