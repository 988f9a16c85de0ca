"""The sparse verbs: propagate, score, normalise, pool, and the sums over rows and columns behind them.

All take leading member dimensions: node fields ``(..., n, d)``, edge fields ``(..., E)``. Leading
dimensions broadcast, so one matrix may act on many states and many matrices on one state. They compute in
float32 and float64; the state x of :func:`propagate` and :func:`diffuse` may be bfloat16 beside float32
values, queries and keys: sums are then taken in float32, and the result is rounded. Under autocast, tensors
of half precision become float32, and so do the results.

All are differentiable twice and more, backward and forward, by ``torch.autograd`` and under ``torch.func``
(``grad``, ``vjp``, ``jvp``, ``jacfwd``, ``jacrev``, ``hessian``, ``vmap``, nested in any order): a mapped
dimension becomes a dimension of members, without a loop.

``torch.compile`` takes them without a graph break, and ``torch.export`` writes programs with them, which
need ``import graphdiffusion`` where they are loaded. A compiled or exported function can be differentiated
backward, not forward: an error says so. Transforms of ``torch.func`` cannot be compiled or exported, nor
applied to a compiled function: apply them to the function itself.
"""

from .backends import use_backend
from .states import combine
from .verbs import (
    Activation,
    Normaliser,
    Over,
    Side,
    attention,
    diffuse,
    group_sum,
    normalise,
    pool,
    propagate,
    score,
    sides,
    spread,
)

__all__ = [
    "Activation",
    "Normaliser",
    "Over",
    "Side",
    "attention",
    "combine",
    "diffuse",
    "group_sum",
    "normalise",
    "pool",
    "propagate",
    "score",
    "sides",
    "spread",
    "use_backend",
]
