"""A class of one's own that derives from one of the library: what it inherits, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import PAPER, D, normal, scatter_parameters
from scipy.integrate import solve_ivp
from torch import Tensor

from graphdiffusion.diffusivity import ScaledDotProduct
from graphdiffusion.equation import AllenCahn, Context, Diffusion, Fisher, Source
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.nn.baselines.gcn import GCN
from graphdiffusion.solvers import Strang, integrate


class Halved(ScaledDotProduct):
    """Half of the attention."""

    def forward(self, graph: Graph, x: Tensor, mask: Any = None, t: Any = None) -> Tensor:
        return super().forward(graph, x, mask, t) / 2


class Doubled(Source):
    """Twice the source."""

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        scale, change = super().forward(context)
        return 2 * scale, change


class Cubed(Diffusion):
    """Diffusion, and −x³ beside it."""

    def derivative(self, context: Context) -> Tensor:
        return super().derivative(context) - context.x**3


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("kind", ["diffusivity", "term", "equation"])
def test_the_automatic_scheme_integrates_what_the_class_says(small: Graph, kind: str, linear: bool) -> None:
    """Against scipy and dense formulas: no fused step and no closed form of the class it derives from."""
    how: dict[str, Any] = {"heads": 2, "attention_dim": 6, **PAPER}
    attention = (Halved if kind == "diffusivity" else ScaledDotProduct)(3, **how)
    terms = [Doubled(0.25)] if kind == "term" else []
    made = Cubed if kind == "equation" else Diffusion
    equation = made(scatter_parameters(attention), linear=linear, alpha=0.75, terms=terms).to(D)
    plain = ScaledDotProduct(3, **how).to(D)
    plain.load_state_dict(attention.state_dict())
    x0 = normal(9, 3)

    @torch.no_grad()
    def f(t: float, flat: Any) -> Any:
        x = torch.from_numpy(flat).reshape(9, 3)
        a = torch.zeros(9, 9, dtype=D)
        a.index_put_((small.row, small.col), plain(small, x0 if linear else x), accumulate=True)
        change = 0.75 * ((a / 2 if kind == "diffusivity" else a) @ x - x)
        change += {"diffusivity": 0.0, "term": 2 * 0.25 * x0, "equation": -(x**3)}[kind]
        return change.flatten().numpy()

    want = solve_ivp(f, (0, 2), x0.flatten().numpy(), rtol=1e-10, atol=1e-12).y[:, -1]
    layer = GraphDiffusion(3, time=2.0, equation=equation, solver="auto", rtol=1e-9, atol=1e-9).to(D)
    assert torch.allclose(layer(x0, small).flatten(), torch.from_numpy(want), atol=1e-7)


def test_a_changed_law_has_no_exact_solution(small: Graph) -> None:
    class Slower(AllenCahn):
        def law(self, x: Tensor) -> Tensor:
            return (x - x**3) / 2

    x = normal(9, 3)
    for term, solved in ((AllenCahn(saturate=False), True), (Slower(saturate=False), False)):
        equation = Diffusion(ScaledDotProduct(3, heads=1), terms=[term]).to(D)
        assert equation.offers("after") is solved
        if not solved:
            with pytest.raises(ArgumentError, match="Strang needs a term that is solved"):
                integrate(equation.bind(small, x), x, 1.0, Strang(0.5))


def test_a_class_makes_its_promises_itself() -> None:
    class Mean(Fisher):
        """What it adds may take a mean over nodes, mix members, or read from the device."""

    class Promised(Fisher):
        members = capturable = takes_parts = True

    class Derived(Promised):
        """One of one's own that derives from another."""

    class Stacked(GCN):
        """A model."""

    class Attention(ScaledDotProduct):
        """A diffusivity."""

    class Equation(Diffusion):
        """An equation, whose promises are properties in the library."""

    def promises(made: Any) -> list[Any]:
        return [made.members, made.capturable, made.takes_parts]

    assert promises(Fisher()) == promises(Promised()) == [True, True, True]
    for made in (Mean(), Derived(), Stacked(3, 2), Attention(3), Equation(ScaledDotProduct(3))):
        assert promises(made) == [None, False, False]
    assert promises(Diffusion(ScaledDotProduct(3), terms=[Mean()])) == [None, False, False]
