"""Apache RocketMQ, rebuilt in Python."""


def __getattr__(name: str) -> str:
    """The version is looked up when someone asks: reading package metadata takes longer than all the rest."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("pyromq")
        except PackageNotFoundError:  # run from a source tree that was never installed
            return "0+unknown"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
