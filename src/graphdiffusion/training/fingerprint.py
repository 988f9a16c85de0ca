"""What a run began with: its options and a digest of each part of its data, to notice any change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import MASKS
from ..errors import ConfigError, DataError
from .config import Config
from .storage import MEND, digest, read_json, tensor_digest, write_json

FORMAT = 5  # of run folders; raise it when older ones can no longer be read

# parts of the data, as messages name them, and the attributes that hold them
_PARTS = {
    "edges": ("edge_index",),
    "edge weights": ("edge_weight",),
    "edge attributes": ("edge_attr",),
    "features": ("x",),
    "feature names": ("feature_names",),
    "labels": ("y",),
    "class names": ("class_names",),
    "target names": ("target_names",),
    "split masks": MASKS,
    "node ids": ("node_ids",),
}


@dataclass(frozen=True)
class Fingerprint:
    """Options and data of a run, written when it begins.

    Attributes:
        options: All options of the configuration.
        plugins: Name and SHA-256 of the plug-ins that its classes come from.
        data: Size and SHA-256 of each part of the data, ``None`` for a part that it does not have.
    """

    options: dict[str, Any]
    plugins: list[dict[str, str]]
    data: dict[str, Any]

    @classmethod
    def of(cls, config: Config, data: Data, digests: dict[str, Any] | None = None) -> Fingerprint:
        """Of a run that begins; ``digests`` of the data where they are known already."""
        return cls(config.to_dict(), config.plugins, digests or data_digests(data))

    @classmethod
    def read(cls, folder: Path) -> Fingerprint:
        path = folder / "fingerprint.json"
        if not path.exists():
            raise DataError(
                f"{folder} has no fingerprint.json, so it cannot be told whether its data has changed "
                "(runs of version 0.1 have none): train again in another folder."
            )
        found = read_json(path, "fingerprint")
        if found.get("format") != FORMAT:
            raise DataError(f"{folder} was written by another version: train again in another folder.")
        parts: tuple[Any, ...] = tuple(found.get(key) for key in ("options", "plugins", "data"))
        options, plugins, data = parts
        known = isinstance(options, dict) and isinstance(data, dict) and _are_digests(data)
        if not known or not _are_plugins(plugins):
            raise DataError(f"{path} was not written by a training: {MEND}.")
        return cls(options, plugins, data)

    def write(self, folder: Path) -> None:
        content = {
            "format": FORMAT, "options": self.options, "plugins": self.plugins, "data": self.data,
        }  # fmt: skip
        write_json(folder / "fingerprint.json", "fingerprint", content)

    @property
    def run(self) -> str:
        """Identifies the run in its other files."""
        return digest([self.options, self.plugins, self.data])

    def check_options(self, config: Config, folder: Path) -> None:
        """Refuse a configuration that has been edited since the run began."""
        for name, value in config.to_dict().items():
            before = self.options.get(name)
            if value != before:
                raise ConfigError(
                    f"{folder}/config.toml says {name} = {value}, but the run began with {before}: "
                    "put the old value back, or start another run."
                )

    def matches(self, data: Data) -> bool:
        """Whether this is the data that the run began with."""
        return data_digests(data) == self.data

    def has_names(self, part: str, names: Sequence[str] | None) -> bool:
        """Whether these are the ``"class names"`` or ``"feature names"`` that the run began with."""
        return self.data[part] == (None if names is None else _list_digest(names))

    def check_data(self, data: Data, name: str, digests: dict[str, Any] | None = None) -> None:
        """Refuse data that has changed since the run began."""
        if parts := changed_parts(self.data, digests or data_digests(data)):
            raise DataError(
                f"the {parts} of {name} have changed since the run began: put the old data back, or train "
                "again in another folder (grand predict takes the new data with --data)."
            )


def changed_parts(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The parts in which two :func:`data_digests` differ; empty if they do not."""
    changed = [_change(part, before.get(part), now[part]) for part in now if now[part] != before.get(part)]
    return " and ".join(changed)


def data_digests(data: Data) -> dict[str, Any]:
    """Size and SHA-256 of each part of the data."""
    return {part: _digest(data, keys) for part, keys in _PARTS.items()}


def _change(part: str, before: Any, now: Any) -> str:
    """A part that has changed, with its sizes where they tell something."""
    sizes = [found["size"] if found else "none" for found in (before, now)]
    return part if sizes[0] == sizes[1] else f"{part} ({sizes[0]} then, {sizes[1]} now)"


def _are_plugins(found: Any) -> bool:
    """Whether this has the form of ``Config.plugins``."""
    return isinstance(found, list) and all(
        isinstance(entry, dict)
        and entry.keys() == {"name", "sha256"}
        and all(isinstance(text, str) for text in entry.values())
        for entry in found
    )


def _are_digests(data: Mapping[str, Any]) -> bool:
    """Whether this has the form of :func:`data_digests`."""
    kept = [found for found in data.values() if found is not None]
    return data.keys() == _PARTS.keys() and all(
        isinstance(found, dict)
        and found.keys() == {"size", "sha256"}
        and all(isinstance(text, str) for text in found.values())
        for found in kept
    )


def _list_digest(entries: Sequence[Any]) -> dict[str, str]:
    return {"size": str(len(entries)), "sha256": digest([str(entry) for entry in entries])}


def _digest(data: Data, keys: tuple[str, ...]) -> dict[str, str] | None:
    values = {key: data[key] for key in keys if data.get(key) is not None}
    if not values:
        return None
    first = next(iter(values.values()))
    if not isinstance(first, Tensor):
        return _list_digest(first)
    shape = first.shape[1:] if keys == ("edge_index",) else first.shape
    parts = {f"{key}/{name}": t for key, value in values.items() for name, t in _plain(value).items()}
    return {"size": " × ".join(map(str, shape)), "sha256": tensor_digest(parts)}


def _plain(value: Tensor) -> dict[str, Tensor]:
    """A dense or sparse tensor by tensors that have bytes."""
    if value.layout == torch.strided:
        return {"": value}
    rows = value if value.layout == torch.sparse_csr else value.coalesce().to_sparse_csr()
    shape = torch.tensor(rows.shape)
    return {
        "rows": rows.crow_indices(),
        "columns": rows.col_indices(),
        "values": rows.values(),
        "shape": shape,
    }
