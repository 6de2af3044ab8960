"""Fetch a repository in OpenVINO format from Hugging Face; run as a process of its own by `server.assets.fetch`.

    python -m server.assets.hub ORG/NAME FOLDER     fills FOLDER and prints the commit it took

Endpoint, token and offline mode are those of `huggingface_hub` (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.utils.tqdm import disable_progress_bars

# Other formats of the same weights often lie beside the OpenVINO one.
WANTED = ["openvino_*", "*.json", "*.jinja", "*.txt", "LICENSE*"]


def download_snapshot(repository: str, folder: Path) -> str:
    """Put the repository's newest files into `folder` and return their commit, a hash in hexadecimal."""
    downloads = folder / ".hub"
    snapshot = Path(snapshot_download(repository, cache_dir=downloads, allow_patterns=WANTED))
    for path in snapshot.iterdir():
        # A snapshot holds links to files named after their hash; subfolders carry other variants of the model.
        if path.is_file():
            path.resolve().rename(folder / path.name)
    shutil.rmtree(downloads)
    return snapshot.name


def main(argv: Sequence[str]) -> int:
    repository, folder = argv
    disable_progress_bars()
    print(download_snapshot(repository, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
