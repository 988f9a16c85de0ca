"""Reactions: features change at every node by a law of their own while they diffuse."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from ..options import Bounds
from .coefficient import Coefficient
from .context import Context
from .term import OF_THE_FORMULA, TERMS, Term


class Reaction(Term, follows={"law": OF_THE_FORMULA}):
    r"""Base of the pointwise reactions of `"GREAD" <https://arxiv.org/abs/2211.14208>`_.

    The term is :math:`\beta\,\tanh r(x)`, or :math:`\beta\,r(x)` without saturation. β is learnt in (0, 1).
    Saturation keeps the zeros of r and its slopes there. The term is then at most β, so that no
    solution becomes infinite in finite time, and Lipschitz continuous: an explicit step is stable for a
    small enough τ, whatever the features are. It is not affine in x: there is no closed form, and the
    solver "auto" takes Dormand and Prince's scheme.

    Args:
        wide: Number of coefficients, one for each channel; ``None``: one for all (``coefficients``).
        reaction: Start of β, which is learnt in (0, 1).
        saturate: Pass r(x) through tanh.
    """

    members = capturable = takes_parts = True
    given = ("wide",)
    per_member = ("reaction",)

    def __init__(
        self,
        wide: int | None = None,
        *,
        reaction: Annotated[float, Bounds(1e-6, 0.999)] = 0.1,
        saturate: bool = True,
    ) -> None:
        super().__init__()
        self.beta = Coefficient(reaction, bounded=True, channels=wide)
        self.saturate = saturate

    def law(self, x: Tensor) -> Tensor:
        """r(x), entry by entry."""
        raise NotImplementedError

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        change = self.law(context.x)
        return self.beta(context.t), torch.tanh(change) if self.saturate else change


@TERMS.register("fisher")
class Fisher(Reaction):
    r"""Fisher's reaction (1937), logistic growth. The term is :math:`\beta\tanh(x(1 - x))`.

    0 is unstable and 1 is stable. A feature below 0 falls: with saturation at most at the speed β, without
    it to −∞ in finite time, so that features should then be positive. The Lipschitz constant with
    saturation is below 1.5β.
    """

    def law(self, x: Tensor) -> Tensor:
        return x - x.square()


@TERMS.register("allen-cahn")
class AllenCahn(Reaction):
    r"""Allen and Cahn's reaction (1979), a double well. The term is :math:`\beta\tanh(x - x^3)`.

    −1 and 1 are stable, 0 is not, so that features of both signs are drawn apart. No solution leaves the
    smallest interval that holds [−1, 1] and the range of the features, with and without saturation, where A
    is row-stochastic. The Lipschitz constant with saturation is below 2.7β. Without saturation the term
    alone has the solution
    :math:`x\,e^{\beta t}/\sqrt{1 + x^2(e^{2\beta t} - 1)}`, which the scheme ``strang`` takes.
    """

    @property
    def solved(self) -> bool:  # type: ignore[override]
        return not self.saturate

    def law(self, x: Tensor) -> Tensor:
        return x - x**3

    def after(self, context: Context, time: Tensor) -> Tensor:
        # beyond 55 nearly all features are at -1, 0 or 1, and float32 has no room for the slope at 0
        span = (2 * time * self.beta(context.t)).clamp_max(55.0)
        # features beyond 1e18, whose square may be infinite, come to the same as 1e18
        x, left = context.x.clamp(-1e18, 1e18), torch.exp(-span)
        return x * torch.rsqrt(torch.addcmul(left, x.square(), -torch.expm1(-span)))


@TERMS.register("zeldovich")
class Zeldovich(Reaction):
    r"""Zeldovich's reaction (1938), combustion with a threshold. The term is :math:`\beta\tanh(x^2 - x^3)`.

    1 is stable; 0 holds from below and not from above. No solution leaves the smallest interval that holds
    [0, 1] and the range of the features, with and without saturation, where A is row-stochastic. The
    Lipschitz constant with saturation is below 2.1β.
    """

    def law(self, x: Tensor) -> Tensor:
        return x.square() * (1 - x)
