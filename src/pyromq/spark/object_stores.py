"""Object stores: where a URI leads, and how each library gets there.

Only this file knows. Endpoints, regions and credentials come from the environment, by the names that the
stores' own tools use. Keys of S3 and Google are not even read here: each library finds them itself, or those
of an instance's role. So no key is in a setting of Spark, in a log, or in the text of an error.
"""

import os
import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyarrow import fs

S3: Final = frozenset({"s3", "s3a"})
GOOGLE: Final = frozenset({"gs"})
AZURE: Final = frozenset({"abfs", "abfss"})
SCHEMES: Final = S3 | GOOGLE | AZURE

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
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
        if not parts.netloc or (parts.scheme in AZURE and not all(_container(parts))):
            shape = "container@account.dfs.core.windows.net" if parts.scheme in AZURE else "bucket"
            raise ConfigError(option, place, f"{parts.scheme}://{shape}/path")
    return place.rstrip("/")


class _S3Access(NamedTuple):
    endpoint: str | None
    region: str | None
    is_plain_http: bool


def _s3_access() -> _S3Access:
    given = os.environ.get
    endpoint = given("AWS_ENDPOINT_URL_S3") or given("AWS_ENDPOINT_URL")
    region = given("AWS_REGION") or given("AWS_DEFAULT_REGION") or (_DEFAULT_REGION if endpoint else None)
    is_plain = endpoint is not None and urlsplit(endpoint).scheme == "http"
    if is_plain and not (_is_local(endpoint or "") or (given("AWS_ALLOW_HTTP") or "").lower() == "true"):
        raise ConfigError(
            "AWS_ENDPOINT_URL", endpoint, "an https address, or AWS_ALLOW_HTTP=true: others could read along"
        )
    return _S3Access(endpoint, region, is_plain)


def _is_local(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _container(parts: SplitResult) -> tuple[str, str]:
    """The container and the account of `container@account.dfs.core.windows.net`."""
    container, _, host = parts.netloc.partition("@")
    return container, host.partition(".")[0]


def object_store(uri: str, option: str) -> "ObjectStore":
    """For conditional writes, which Arrow does not have."""
    try:
        from obstore.store import from_url
    except ImportError:
        needed = "a directory, or pip install 'pyromq[object-store]' on the driver and on every executor"
        raise ConfigError(option, uri, needed) from None
    options: dict[str, Any] = {}
    if urlsplit(uri).scheme in S3:
        access = _s3_access()
        named = {"endpoint": access.endpoint, "region": access.region}
        options = {name: value for name, value in named.items() if value is not None}
        if access.is_plain_http:
            options["client_options"] = {"allow_http": True}
    return from_url(uri, **options)


def delta_options(uri: str) -> dict[str, str]:
    """What delta-rs calls storage options. It writes its log with conditional writes, too."""
    if urlsplit(uri).scheme not in S3:
        return {}
    access = _s3_access()
    named = {"AWS_ENDPOINT_URL": access.endpoint, "AWS_REGION": access.region}
    named["AWS_ALLOW_HTTP"] = "true" if access.is_plain_http else None
    return {name: value for name, value in named.items() if value is not None}


def iceberg_properties(uri: str) -> dict[str, str]:
    """What pyiceberg calls properties of a FileIO."""
    parts = urlsplit(uri)
    named: dict[str, str | None] = {}
    if parts.scheme in S3:
        access = _s3_access()
        named = {"s3.endpoint": access.endpoint, "s3.region": access.region}
    elif parts.scheme in AZURE:
        named = {f"adls.{name.replace('_', '-')}": value for name, value in _azure_keys().items()}
        named["adls.account-name"] = _container(parts)[1]
    return {name: value for name, value in named.items() if value is not None}


def _azure_keys() -> dict[str, str | None]:
    """Everything else, such as AZURE_CLIENT_ID, the libraries find themselves."""
    given = os.environ.get
    key = given("AZURE_STORAGE_ACCOUNT_KEY") or given("AZURE_STORAGE_KEY")
    return {"account_key": key, "sas_token": given("AZURE_STORAGE_SAS_TOKEN")}


def arrow_files(place: str) -> "tuple[fs.FileSystem, str]":
    """For reading and listing; `place` is a path or a URI."""
    from pyarrow import fs  # Spark imports this file whenever it looks for sources

    parts = urlsplit(place)
    path = f"{parts.netloc}{parts.path}"
    if parts.scheme in S3:
        access = _s3_access()
        scheme, _, address = (access.endpoint or "https://").partition("://")
        return fs.S3FileSystem(endpoint_override=address or None, region=access.region, scheme=scheme), path
    if parts.scheme in AZURE:
        container, account = _container(parts)
        return fs.AzureFileSystem(account, **_azure_keys()), f"{container}{parts.path}"
    found, root = fs.FileSystem.from_uri(place)
    return found, root


def hadoop_settings() -> dict[str, str]:
    """What Spark itself needs for `s3://` and `s3a://`; its own chain finds the keys in the environment."""
    access = _s3_access()
    found = {"fs.s3.impl": _S3A}
    if access.endpoint is not None:
        found |= {"fs.s3a.endpoint": access.endpoint, "fs.s3a.path.style.access": "true"}
    if access.region is not None:
        found["fs.s3a.endpoint.region"] = access.region
    return {f"spark.hadoop.{name}": value for name, value in found.items()}


def hadoop_packages(places: Iterable[str]) -> dict[str, str]:
    """The setting with which Spark fetches what it needs for S3; empty if it needs nothing, or has it."""
    if not any(urlsplit(place).scheme in S3 for place in places):
        return {}
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    jars = os.listdir(os.path.join(home, "jars"))
    found = [match[1] for name in jars if (match := re.fullmatch(r"hadoop-client-api-(.+)\.jar", name))]
    if not found or any(name.startswith("hadoop-aws-") for name in jars):
        return {}
    return {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{found[0]}"}
