"""Graph neural diffusion: the equation of the paper, with further terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ..diffusivity import Diffusivity
from ..errors import ArgumentError
from ..ops import combine, propagate
from .coefficient import Coefficient
from .context import Context
from .equation import EQUATIONS, Equation, Stiff
from .mask import attention_mask
from .term import Affine, Term


@EQUATIONS.register("diffusion")
class Diffusion(Equation):
    r"""Diffusion on the graph with further terms, equation (2).

    .. math:: \frac{dx}{dt} = r\,\bigl(\alpha(t)\,(A - I)\,x + \sum_m f_m\bigr)

    In the *linear* model A is computed from x(0), and only once if its parameters are constant in time; in
    the *nonlinear* one it follows x(t). The source :math:`\beta x_0` is a term.

    Args:
        diffusivity: Gives the matrix A.
        linear: Compute A from the initial state (GRAND-l) or from the state of now (GRAND-nl).
        alpha: A number (fixed) or a :class:`Coefficient`.
        terms: What is added, such as :class:`~graphdiffusion.equation.Source`.
        rates: r, a rate for each channel: a time of its own over a common unit of time. ``None`` is 1.
        rule: At most one of keep, threshold and mass, with its value: the edges that the attention at t = 0
            selects (equation 12) are kept for the whole integral.
    """

    given: tuple[str, ...] = ("linear", "alpha")

    def __init__(
        self,
        diffusivity: Diffusivity,
        *,
        linear: bool = False,
        alpha: float | Coefficient = 1.0,
        terms: Sequence[Term] = (),
        rates: Coefficient | None = None,
        rule: dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.diffusivity = diffusivity
        self.linear = linear
        self.alpha = alpha if isinstance(alpha, Coefficient) else Coefficient(alpha, learn=False)
        self.terms = nn.ModuleList(terms)
        self.rates = rates
        self.rule = dict(rule or {})
        if len(self.rule) > 1:
            raise ArgumentError(f"give at most one of keep, threshold and mass, got {self.rule}.")

    @property
    def members(self) -> bool | None:  # type: ignore[override]
        """True if all parts take members, False if one does not, ``None`` if one does not say."""
        parts = [self.diffusivity.members, *(term.members for term in self.terms)]
        return False if False in parts else None if None in parts else True

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        return self.diffusivity.capturable and all(term.capturable for term in self.terms)

    @property
    def takes_parts(self) -> bool:  # type: ignore[override]
        return self.diffusivity.takes_parts and all(term.takes_parts for term in self.terms)

    @property
    def needs_observed(self) -> bool:  # type: ignore[override]
        return any(term.needs_observed for term in self.terms)

    def prepare(self, context: Context) -> Context:
        if self.rule:
            with torch.no_grad():
                values = self.diffusivity(context.graph, context.x0, context.mask)
            mask = attention_mask(context.graph, values, over=self.diffusivity.over, **self.rule)
            context = context.at(mask=mask if context.mask is None else mask * context.mask)
        if self.linear and not self.diffusivity.varies:
            context = context.at(attention=self.attention(context))
        return context

    def attention(self, context: Context) -> Tensor:
        if context.attention is not None:
            return context.attention
        x = context.x0 if self.linear else context.x
        return self.diffusivity(context.graph, x, context.mask, context.t)

    def derivative(self, context: Context) -> Tensor:
        return self._change(context, self.terms)

    def _change(self, context: Context, terms: Iterable[nn.Module]) -> Tensor:
        """dx/dt with some of the terms."""
        c = self._with_attention(context, self.linear)
        if c.attention is None:  # in one piece, without A in memory
            diffused = self.diffusivity.diffuse(c.graph, c.x, c.mask, c.t)
        else:
            diffused = propagate(c.graph, c.attention, c.x) - c.x
        scales, changes = self._terms(c, terms)
        total = combine([self.alpha(c.t), *scales], [diffused, *changes])
        return total if self.rates is None else self.rates(c.t) * total

    def _with_attention(self, context: Context, wanted: bool) -> Context:
        """The context with A where it is wanted, or where a term needs it."""
        if context.attention is None and (wanted or any(term.needs_attention for term in self.terms)):
            return context.at(attention=self.attention(context))
        return context

    def _terms(
        self, context: Context, terms: Iterable[nn.Module] | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Coefficients and directions of some terms, by default of all."""
        pairs = [term(context) for term in (self.terms if terms is None else terms)]
        return [scale for scale, _ in pairs], [change for _, change in pairs]

    def affine(self, context: Context) -> Affine | None:
        if not self.linear or self.diffusivity.varies or context.attention is None or self.alpha.terms > 1:
            return None
        total = Affine({1: self.alpha()}, values=context.attention)
        for term in self.terms:
            part = term.affine(context)  # type: ignore[operator]
            if part is None:
                return None
            total = total + part
        if self.rates is None:
            return total
        return total.scaled(self.rates()) if self.rates.terms == 1 else None

    def offers(self, what: str) -> bool:
        own = {
            "stiff": self.diffusivity.normaliser in ("softmax", "squareplus"),
            "after": any(cast(Term, term).solved for term in self.terms),
        }
        return super().offers(what) and own.get(what, True)

    def after(self, context: Context, time: Tensor, backwards: bool = False) -> Tensor:
        span = time if self.rates is None else time * self.rates(context.t)
        for term in reversed(self.terms) if backwards else self.terms:
            if cast(Term, term).solved:
                context = context.at(x=cast(Term, term).after(context, span))
        return context.x

    def remainder(self, context: Context) -> Tensor:
        return self._change(context, [term for term in self.terms if not cast(Term, term).solved])

    def stiff(self, context: Context) -> Stiff | None:
        if not self.offers("stiff"):
            return None
        c = self._with_attention(context, False)
        scales, changes = self._terms(c)
        rest = combine(scales, changes) if scales else None
        values, coefficient = self.attention(c), self.alpha(c.t)
        if self.rates is not None:
            rates = self.rates(c.t)
            coefficient, rest = rates * coefficient, None if rest is None else rates * rest
        return Stiff(values, self.diffusivity.over, coefficient, rest)

    def diagonal(self, context: Context) -> Tensor | None:
        """−αr. The diagonal of A is left out: it costs the attention, and saves no iteration on Cora."""
        found = -self.alpha(context.t)
        return found if self.rates is None else self.rates(context.t) * found

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        scale = self.alpha.largest(reach)
        return scale if self.rates is None else scale * self.rates.largest(reach)

    def bound(self, reach: Tensor | float = 0.0) -> Tensor:
        total = self.alpha.largest(reach)
        for term in self.terms:
            total = total + cast(Term, term).bound(reach).to(total.device)
        return total if self.rates is None else total * self.rates.largest(reach)

    def learns_rate(self) -> bool:
        own = [self.alpha] if self.rates is None else [self.alpha, self.rates]
        return any(c.raw.requires_grad for c in own)

    def stable(self) -> bool:
        return self.diffusivity.contracts

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        terms = sum(cast(Term, term).memory(nodes, edges, channels) for term in self.terms)
        if self.linear and not self.diffusivity.varies:  # one product
            return terms
        return self.diffusivity.memory(nodes, edges, channels) + terms + 4 * nodes * channels

    def kept(self, nodes: int, edges: int, channels: int) -> int:
        once = self.linear and not self.diffusivity.varies
        learnt = any(p.requires_grad for p in self.diffusivity.parameters())
        return self.diffusivity.memory(nodes, edges, channels) if once and learnt else 0

    def stacked(self) -> bool:
        return self.alpha.raw.dim() > 3
