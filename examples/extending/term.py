"""A reaction term: each feature is drawn to −1 or 1 while it diffuses.

    grand train cora-embedded --plugin examples/extending/term.py --terms example

Names of several terms have commas between them: --terms source,example.
"""

from torch import Tensor

from graphdiffusion.equation import TERMS, Coefficient, Context, Term


@TERMS.register("example")
class AllenCahn(Term):
    r"""Allen and Cahn's reaction of 1979. The term is :math:`\gamma\,(x - x^3)`.

    It has two stable states, −1 and 1, and an unstable one, 0. The term is not affine in x, so the closed
    form does not apply: the solver "auto" then takes Dormand and Prince's scheme by itself.

    Args:
        channels: Width of the node features.
        reaction: Start of γ, which is learnt in (0, 1) for each channel: a negative one would explode.
    """

    members = True

    def __init__(self, channels: int, reaction: float = 0.01) -> None:
        super().__init__()
        self.gamma = Coefficient(reaction, bounded=True, channels=channels)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        return self.gamma(context.t), context.x - context.x**3
