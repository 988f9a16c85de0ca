"""What a GPU refuses, found on a CPU: calls that read from the device in a capture, and mixed devices."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphdiffusion.ops import torch as torch_backend

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


COPIES = {aten._to_copy, aten.copy_, aten.copy}


class Apart(TorchDispatchMode):
    """Refuses a call that takes tensors of a CPU and gives one of the device meta.

    A GPU takes some of them, as an index or a copy: it copies from the host and waits, which a CUDA graph
    does not. A single number of a CPU is an argument of its kernels, and may be mixed, but not copied.
    """

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = call(*args, **kwargs or {})
        given = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        if any(v.device.type == "meta" for v in tree_leaves((given, found)) if isinstance(v, torch.Tensor)):
            least = 0 if call.overloadpacket in COPIES else 1
            mixed = [v for v in given if v.device.type != "meta" and v.dim() >= least]
            assert not mixed, f"{call} copies from a CPU to the device"
        return found


def elsewhere(value: Any) -> Any:
    """A deep copy on the device meta, which refuses to be mixed with tensors of a CPU, as a GPU does.

    It has shapes and no numbers: an attempt to read one is an error.
    """

    def copied(own: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if id(own) not in memo:
            bare = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device="meta")
            if isinstance(own, torch.nn.Parameter):
                bare = torch.nn.Parameter(bare, requires_grad=own.requires_grad)
            memo[id(own)] = bare.requires_grad_(own.requires_grad)
        return memo[id(own)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "__deepcopy__", copied)
        patch.setattr(torch.nn.Parameter, "__deepcopy__", copied)
        return deepcopy(value)


def without_numbers(patch: pytest.MonkeyPatch) -> None:
    """Kernels of stock torch that are products with CSR tensors, which the device meta does not have."""

    def spmm(graph: Any, values: Any, x: Any, add: Any = None, *, minus: Any = None) -> torch.Tensor:
        _together(graph.col, values, x, minus, *(add or ()))
        return x.new_empty(len(x), graph.rows, x.shape[-1])

    def sddmm(graph: Any, q: Any, k: Any, out: Any = None) -> torch.Tensor:
        _together(graph.col, q, k, out)
        return q.new_empty(len(q), graph.num_edges)

    def powers(graph: Any, values: Any, x: Any, count: int) -> torch.Tensor:
        _together(graph.col, values, x)
        return x.new_empty(count + 1, *x.shape)

    def horner(graph: Any, values: Any, c: Any, fields: Any, basis: Any = None, sampled: Any = None) -> Any:
        _together(graph.col, values, c, fields, basis)
        return torch.empty_like(fields[0]), None if basis is None else torch.empty_like(values)

    def pool(graph: Any, x: Any) -> torch.Tensor:
        _together(graph.col, x)
        return x.new_empty(len(x), graph.rows, x.shape[-1])

    for kernel in (spmm, sddmm, powers, horner, pool):
        patch.setattr(torch_backend, kernel.__name__, kernel)


def _together(*tensors: torch.Tensor | None) -> None:
    devices = {t.device.type for t in tensors if t is not None}
    assert devices == {"meta"}, f"a kernel got tensors of {devices}"
