"""A standalone Spark cluster from the installed package: a master and workers, each a process of its own."""

import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pyspark
from tests.support.quick_jvm import QUICK_JVM

from pyromq.spark.session import prepare_environment

START_TIMEOUT_S = 300.0

_MASTER_READY = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_READY = re.compile(r"Successfully registered with master")


class _Daemon:
    """One of Spark's own programs; its log tells when it is ready."""

    def __init__(self, main: str, arguments: list[str], ready: re.Pattern[str], log: Path) -> None:
        self._ready = ready
        self._log = log
        self._is_ready = threading.Event()
        self.found: str | None = None
        home = Path(pyspark.__file__).parent
        chosen = {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=log.parent,
            env=os.environ | chosen,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._log.open("w") as log, self._process.stderr as lines:
            for line in lines:
                log.write(line)
                log.flush()
                if self.found is None and (match := self._ready.search(line)):
                    self.found = match[match.lastindex or 0]
                    self._is_ready.set()
        self._is_ready.set()

    def wait(self) -> str:
        if not self._is_ready.wait(START_TIMEOUT_S) or self.found is None:
            raise AssertionError(f"Spark did not start:\n{self._log.read_text()[-4000:]}")
        return self.found

    def kill(self) -> None:
        """SIGKILL, for it and the executors it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()


class SparkCluster:
    """`with SparkCluster(directory, workers=2) as cluster: session(master=cluster.master)`"""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        self._count = workers
        self._daemons: list[_Daemon] = []
        self.workers: list[_Daemon] = []
        self.master = ""

    def __enter__(self) -> "SparkCluster":
        prepare_environment()
        local = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        try:
            master = self._start("master.Master", local, _MASTER_READY, "master.log")
            self.master = master.wait()
            size = ["--cores", "1", "--memory", "600m"]
            for number in range(self._count):
                place = ["--work-dir", str(self._directory / f"work-{number}")]
                arguments = [*local, *size, *place, self.master]
                log = f"worker-{number}.log"
                self.workers.append(self._start("worker.Worker", arguments, _WORKER_READY, log))
            for worker in self.workers:
                worker.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()

    def _start(self, main: str, arguments: list[str], ready: re.Pattern[str], log: str) -> _Daemon:
        daemon = _Daemon(main, arguments, ready, self._directory / log)
        self._daemons.append(daemon)
        return daemon
