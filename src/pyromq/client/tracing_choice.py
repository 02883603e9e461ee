"""Which clients make spans: those with `otel=True`, and all while the process is instrumented."""

is_instrumented = False


def is_traced(otel: bool) -> bool:
    return otel or is_instrumented
