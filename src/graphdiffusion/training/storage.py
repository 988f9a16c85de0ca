"""Files of a run, written so that a kill at any moment leaves either the old file or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import DataError


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a neighbour, flush it to disk, and move it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(path.name + ".part")
    with open(neighbour, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(neighbour, path)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}.") from None


def write_tensors(path: Path, tensors: dict[str, Tensor], note: Any = None) -> None:
    """Tensors as safetensors, with a JSON note in the header. The same input gives the same bytes."""
    ready = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    write_bytes(path, save(ready, {"note": json.dumps(note, sort_keys=True)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Tensors and note; nothing is unpickled."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads((file.metadata() or {}).get("note", "null"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as safetensors: {error}.") from None


def append_line(path: Path, content: dict[str, Any]) -> None:
    """One JSON line at the end of a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole JSON lines of a file; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
