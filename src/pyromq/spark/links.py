"""The connections of Spark's drivers and tasks, as the options of a query want them."""

import atexit
import os

from pyromq.cluster.signing import signers
from pyromq.errors import ConfigError
from pyromq.remoting.blocking_link import LinkOptions, Links
from pyromq.remoting.tls import TlsClient, TlsOptions
from pyromq.spark.options import Access

_POOLED_BYTES = 64 * 1024

_links: dict[tuple[int, Access], Links] = {}


def link_options(access: Access) -> LinkOptions:
    return LinkOptions(
        timeout_ms=access.timeout_ms,
        tls=_tls(access),
        new_signer=signers(access.credentials),
        allocate=_allocate,
    )


def _tls(access: Access) -> TlsClient | None:
    tls = TlsOptions.chosen(access.tls, access.tls_ca_file)
    try:
        return None if tls is None else TlsClient(tls)
    except ConfigError as problem:
        # It has the name of the option for brokers and tools.
        raise ConfigError("tlsCaFile", access.tls_ca_file, problem.expected) from None


def links_of_this_worker(access: Access) -> Links:
    """Python workers live on from task to task, and so do their connections."""
    key = (os.getpid(), access)
    if key not in _links:
        _links[key] = Links(link_options(access))
    return _links[key]


@atexit.register
def close_links() -> None:
    while _links:
        _links.popitem()[1].close()


def _allocate(size_bytes: int) -> memoryview:
    if size_bytes < _POOLED_BYTES:
        return memoryview(bytearray(size_bytes))
    # Arrow's allocator keeps large blocks at hand; Python's returns them and gets fresh pages each time.
    # Imported here: a driver that only plans needs none of it.
    from pyarrow import allocate_buffer

    return memoryview(allocate_buffer(size_bytes)).cast("B")
