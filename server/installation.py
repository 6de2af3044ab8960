"""Where tritonserver is, and what it needs around it to run.

NVIDIA's container brings a complete one. The one inside the wheel `nvidia-pytriton` lacks its Python backend's layout, its
libraries' path and libpython; all of that is made up for here. Triton has to run in PACKAGE_ROOT: models then find our
packages, whether their stub honours PYTHONPATH or, as the wheel's, only looks in its working folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from server.assets.cache import cache_folder

PACKAGE_ROOT = Path(__file__).parents[1]
PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
BACKEND_LIBRARY = "libtriton_python.so"
BACKEND_HELPER = "triton_python_backend_utils.py"
BACKEND_STUB = "triton_python_backend_stub"


class LaunchError(Exception):
    """Triton cannot be started. ``reason`` is a stable UPPER_SNAKE word; the message says what to do about it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Installation:
    """A tritonserver binary, the arguments it needs to find its backends, and the variables to set around it."""

    binary: Path
    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()


def find_installation(binary: Path | None = None, environment: Mapping[str, str] = os.environ) -> Installation:
    """Return `binary`, else the tritonserver on PATH or of NVIDIA's container, else the one inside nvidia-pytriton.

    Raises:
        LaunchError: TRITON_MISSING, LIBPYTHON_MISSING or STUB_MISSING.
    """
    if binary and not binary.is_file():
        raise LaunchError("TRITON_MISSING", f"{binary} is not a file")
    wheel = _find_wheel()
    found = binary or _find_system_binary(environment)
    if found and not (wheel and found.resolve().is_relative_to(wheel.resolve())):
        return _describe_system(found.absolute(), environment)
    if wheel:
        return _describe_wheel(wheel, environment)
    raise LaunchError(
        "TRITON_MISSING",
        f"no tritonserver on PATH or at {CONTAINER_BINARY}: run in NVIDIA's Triton container, or pip install nvidia-pytriton",
    )


def libpython_folders() -> list[Path]:
    """Return the folders where this interpreter's own libpython, then the system's, may lie."""
    own = [Path(sysconfig.get_config_var("LIBDIR") or ""), Path(sys.base_prefix, "lib")]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    return [*own, Path("/usr/lib", multiarch), Path("/usr/lib64"), Path("/usr/lib"), Path("/usr/local/lib")]


def find_libpython(folders: Iterable[Path], version: str = PYTHON_VERSION) -> Path:
    """Return the first folder that holds the shared library of Python `version`, to which the stub is linked.

    Raises:
        LaunchError: LIBPYTHON_MISSING; the message names the package to install.
    """
    library = f"libpython{version}.so.1.0"
    searched = list(dict.fromkeys(folders))
    for folder in searched:
        if (folder / library).exists():
            return folder
    raise LaunchError(
        "LIBPYTHON_MISSING",
        f"{library} is not in {', '.join(map(str, searched))}. Install it: Debian and Ubuntu `apt-get install "
        f"libpython{version}`, Fedora `dnf install python{version}-libs`; a Python of pyenv has to be built again "
        "with PYTHON_CONFIGURE_OPTS=--enable-shared",
    )


def keep_backend(wheel: Path, cache: Path, version: str = PYTHON_VERSION) -> Path:
    """Return a backend directory for the wheel's Python backend and the stub of Python `version`, making it if need be.

    It is named after its contents and renamed into `cache` when complete, so any number of launchers may share it.

    Raises:
        LaunchError: STUB_MISSING; the wheel was not built for this Python.
    """
    stub = wheel / "python_backend_stubs" / version / BACKEND_STUB
    if not stub.exists():
        raise LaunchError("STUB_MISSING", f"nvidia-pytriton has no stub for Python {version}: use Python 3.11 or 3.12")
    sources = [stub, *(wheel / "backends/python" / name for name in (BACKEND_LIBRARY, BACKEND_HELPER))]
    files = {source.name: source.read_bytes() for source in sources}
    target = cache / f"backends-{hashlib.sha256(b''.join(files.values())).hexdigest()[:16]}"
    if not target.exists():
        _write_backend(target, files)
    return target


def _write_backend(target: Path, files: Mapping[str, bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        folder = Path(work, "backends", "python")
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / BACKEND_STUB).chmod(0o755)
        try:
            folder.parent.rename(target)
        except OSError:
            # Another launcher was faster; its files are the same.
            if not target.exists():
                raise


def _find_system_binary(environment: Mapping[str, str]) -> Path | None:
    if on_path := shutil.which("tritonserver", path=environment.get("PATH")):
        return Path(on_path)
    return CONTAINER_BINARY if CONTAINER_BINARY.exists() else None


def _find_wheel() -> Path | None:
    # Not imported: pytriton pulls in a server framework of its own, of which nothing is used here.
    package = find_spec("pytriton")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "tritonserver"


def _describe_system(binary: Path, environment: Mapping[str, str]) -> Installation:
    return Installation(binary, {"PYTHONPATH": _prepend([PACKAGE_ROOT], environment.get("PYTHONPATH"))})


def _describe_wheel(wheel: Path, environment: Mapping[str, str]) -> Installation:
    backends = keep_backend(wheel, cache_folder(environment) / "triton")
    libraries = [find_libpython(libpython_folders()), wheel.parents[1] / "nvidia_pytriton.libs"]
    variables = {
        "LD_LIBRARY_PATH": _prepend(libraries, environment.get("LD_LIBRARY_PATH")),
        # This stub ignores PYTHONPATH. It takes site-packages, and sys.executable, from the first python3 on PATH.
        "PATH": _prepend([Path(sys.executable).parent], environment.get("PATH")),
    }
    return Installation(wheel / "bin/tritonserver", variables, (f"--backend-directory={backends}",))


def _prepend(folders: Iterable[Path], inherited: str | None) -> str:
    paths = [*map(str, folders), *filter(None, (inherited or "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))
