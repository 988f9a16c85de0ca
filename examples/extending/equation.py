"""An equation of second order: features oscillate on the graph like a damped string.

grand train cora-embedded --plugin examples/extending/equation.py --equation example --solver rk4
"""

import torch
from torch import Tensor

from graphdiffusion.diffusivity import Diffusivity
from graphdiffusion.equation import EQUATIONS, Coefficient, Context, Equation


@EQUATIONS.register("example")
class DampedWave(Equation):
    r"""Damped waves with A from x(t), which start at rest.

    .. math:: \ddot x = \alpha(A - I)x - \delta\dot x

    The state is (x, v) side by side. It is made of the features by :meth:`lift`, and :meth:`read` gives the
    features back. Ordinary schemes see one tensor; a partitioned scheme asks for :meth:`parts`.

    Args:
        diffusivity: Gives the matrix A.
        alpha: The square of the speed of waves.
        damping: Start of δ, which is learnt.
    """

    members = True
    given = ("alpha",)

    def __init__(
        self, diffusivity: Diffusivity, alpha: float | Coefficient = 1.0, damping: float = 1.0
    ) -> None:
        super().__init__()
        self.diffusivity, self.damping = diffusivity, Coefficient(damping)
        self.alpha = alpha if isinstance(alpha, Coefficient) else Coefficient(alpha, learn=False)

    def lift(self, x0: Tensor) -> Tensor:
        return torch.cat([x0, torch.zeros_like(x0)], -1)

    def read(self, state: Tensor) -> Tensor:
        return state[..., : state.shape[-1] // 2]

    def parts(self, channels: int) -> tuple[slice, slice]:
        return slice(channels // 2), slice(channels // 2, channels)

    def derivative(self, context: Context) -> Tensor:
        x, v = context.x.chunk(2, -1)
        change = self.diffusivity.diffuse(context.graph, x, context.mask, context.t)
        return torch.cat([v, self.alpha(context.t) * change - self.damping(context.t) * v], -1)

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        return torch.maximum(self.alpha.largest(reach), self.damping.largest(reach))

    def learns_rate(self) -> bool:
        return True
