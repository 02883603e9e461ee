"""Object stores: how Spark and its libraries get there. `pyromq.object_stores` knows where a URI leads."""

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyromq.object_stores import AZURE, S3, container_of, s3_access

if TYPE_CHECKING:
    from pyarrow import fs

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def delta_options(uri: str) -> dict[str, str]:
    """Storage options, as delta-rs calls them. It writes its log with conditional writes, too."""
    if urlsplit(uri).scheme not in S3:
        return {}
    access = s3_access()
    named = {"AWS_ENDPOINT_URL": access.endpoint, "AWS_REGION": access.region}
    named["AWS_ALLOW_HTTP"] = "true" if access.is_plain_http else None
    return {name: value for name, value in named.items() if value is not None}


def iceberg_properties(uri: str) -> dict[str, str]:
    """Properties of a FileIO, as pyiceberg calls them."""
    parts = urlsplit(uri)
    named: dict[str, str | None] = {}
    if parts.scheme in S3:
        access = s3_access()
        named = {"s3.endpoint": access.endpoint, "s3.region": access.region}
    elif parts.scheme in AZURE:
        named = {f"adls.{name.replace('_', '-')}": value for name, value in _azure_keys().items()}
        named["adls.account-name"] = container_of(parts)[1]
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
        access = s3_access()
        scheme, _, address = (access.endpoint or "https://").partition("://")
        return fs.S3FileSystem(endpoint_override=address or None, region=access.region, scheme=scheme), path
    if parts.scheme in AZURE:
        container, account = container_of(parts)
        return fs.AzureFileSystem(account, **_azure_keys()), f"{container}{parts.path}"
    found, root = fs.FileSystem.from_uri(place)
    return found, root


def hadoop_settings() -> dict[str, str]:
    """Spark's own settings for `s3://` and `s3a://`; its own chain finds the keys in the environment."""
    access = s3_access()
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
