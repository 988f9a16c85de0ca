"""Diffusion with a time of its own for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from ..diffusivity import Diffusivity
from ..options import Bounds
from .coefficient import Coefficient
from .diffusion import Diffusion
from .equation import EQUATIONS
from .term import Term


class Positive(Coefficient):
    """A coefficient that stays positive: the exponential of what is learnt."""

    def __init__(self, initial: float, *, channels: int | None = None) -> None:
        super().__init__(initial, channels=channels)

    def reset_parameters(self) -> None:
        self.raw.detach().fill_(self.initial).log_()

    def forward(self, t: Tensor | None = None) -> Tensor:
        return self.raw[..., 0, :, :].exp()

    def largest(self, reach: Tensor | float = 0.0) -> Tensor:
        return (self.raw.detach().double()[..., 0, :, :] + reach).exp().amax(-1, keepdim=True)


@EQUATIONS.register("adc")
class ADC(Diffusion):
    r"""Learnt time for each channel, of `"Adaptive Diffusion in Graph Neural Networks"
    <https://proceedings.neurips.cc/paper/2021/hash/c42af2fa7356818e0389593714f59b52-Abstract.html>`_.

    .. math:: \dot x_c = r_c\,\Bigl((A - I)\,x_c + \sum_m f_m\Bigr), \quad
        x_c(T) = e^{r_c T(A - I)} x_c(0) \;\text{ without terms}

    Channel c is diffused for the time :math:`r_c T`, with a learnt rate r > 0: how far features spread is
    learnt, and each in its own way. With A stochastic no feature leaves its range, whatever the rates are.
    The linear model has its closed form, exact for all channels at once; its products are as many as the
    fastest channel needs.

    ``--diffusivity laplacian`` without terms is the paper's model. With attention and terms the same rates
    are those of ``--channel-rates``, which may also become negative.

    Args:
        diffusivity: Gives the matrix A.
        channels: Width of the node features.
        linear: Compute A from the initial state or from the state of now.
        terms: What is added to diffusion.
        rule: At most one of keep, threshold and mass, with its value (equation 12).
        pace: Start of r in all channels.
    """

    given = ("linear",)
    per_member = ("pace",)

    def __init__(
        self,
        diffusivity: Diffusivity,
        channels: int,
        *,
        linear: bool = False,
        terms: Sequence[Term] = (),
        rule: dict[str, float] | None = None,
        pace: Annotated[float, Bounds(0, above=True)] = 1.0,
    ) -> None:
        super().__init__(
            diffusivity, linear=linear, terms=terms, rates=Positive(pace, channels=channels), rule=rule
        )
