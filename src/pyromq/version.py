"""The version of PyroMQ, as it was installed."""

from functools import cache


@cache
def version() -> str:
    # Reading package metadata takes longer than all other imports.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyromq")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
