"""GRAND, the whole model: encode, diffuse, decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from ..dynamics import Flow
from ..errors import ArgumentError, DtypeError, ShapeError
from ..graph import Graph
from ..ops.noise import derive
from ..regularisers import Quadrature, path_penalty
from ..solvers import Solution, Stats, integrate
from .diffusion import GraphDiffusion
from .modules import BatchNorm, Dropout, Features, Linear, SparseFeatures, as_features, reset_children


@dataclass(frozen=True)
class Output:
    """What :meth:`GRAND.run` gives.

    Attributes:
        logits: ``(..., n, classes)``; with a sweep ``(m, ..., n, classes)``.
        penalty: Weighted regularisers of the dynamics, ``(...)``.
        stats: The solver's.
    """

    logits: Tensor
    penalty: Tensor
    stats: Stats


class GRAND(nn.Module):
    r"""Graph neural diffusion for node classification (appendix C),

    .. math:: \mathbf{Y} = \psi(\mathbf{X}(T)), \quad \mathbf{X}(0) = \phi(\mathbf{X}_\mathrm{in}),

    with a linear encoder φ, a :class:`GraphDiffusion` and a linear decoder ψ.

    Args:
        in_channels, hidden_channels, out_channels: Widths of input, diffused state and classes.
        time: T.
        input_dropout: Dropout of the input features.
        dropout: Dropout before the decoder, and inside the MLP encoder.
        mlp: Two residual hidden layers in the encoder.
        batch_norm: Batch normalisation after the encoder.
        augment: Zero channels appended for the diffusion and dropped after it (ANODE, Dupont et al. 2019).
        relu: ReLU before the decoder.
        label_channels: Number of classes if labels of training nodes are given as features ("using
            labels" in table 2), else 0.
        kinetic, jacobian: Weights of the regularisers of the dynamics.
        diffusion: Further arguments of :class:`GraphDiffusion`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        time: float = 3.0,
        *,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
        mlp: bool = False,
        batch_norm: bool = False,
        augment: int = 0,
        relu: bool = True,
        label_channels: int = 0,
        kinetic: float = 0.0,
        jacobian: float = 0.0,
        **diffusion: Any,
    ) -> None:
        super().__init__()
        for name, rate in (("input_dropout", input_dropout), ("dropout", dropout)):
            if not 0 <= rate < 1:
                raise ArgumentError(f"{name} must lie in [0, 1), got {rate}.")
        if augment < 0:
            raise ArgumentError(f"augment must not be negative, got {augment}.")
        for name, size in (("in_channels", in_channels), ("hidden_channels", hidden_channels)):
            if size < 1:
                raise ArgumentError(f"{name} must be at least 1, got {size}.")
        self.augment, self.relu, self.kinetic, self.jacobian = augment, relu, kinetic, jacobian
        self.input_dropout, self.dropout = Dropout(input_dropout), Dropout(dropout)
        self.encoder = Linear(in_channels, hidden_channels)
        self.label_encoder = Linear(label_channels, hidden_channels, bias=False) if label_channels else None
        self.mlp = nn.ModuleList(Linear(hidden_channels, hidden_channels) for _ in range(2 * mlp))
        self.norm = BatchNorm(hidden_channels) if batch_norm else None
        self.diffusion = GraphDiffusion(hidden_channels + augment, time, **diffusion)
        self.decoder = Linear(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        reset_children(self)

    def forward(
        self, x: Features, edge_index: Tensor | Graph, edge_weight: Tensor | None = None, **more: Any
    ) -> Tensor:
        """Class scores ``(..., n, classes)``; arguments as in :meth:`run`."""
        return self.run(x, edge_index, edge_weight, **more).logits

    def run(
        self,
        x: Features,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        key: Tensor | None = None,
        sweep: Sequence[float] | None = None,
        check: bool = True,
    ) -> Output:
        """Encode, diffuse, decode.

        Args:
            x: Features ``(..., n, in_channels)``, dense or torch sparse.
            edge_index, edge_weight: As in :class:`GraphDiffusion`.
            labels: One-hot labels that the model may see, ``(..., n, label_channels)``.
            key: Source of the random numbers of dropout, int64, one for each member; by default
                drawn from torch's generator.
            sweep: Fractions of T, increasing; the state is decoded at each of these times instead of
                at T. They may go beyond 1.
            check: Look for NaN, and warn of unstable steps.
        """
        x = as_features(x)
        if x.shape[-1] != self.encoder.weight.shape[-1]:
            raise ShapeError(
                f"x must have {self.encoder.weight.shape[-1]} features a node, got {tuple(x.shape)}."
            )
        values = x.values if isinstance(x, SparseFeatures) else x
        if values.dtype != self.encoder.weight.dtype:
            raise DtypeError(
                f"x must be {self.encoder.weight.dtype}, as the model is, got {values.dtype}: convert one."
            )
        graph = self.diffusion.graph(edge_index, x.shape[-2], edge_weight)
        if key is None:  # without dropout torch's generator is left alone
            lead = x.shape[:-2]
            key = torch.randint(2**62, lead) if self.training else torch.zeros(lead, dtype=torch.int64)
            key = key.to(self.encoder.weight.device)
        state = self._encode(x, labels, key)
        flow = self.diffusion.bind(state, graph)
        if sweep is not None:
            times = _times(sweep, self.diffusion.span)
            solution = self._integrate(flow, state, times[-1], times, check)
            assert solution.states is not None
            return Output(self._decode(solution.states, key), state.new_zeros(()), solution.stats)
        penalised = self.training and (self.kinetic > 0 or self.jacobian > 0)
        nodes = _times(Quadrature().nodes, self.diffusion.span) if penalised else None
        solution = self._integrate(flow, state, self.diffusion.span, nodes, check)
        penalty = state.new_zeros(())
        if nodes is not None:
            assert solution.states is not None
            energy, norm = path_penalty(
                flow,
                solution.states,
                nodes,
                self.diffusion.span,
                Quadrature(),
                derive(key, 2),
                kinetic=self.kinetic > 0,
                jacobian=self.jacobian > 0,
            )
            penalty = self.kinetic * energy + self.jacobian * norm
        return Output(self._decode(solution.state, key), penalty, solution.stats)

    def _encode(self, x: Features, labels: Tensor | None, key: Tensor) -> Tensor:
        if self.training:
            x = self.input_dropout(x, derive(key, 0))
        state = self.encoder(x)
        if self.label_encoder is not None and labels is not None:
            state = state + self.label_encoder(labels)
        for site, layer in enumerate(self.mlp):
            state = state + layer(relu(state))
            if self.training:
                state = self.dropout(state, derive(key, 3 + site))
        if self.norm is not None:
            state = self.norm(state)
        return pad(state, (0, self.augment)) if self.augment else state

    def _integrate(
        self, flow: Flow, state: Tensor, time: Tensor, at: Tensor | None, check: bool
    ) -> Solution:
        layer = self.diffusion
        return integrate(flow, state, time, layer.solver, at=at, gradient=layer.gradient, check=check)

    def _decode(self, state: Tensor, key: Tensor) -> Tensor:
        if self.augment:
            state = state[..., : -self.augment]
        if self.relu:
            state = relu(state)
        if self.training:
            state = self.dropout(state, derive(key, 1))
        return self.decoder(state)


def _times(fractions: Sequence[float], time: Tensor) -> Tensor:
    """Fractions of the time of each member: ``(m, ...)``."""
    return torch.stack([f * time.double() for f in fractions])
