"""The operators as ``torch.library`` knows them, for ``torch.compile`` and ``torch.export``.

What these trace sees a graph as the list of its index tensors, and an operator as one opaque call with the
same derivative rules. Called eagerly, an operator gets the :class:`~graphdiffusion.pattern.Pattern` itself
and does not pass through ``torch.library``, whose calls cost more than a small product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.weak import WeakTensorKeyDictionary

from ..errors import ArgumentError
from ..partition.part import Part
from ..pattern import Pattern
from .transforms import Operator

Places = Pattern | list[Tensor]

_INDICES = ("row", "col", "rowptr", "perm", "colptr")

# What was derived from the index tensors of a pattern, for as long as its first tensor lives.
_derived: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def places(pattern: Pattern) -> Places:
    """The pattern as operators take it: itself, or its index tensors where the call is traced."""
    if not torch.compiler.is_compiling():
        return pattern
    if isinstance(pattern, Part):
        raise ArgumentError(f"{pattern} cannot be compiled or exported, since parts exchange rows.")
    if torch._C._are_functorch_transforms_active():
        # torch.library has no forward mode (it would give zeros) and no torch.func.grad
        raise ArgumentError(
            "the operators of graphdiffusion cannot be compiled or exported together with a transform of "
            "torch.func: compile or export the function itself, and transform it eagerly."
        )
    return [pattern.row, pattern.col, pattern.rowptr, pattern.perm, pattern.colptr]


def as_pattern(places: Places) -> Pattern:
    """The pattern of index tensors; what is derived from it is kept from one call to the next."""
    if isinstance(places, Pattern):
        return places
    row, _, rowptr, _, colptr = places
    derived = _derived.setdefault(row, {})
    indices = dict(zip(_INDICES, places, strict=True))
    return Pattern(rows=len(rowptr) - 1, cols=len(colptr) - 1, derived=derived, **indices)


def library(schema: str, fake: Callable[..., Any]) -> Callable[[type[Operator]], type[Operator]]:
    """Decorator: give an operator a name in ``torch.library``.

    Args:
        schema: Name, the arguments after the pattern, and results.
        fake: Gives empty tensors of the shapes and types of the results.
    """
    name, _, signature = schema.partition("(")

    def register(operator: type[Operator]) -> type[Operator]:
        def kernel(places: list[Tensor], *args: Any) -> Any:
            if forward_ad._current_level >= 0:  # torch.library would drop the tangents
                raise ArgumentError(
                    f"graphdiffusion::{name} has no forward-mode derivative where it is compiled or "
                    "exported: differentiate the function itself, eagerly."
                )
            found = operator.forward(as_pattern(places), *args)
            # fresh and contiguous, as torch.library and the fake tensors have it
            return found.contiguous() if isinstance(found, Tensor) else tuple(t.contiguous() for t in found)

        def backward(ctx: Any, *grads: Tensor) -> Any:
            _, *found = operator.backward(ctx, *grads)
            return [None] * len(_INDICES), *found

        full = f"(Tensor[] places, {signature}"
        known = torch.library.custom_op(f"graphdiffusion::{name}", kernel, mutates_args=(), schema=full)
        known.register_fake(fake)
        known.register_autograd(backward, setup_context=operator.setup_context)

        def traced(*args: Any) -> Any:
            return known(*args)

        operator.traced = staticmethod(traced)  # a form that torch.compile can call on the class
        return operator

    return register


def run(operator: type[Operator], places: Places, *args: Any) -> Any:
    """An operator on a pattern, or on the index tensors of one."""
    if isinstance(places, Pattern):
        return operator.apply(places, *args)
    return operator.traced(places, *args)
