"""URIs of object stores, and the settings that each library gets for them."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")

from pyarrow import fs

from pyromq import object_stores as places
from pyromq.errors import ConfigError
from pyromq.spark import object_stores

SECRET = "a-secret-that-nobody-prints"
ENDPOINT = "http://127.0.0.1:9000"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    names = ("REGION", "DEFAULT_REGION", "ENDPOINT_URL", "ENDPOINT_URL_S3", "ALLOW_HTTP", "SESSION_TOKEN")
    for name in names:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return monkeypatch


@pytest.mark.parametrize("place", ["s3://bucket/a", "s3a://bucket/a"])
def test_a_server_of_ones_own_is_told_to_every_library_and_no_key_is(
    place: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    environment.setenv("AWS_ENDPOINT_URL_S3", ENDPOINT)
    delta, iceberg = object_stores.delta_options(place), object_stores.iceberg_properties(place)
    hadoop = object_stores.hadoop_settings()
    assert delta == {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    assert iceberg == {"s3.endpoint": ENDPOINT, "s3.region": "us-east-1"}
    assert hadoop == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": ENDPOINT,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    files, path = object_stores.arrow_files(place)
    assert isinstance(files, fs.S3FileSystem)
    assert path == "bucket/a"
    store = places.object_store(place, "journal")
    for shown in (delta, iceberg, hadoop, store, files):
        assert SECRET not in repr(shown)


def test_without_an_endpoint_everything_is_left_to_the_libraries(environment: pytest.MonkeyPatch) -> None:
    assert object_stores.delta_options("s3://bucket/a") == {}
    assert object_stores.iceberg_properties("s3a://bucket/a") == {}
    environment.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert object_stores.delta_options("s3://bucket/a") == {"AWS_REGION": "eu-central-1"}
    for place in ("gs://bucket/a", "/a", "hdfs://node/a"):
        assert object_stores.delta_options(place) == {}
        assert object_stores.iceberg_properties(place) == {}


def test_accounts_of_azure_are_in_the_uri_and_their_keys_in_the_environment(
    environment: pytest.MonkeyPatch,
) -> None:
    place = "abfss://container@account.dfs.core.windows.net/a"
    environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert object_stores.iceberg_properties(place) == {
        "adls.account-name": "account",
        "adls.account-key": "a2V5",
    }
    assert "a2V5" not in repr(places.object_store(place, "lake"))
    files, path = object_stores.arrow_files(place)
    assert isinstance(files, fs.AzureFileSystem)
    assert path == "container/a"


def test_plain_http_to_other_machines_is_refused_unless_it_is_allowed(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://store.example:9000")
    with pytest.raises(ConfigError, match=r"AWS_ENDPOINT_URL=http://store.example:9000.*https"):
        object_stores.delta_options("s3://bucket/a")
    environment.setenv("AWS_ALLOW_HTTP", "true")
    assert object_stores.delta_options("s3://bucket/a")["AWS_ALLOW_HTTP"] == "true"
    environment.setenv("AWS_ENDPOINT_URL", "https://store.example")
    assert "AWS_ALLOW_HTTP" not in object_stores.delta_options("s3://bucket/a")


@pytest.mark.parametrize(
    "place", ["s3://", "s3a:///a", "gs://", "abfss://container/a", "abfss://@account.dfs/a", "abfs://c@/a"]
)
def test_a_uri_without_a_bucket_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=r"lake=.*expected"):
        places.checked(place)


def test_a_key_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        places.checked(f"s3://key:{SECRET}@bucket/a")
    assert SECRET not in str(refused.value)


def test_places_keep_their_form() -> None:
    for place in (
        "s3://b/a",
        "s3a://b/a",
        "gs://b/a",
        "abfss://c@a.dfs.core.windows.net/a",
        "hdfs://n/a",
        "/a",
    ):
        assert places.checked(f"{place}/") == place
        assert places.is_object_store(place) is (place[0] in "sga")


def test_spark_fetches_its_way_to_s3_only_if_it_has_none(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "hadoop-client-api-3.5.0.jar").touch()
    environment.setenv("SPARK_HOME", str(tmp_path))
    wanted = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}
    assert object_stores.hadoop_packages(["/a", "s3a://b/a"]) == wanted
    assert object_stores.hadoop_packages(["/a", "gs://b/a"]) == {}
    (jars / "hadoop-aws-3.5.0.jar").touch()
    assert object_stores.hadoop_packages(["s3://b/a"]) == {}
