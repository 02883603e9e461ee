"""`make dist`: build both distributions, then use them as a stranger would, with each Python that is there.

The sdists and wheels go to `dist/`; `make wheels` builds only the wheels. For each Python an empty
environment gets the wheels, and nothing of this source tree: it starts a cluster, sends and reads a message,
and runs the examples that end by themselves.

`dist/` also gets a list of everything that an installation consists of (CycloneDX), and `SHA256SUMS`.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = os.environ.get("PYTHONS", "python3.11 python3.12 python3.13 python3.14").split()
EXAMPLES = ("send.py", "send_async.py", "batch.py", "ordered.py", "transaction.py")


def main(*, only_wheels: bool) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    if only_wheels:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", str(DIST), str(ROOT))
        native = ROOT / "native"
    else:
        for source in (ROOT, ROOT / "native"):
            run(sys.executable, "-m", "build", "--outdir", str(DIST), str(source))
        native = next(DIST.glob("pyromq_native-*.tar.gz"))
    pythons = [found for name in PYTHONS if (found := usable(name))]
    for python in pythons:
        with tempfile.TemporaryDirectory(prefix="pyromq-dist-") as directory:
            tag = run(
                python, "-c", "import sys; print(f'cp{sys.version_info[0]}{sys.version_info[1]}')"
            ).strip()
            if not list(DIST.glob(f"pyromq_native-*-{tag}-*.whl")):
                pip(python, "wheel", "--no-deps", "-w", str(DIST), str(native))
            try_out(python, Path(directory))
    files = sorted(DIST.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    click.echo("\n  ".join([f"{DIST}:", *sorted(path.name for path in DIST.iterdir())]))
    missing = [name for name in PYTHONS if not usable(name)]
    click.echo(f"tried with {len(pythons)} Pythons; not installed here: {', '.join(missing) or 'none'}")


def usable(name: str) -> str | None:
    """The path of a Python that works; a launcher that knows no such version does not count."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}.*/bin/{name}"))
    for path in (shutil.which(name), *map(str, of_pyenv)):
        if path is not None:
            done = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
            if done.returncode == 0:
                return path
    return None


def try_out(python: str, directory: Path) -> None:
    run(python, "-m", "venv", "--without-pip", str(directory / "venv"))
    bin_ = directory / "venv" / "bin"
    pip(str(bin_ / "python"), "install", "--find-links", str(DIST), "pyromq", "pyromq-native")
    version = run(str(bin_ / "pyromq"), "version", cwd=directory)
    assert "compiled core: revision" in version, version
    if not list(DIST.glob("*.cdx.json")):
        name = next(DIST.glob("pyromq-*.whl")).name.split("-py3")[0]
        bill = ("--output-reproducible", "--of", "JSON", "-o", str(DIST / f"{name}.cdx.json"))
        run(sys.executable, "-m", "cyclonedx_py", "environment", *bill, str(bin_ / "python"))
    pyromq, examples = str(bin_ / "pyromq"), ROOT / "examples"
    cluster = subprocess.Popen(
        [
            pyromq,
            "standalone",
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--store",
            str(directory / "data"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=clean_environment(),
    )
    try:
        assert cluster.stdout is not None
        ready = cluster.stdout.readline()
        found = re.match(r"PyroMQ is ready: name server (\S+),", ready)
        assert found, ready
        namesrv = found[1]
        run(pyromq, "produce", "Hello", "-n", namesrv, cwd=directory, text="first message\n")
        read = run(pyromq, "consume", "Hello", "-n", namesrv, "-c", "1", cwd=directory)
        assert read == "first message\n", read
        for example in EXAMPLES:
            run(str(bin_ / "python"), str(examples / example), namesrv, cwd=directory)
    finally:
        cluster.terminate()
        assert cluster.wait(60) == 0
    click.echo(f"{python}: {version.splitlines()[0]}: a cluster, a message, {len(EXAMPLES)} examples")


def pip(python: str, *arguments: str) -> None:
    """Our own pip works for another Python: those that a system brings have none."""
    run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python, *arguments)


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command: str, cwd: Path = ROOT, text: str = "") -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=cwd, env=clean_environment(), check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main(only_wheels="--wheels" in sys.argv)
