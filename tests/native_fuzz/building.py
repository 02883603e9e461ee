"""The compiled modules once more, under AddressSanitizer and UndefinedBehaviorSanitizer.

They are in build/native-fuzz. libFuzzer follows the coverage that clang adds to compiled code. Without clang
or atheris nothing can be fuzzed: `Unavailable` says what is missing.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DIRECTORY: Final = ROOT / "build" / "native-fuzz"
BUILT: Final = DIRECTORY / "built"
_SOURCE: Final = DIRECTORY / "native"
_SANITIZERS: Final = (
    "-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined"
    # Cython's own wrappers add 0 to a null pointer.
    " -fno-sanitize=pointer-overflow"
)
_PACKAGES: Final = ("clang-14", "libclang-rt-14-dev", "llvm-14")
_TIMEOUT_S: Final = 1800


class Unavailable(Exception):
    """Something is missing; the text says what."""


def clang() -> str:
    for name in ("clang-14", "clang", *(f"clang-{version}" for version in range(15, 22))):
        if (found := shutil.which(name)) is not None:
            return found
    raise Unavailable(f"there is no clang: apt-get install --no-install-recommends {' '.join(_PACKAGES)}")


def install_clang() -> None:
    """By apt, if this is a machine where we may."""
    try:
        clang()
    except Unavailable:
        apt = shutil.which("apt-get")
        if apt is None or os.geteuid() != 0:
            raise
        install = [apt, "install", "-y", "--no-install-recommends", *_PACKAGES]
        for command in (install, [apt, "update"], install):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise Unavailable(f"{' '.join(install)}: {done.stderr.strip()[-300:]}") from None
        clang()


def _is_source(path: Path) -> bool:
    return path.suffix in (".pyx", ".pxd", ".pyi", ".py", ".toml", ".in", ".typed") or path.name == "LICENSE"


def build() -> None:
    """Only what has changed is built anew."""
    for name in ("atheris", "Cython"):
        if find_spec(name) is None:
            raise Unavailable(f"the package {name} is missing: pip install 'pyromq[fuzz]'")
    install_clang()
    native = ROOT / "native"
    source = {path.relative_to(native) for path in native.rglob("*") if _is_source(path)}
    for copied in [*_SOURCE.rglob("*")]:
        if _is_source(copied) and copied.relative_to(_SOURCE) not in source:
            copied.unlink()
            copied.with_suffix(".c").unlink(missing_ok=True)
    for each in source:
        found, copied = native / each, _SOURCE / each
        if not copied.exists() or copied.read_bytes() != found.read_bytes():
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, copied)
    compiler = clang()
    environment = os.environ | {
        # Only compiled with them: the runtime comes with atheris, before everything else.
        "CC": f"{compiler} {_SANITIZERS}",
        "LDSHARED": f"{compiler} -shared",
        "CFLAGS": "-g -fno-omit-frame-pointer",
    }
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-lib", str(BUILT)],
        cwd=_SOURCE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the compiled modules cannot be built with {compiler}:\n{done.stderr[-3000:]}")


def environment() -> dict[str, str]:
    """For a process that uses these modules."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    runtime = Path(atheris.path()) / "asan_with_fuzzer.so"
    if not runtime.exists():
        raise Unavailable(f"atheris came without {runtime}")
    symbolizer = shutil.which("llvm-symbolizer") or shutil.which("llvm-symbolizer-14") or ""
    return os.environ | {
        "LD_PRELOAD": str(runtime),
        "PYTHONPATH": os.pathsep.join((str(BUILT), str(ROOT))),
        "PYTHONMALLOC": "malloc",  # the sanitizer sees the bounds of every object
        "PYTHONHASHSEED": "0",
        "PYROMQ_NATIVE": "1",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "ASAN_SYMBOLIZER_PATH": symbolizer,
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
