"""What the benchmarks have in C: loadgen.c, compiled on first use into the cache directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("loadgen.c")


def loadgen() -> Path:
    """The compiled load generator; says how it was built when it had to be."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyromq"
    program = cache / f"loadgen-{digest}"
    if not program.exists():
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise SystemExit("the benchmarks need a C compiler: none is called cc; set CC")
        cache.mkdir(parents=True, exist_ok=True)
        half_built = program.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-o", str(half_built), str(SOURCE)]
        sys.stderr.write("building the load generator: " + " ".join(command) + "\n")
        subprocess.run(command, check=True)
        half_built.rename(program)
    return program


def run_loadgen(*options: str) -> dict[str, str]:
    """Run to its end; the key=value line it printed."""
    done = subprocess.run([str(loadgen()), *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"loadgen {' '.join(options)}: exit {done.returncode}: {done.stderr.strip()}")
    return dict(word.split("=", 1) for word in done.stdout.split())


class Responder:
    """loadgen's own trivial server: what the generator reaches when the server costs next to nothing."""

    def __init__(self, port: int, body_bytes: int) -> None:
        self.port = port
        self._process = subprocess.Popen(
            [str(loadgen()), "-m", "respond", "-P", str(port), "-b", str(body_bytes)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("the responder did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Responder:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
