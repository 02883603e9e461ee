"""Object stores: where a URI leads, and how obstore gets there.

Endpoints, regions and credentials come from the environment, by the names that the stores' own tools use.
Keys of S3 and Google are not even read here: the library finds them itself, or those of an instance's role.
So no key is in a setting, in a log, or in the text of an error.
"""

import os
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

S3: Final = frozenset({"s3", "s3a"})
GOOGLE: Final = frozenset({"gs"})
AZURE: Final = frozenset({"abfs", "abfss"})
SCHEMES: Final = S3 | GOOGLE | AZURE

_DEFAULT_REGION: Final = "us-east-1"
"""Servers of others want one as well; any will do."""


def is_object_store(place: str) -> bool:
    return urlsplit(place).scheme in SCHEMES


def checked(place: str, option: str = "lake") -> str:
    """A path, or the URI of a store that is known; without a slash at its end."""
    parts = urlsplit(place)
    if "://" not in place:
        return place.rstrip("/") or "/"
    if parts.scheme in SCHEMES:
        if parts.scheme not in AZURE and "@" in parts.netloc:
            # The value itself is a secret.
            raise ConfigError(option, f"{parts.scheme}://…@…", "a URI without a key: see AWS_ACCESS_KEY_ID")
        if not parts.netloc or (parts.scheme in AZURE and not all(container_of(parts))):
            shape = "container@account.dfs.core.windows.net" if parts.scheme in AZURE else "bucket"
            raise ConfigError(option, place, f"{parts.scheme}://{shape}/path")
    return place.rstrip("/")


class S3Access(NamedTuple):
    endpoint: str | None
    region: str | None
    is_plain_http: bool


def s3_access(own_endpoint: str | None = None) -> S3Access:
    given = os.environ.get
    endpoint = own_endpoint or given("AWS_ENDPOINT_URL_S3") or given("AWS_ENDPOINT_URL")
    region = given("AWS_REGION") or given("AWS_DEFAULT_REGION") or (_DEFAULT_REGION if endpoint else None)
    is_plain = endpoint is not None and urlsplit(endpoint).scheme == "http"
    if is_plain and not (_is_local(endpoint or "") or (given("AWS_ALLOW_HTTP") or "").lower() == "true"):
        raise ConfigError(
            "AWS_ENDPOINT_URL", endpoint, "an https address, or AWS_ALLOW_HTTP=true: others could read along"
        )
    return S3Access(endpoint, region, is_plain)


def _is_local(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def container_of(parts: SplitResult) -> tuple[str, str]:
    """The container and the account of `container@account.dfs.core.windows.net`."""
    container, _, host = parts.netloc.partition("@")
    return container, host.partition(".")[0]


def object_store(
    uri: str,
    option: str,
    needed: str = "pip install 'pyromq[object-store]' on the driver and on every executor",
    endpoint: str | None = None,
    retry_s: float | None = None,
) -> "ObjectStore":
    """For conditional writes, which Arrow does not have. `needed` says how to install the library, `retry_s`
    how long it tries again by itself."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigError(option, uri, f"a directory, or {needed}") from None
    options: dict[str, Any] = {}
    if retry_s is not None:
        options["retry_config"] = {"max_retries": 4, "retry_timeout": timedelta(seconds=retry_s)}
    if urlsplit(uri).scheme in S3:
        access = s3_access(endpoint)
        named = {"endpoint": access.endpoint, "region": access.region}
        options = {name: value for name, value in named.items() if value is not None}
        if access.is_plain_http:
            options["client_options"] = {"allow_http": True}
    return from_url(uri, **options)
