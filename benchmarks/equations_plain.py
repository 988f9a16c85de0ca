"""The equations of GRAND's successors as plain torch has them: gather, ``index_add``, dense features.

One model at a time, no sparse product, no closed form. Where ours has a closed form or an exponential
scheme, which plain torch has not, these take Runge-Kutta 4 in steps of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from graphdiffusion.equation.blend import walk_encodings
from graphdiffusion.graph import Graph
from graphdiffusion.training import Config

Field = Callable[[Tensor], Tensor]


class Plain(nn.Module):
    """The model of a preset ``own-*``, with the parameters of a model of ours.

    Args:
        config: Its options.
        model: The model whose parameters are copied.
        graph: Edges with self-loops.
        observed: ``(n,)`` bool, nodes with a label.
    """

    def __init__(self, config: Config, model: nn.Module, graph: Graph, observed: Tensor) -> None:
        super().__init__()
        self.config, self.n = config, graph.num_nodes
        self.row, self.col = graph.row.long(), graph.col.long()
        self.seen = observed[:, None].to(next(model.parameters()).dtype)
        self.own = nn.ParameterDict({
            name.replace("diffusion.equation.", "").replace(".", "_"): nn.Parameter(p.detach().clone())
            for name, p in model.named_parameters()
            if p.requires_grad
        })  # fmt: skip
        self.norm = nn.BatchNorm1d(config.hidden) if config.batch_norm else None
        self.kind = getattr(config, "equation", "diffusion")
        if self.kind == "blend":
            self.walks = walk_encodings(graph, 8).to(self.seen)  # constant, computed once by both

    def sum_rows(self, edges: Tensor) -> Tensor:
        return edges.new_zeros(self.n, *edges.shape[1:]).index_add_(0, self.row, edges)

    def attention(self, x: Tensor) -> Tensor:
        heads, p = self.config.heads, self.own
        q, k = (
            (x @ p[f"diffusivity_{name}_weight"].T + p[f"diffusivity_{name}_bias"]).view(self.n, heads, -1)
            for name in ("query", "key")
        )
        scores = (q[self.row] * k[self.col]).sum(-1) / math.sqrt(q.shape[-1])
        phi = (scores + (scores.square() + 4).sqrt()) / 2
        total = torch.zeros_like(q[..., 0]).index_add_(0, self.col, phi)
        return (phi / total[self.col]).mean(1)

    def propagate(self, values: Tensor, x: Tensor) -> Tensor:
        return self.sum_rows(values[:, None] * x[self.col])

    def field(self, x0: Tensor, without: str = "") -> Field:
        """The right-hand side from x(0), perhaps without one of the terms."""
        p, c = self.own, self.config
        constant = None if c.variant == "nonlinear" else self.attention(x0)
        names = c.terms.split(",")
        acmp = ["repulsion", "acmp-well"] if self.kind == "acmp" else []
        terms = [
            (name, p[f"terms_{k}_beta_raw"][0]) for k, name in enumerate([*acmp, *names]) if name != without
        ]

        def derivative(state: Tensor) -> Tensor:
            x = state[:, : x0.shape[1]]
            values = self.attention(x) if constant is None else constant
            rest = sum(self.term(name, raw, values, x, x0) for name, raw in terms)
            moved = self.propagate(values, x)
            if self.kind == "graphcon":
                v = state[:, x0.shape[1] :]
                return torch.cat([v, torch.relu(moved) - c.stiffness * x - c.damping * v + rest], 1)
            if self.kind == "adc":
                return p["rates_raw"][0].exp() * (moved - x + rest)
            return torch.sigmoid(p["alpha_raw"][0]) * (moved - x) + rest

        return derivative

    def term(self, name: str, raw: Tensor, values: Tensor, x: Tensor, x0: Tensor) -> Tensor:
        if name == "source":
            return raw * x0
        if name == "labelled-source":
            return raw * self.seen * (x0 - (self.seen * x0).sum(0) / self.seen.sum())
        beta = torch.sigmoid(raw)
        if name == "blurring-sharpening":
            blurred = self.propagate(values, x)
            return beta * (blurred - self.propagate(values, blurred))
        count = self.sum_rows(torch.ones_like(values))[:, None]
        if name == "repulsion":
            return beta * (x - self.sum_rows(x[self.col]) / count)
        if name == "convection":
            mapped = x @ self.own["terms_1_weight"].T
            velocity = torch.tanh(mapped[self.col] - mapped[self.row])
            return beta * self.sum_rows(velocity * x[self.col]) / count
        change = {
            "fisher": lambda: x - x**2,
            "allen-cahn": lambda: x - x**3,
            "acmp-well": lambda: x - x**3,
            "zeldovich": lambda: x**2 - x**3,
        }[name]()
        return beta * (change if name == "acmp-well" else torch.tanh(change))

    def encode(self, features: Tensor) -> Tensor:
        c, p = self.config, self.own
        x = dropout(features, c.input_dropout, self.training) @ p["encoder_weight"].T + p["encoder_bias"]
        if self.norm is not None:
            x = self.norm(x)
        return torch.cat([x, self.walks @ p["embed"]], 1) if self.kind == "blend" else x

    def end(self, x0: Tensor) -> Tensor:
        """x(T), by the scheme of the preset."""
        c = self.config
        f = self.field(x0, "acmp-well" if c.solver == "strang" else "")
        steps = math.ceil(c.time / getattr(c, "step_size", 1.0) - 1e-9)
        h, width = c.time / steps, x0.shape[1]
        if c.solver == "symplectic-euler":
            x, v = x0, torch.zeros_like(x0)
            for _ in range(steps):
                v = v + h * f(torch.cat([x, v], 1))[:, width:]
                x = x + h * v
            return x
        if c.solver == "fractional":
            return fractional(f, x0, h, steps, c.derivative)
        if c.solver == "strang":
            return self.strang(f, x0, h, steps)
        if c.solver != "rk4":
            h, steps = 1.0, round(c.time)
        x = x0
        for _ in range(steps):
            k1 = f(x)
            k2 = f(x + h / 2 * k1)
            k3 = f(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(x + h * k3))
        return x

    def strang(self, f: Field, x: Tensor, h: float, steps: int) -> Tensor:
        """Strang's splitting of ACMP: the well by its solution, the rest f by the midpoint rule."""
        span = h * torch.sigmoid(self.own["terms_1_beta_raw"][0])

        def well(x: Tensor) -> Tensor:
            return x / torch.sqrt(torch.exp(-span) + x**2 * (1 - torch.exp(-span)))

        for _ in range(steps):
            x = well(x)
            x = well(x + h * f(x + h / 2 * f(x)))
        return x

    def forward(self, features: Tensor) -> Tensor:
        x = self.end(self.encode(features))[:, : self.config.hidden].relu()
        p = self.own
        return dropout(x, self.config.dropout, self.training) @ p["decoder_weight"].T + p["decoder_bias"]


def fractional(f: Field, x0: Tensor, h: float, steps: int, beta: float) -> Tensor:
    """Adams' predictor-corrector of Diethelm, Ford and Freed for Caputo's derivative, written anew."""
    x, slopes = x0, []
    for n in range(steps):
        slopes.append(f(x))
        b = [(n + 1 - j) ** beta - (n - j) ** beta for j in range(n + 1)]
        guess = x0 + h**beta / math.gamma(beta + 1) * sum(w * s for w, s in zip(b, slopes, strict=True))
        a: list[float] = [n ** (beta + 1) - (n - beta) * (n + 1) ** beta]
        a += [
            (n - j + 2) ** (beta + 1) + (n - j) ** (beta + 1) - 2 * (n - j + 1) ** (beta + 1)
            for j in range(1, n + 1)
        ]
        total: Any = f(guess) + sum(w * s for w, s in zip(a, slopes, strict=True))
        x = x0 + h**beta / math.gamma(beta + 2) * total
    return x
