"""Files of runs and searches: complete and unchanged, or refused with a sentence.

JSON documents and tensors carry what they are and a checksum; readers verify both. A checksum finds damage
and edits by hand, not forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import DataError
from ..files import write_bytes

MEND = "put the original back, or start again in another folder"


def dumps(content: Any, **how: Any) -> str:
    """Valid JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_plain(content), allow_nan=False, **how)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(own) for own in value]
    return value


def digest(content: Any) -> str:
    """SHA-256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, kind: str, content: Mapping[str, Any], indent: int | None = 2) -> None:
    """A JSON document that says what it is, with a checksum; without ``indent`` on one line."""
    body = json.loads(dumps({"kind": kind, **content}))
    write_bytes(path, (dumps(body | {"checksum": digest(body)}, indent=indent) + "\n").encode())


def read_json(path: Path, kind: str, mend: str = MEND) -> dict[str, Any]:
    """What :func:`write_json` wrote; ``mend`` is the way out in messages."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): {mend}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}): {mend}.") from None
    _check_seal(path, kind, body, mend)
    found = body.pop("checksum")
    if found != digest(body):
        raise DataError(f"{path} was changed or damaged after it was written: {mend}.")
    del body["kind"]
    return body


def _check_seal(path: Path, kind: str, body: Any, mend: str) -> None:
    if not isinstance(body, dict) or not isinstance(body.get("checksum"), str):
        raise DataError(
            f"{path} has no checksum, so this version of graphdiffusion did not write it: {mend}."
        )
    if body.get("kind") != kind:
        raise DataError(f"{path} does not hold what it should ({kind}), but something else: {mend}.")


def write_tensors(path: Path, kind: str, tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
    """Tensors as safetensors, with a JSON note and a checksum. The same input gives the same bytes."""
    ready = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    head = json.loads(dumps({"kind": kind, "note": note}))
    head["checksum"] = tensor_digest(ready, digest(head))
    # one entry: safetensors writes several in any order
    write_bytes(path, save(ready, {"graphdiffusion": dumps(head, sort_keys=True)}))


def read_tensors(path: Path, kind: str, mend: str = MEND) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and note; nothing is unpickled."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            head = json.loads((file.metadata() or {}).get("graphdiffusion", "null"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {mend}.") from None
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        raise DataError(f"{path} cannot be read as safetensors ({error}): {mend}.") from None
    _check_seal(path, kind, head, mend)
    found = head.pop("checksum")
    if found != tensor_digest(tensors, digest(head)) or not isinstance(head.get("note"), dict):
        raise DataError(f"{path} was changed or damaged after it was written: {mend}.")
    return tensors, head["note"]


def tensor_digest(tensors: Mapping[str, Tensor], head: str = "") -> str:
    """SHA-256 of names, dtypes, shapes and bytes."""
    found = hashlib.sha256(head.encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def check_tensors(
    path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], mend: str = MEND
) -> None:
    """Refuse tensors that are missing or too many, or of another shape or dtype than ``wanted``."""
    for name in sorted({*found, *wanted}):
        if name not in found:
            raise DataError(f"{path} lacks the tensor {name}: {mend}.")
        if name not in wanted:
            raise DataError(f"{path} holds a tensor {name}, which the model does not have: {mend}.")
        own, like = found[name], wanted[name]
        if (own.shape, own.dtype) != (like.shape, like.dtype):
            raise DataError(
                f"the tensor {name} in {path} is {_form(own)}, where the model has {_form(like)}: {mend}."
            )


def check_finite(path: Path, tensors: Mapping[str, Tensor], mend: str = MEND) -> None:
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DataError(f"the tensor {name} in {path} holds NaN or infinity: {mend}.")


def _form(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
