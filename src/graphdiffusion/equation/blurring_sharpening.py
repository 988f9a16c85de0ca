"""Blurring and sharpening: a reaction that stays a polynomial in A."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from ..ops import propagate
from ..options import Bounds
from .coefficient import Coefficient
from .context import Context
from .term import TERMS, Affine, Term


@TERMS.register("blurring-sharpening")
class BlurringSharpening(Term):
    r"""Sharpening after blurring of `"GREAD" <https://arxiv.org/abs/2211.14208>`_. The term is
    :math:`\beta(A - A^2)x`.

    A feature of A with the eigenvalue μ grows by :math:`(1 - \mu)(\beta\mu - \alpha)` beside diffusion: the
    term holds back what lies between 0 and 1, and blurs what alternates. Where eigenvalues are real
    (``over`` symmetric, or a constant A on an undirected graph), none of these features grows for β ≤ α,
    and beyond that none faster than :math:`e^{t(\beta - \alpha)^2/4\beta}`. Other eigenvalues may be
    complex: then none grows for β ≤ α/3. The same holds for the Euclidean norm of sums of them where A is
    symmetric; otherwise sums may grow for a while.

    The term is affine in x, a polynomial in A. The linear model keeps its closed form, which is exact
    whatever grows; it takes up to four times the products of diffusion alone.

    Args:
        wide: Number of coefficients, one for each channel; ``None``: one for all (``coefficients``).
        reaction: Start of β, which is learnt in (0, 1).
    """

    needs_attention = members = capturable = takes_parts = True
    given = ("wide",)
    per_member = ("reaction",)

    def __init__(
        self, wide: int | None = None, *, reaction: Annotated[float, Bounds(1e-6, 0.999)] = 0.1
    ) -> None:
        super().__init__()
        self.beta = Coefficient(reaction, bounded=True, channels=wide)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        assert context.attention is not None
        blurred = propagate(context.graph, context.attention, context.x)
        return self.beta(context.t), blurred - propagate(context.graph, context.attention, blurred)

    def affine(self, context: Context) -> Affine | None:
        # with M = A − I: A − A² = −M − M²
        beta = self.beta()
        return Affine({1: -beta, 2: -beta})
