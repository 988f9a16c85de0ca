"""What a CUDA graph cannot capture, found on a CPU: calls that read from the device or copy to it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
READS = {
    aten._local_scalar_dense,  # item(), float(), bool(), an if
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.repeat_interleave,
    aten.lift_fresh,  # torch.tensor() of numbers: a copy from the host
}
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}  # by booleans


class Unread(TorchDispatchMode):
    """Refuses to read from a tensor, and to make one of Python's numbers, as a CUDA graph does."""

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = call.overloadpacket
        assert kind not in READS, f"{call} reads from the device"
        if kind in INDEXED:
            booleans = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            assert not booleans, f"{call} by a boolean mask reads from the device"
        return call(*args, **kwargs or {})
