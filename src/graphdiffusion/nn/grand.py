"""GRAND, the whole model: encode, diffuse, decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from ..equation.penalty import Quadrature, path_penalty
from ..errors import ArgumentError
from ..graph import SELF_LOOPS, Graph
from ..ops.noise import derive
from ..options import Bounds, check_arguments, split_names
from .base import MODELS, Output, checked, drawn_key
from .continuous import Continuous
from .diffusion import GraphDiffusion
from .modules import BatchNorm, Dropout, Features, Linear

TITLES = {"linear": "GRAND-l", "nonlinear": "GRAND-nl", "nonlinear-rewired": "GRAND-nl-rw"}


@MODELS.register("grand")
class GRAND(Continuous):
    r"""Graph neural diffusion for node classification (appendix C),

    .. math:: \mathbf{Y} = \psi(\mathbf{X}(T)), \quad \mathbf{X}(0) = \phi(\mathbf{X}_\mathrm{in}),

    with a linear encoder φ, a :class:`GraphDiffusion` and a linear decoder ψ. With ``readout`` m the
    decoder reads :math:`[\mathbf{X}(0), \mathbf{X}(T/m), \mathbf{X}(2T/m), \ldots, \mathbf{X}(T)]` side by
    side. In the closed form these times share one basis; other schemes interpolate between their steps.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Channels of the diffused state.
        input_dropout: Dropout of the input features.
        dropout: Dropout before the decoder, and inside the MLP encoder.
        mlp: Two residual hidden layers in the encoder.
        batch_norm: Batch normalisation after the encoder.
        augment: Zero channels added for the diffusion and dropped after it (ANODE).
        relu: ReLU before the decoder.
        readout: The decoder reads x at the ends of so many equal parts of [0, T], x(0) included; 0: x(T)
            alone.
        kinetic: Weight of the kinetic energy in the loss.
        jacobian: Weight of the Jacobian norm in the loss.
        label_channels: Number of classes if labels of training nodes are given as features ("using
            labels" in table 2), else 0.
        self_loops: Weight of the self-loop that every node is given, in place of those of the graph;
            ``None`` leaves them as they are.
        diffusion: Further arguments of :class:`GraphDiffusion`.
    """

    group = "model"
    given = ("label_channels", "self_loops")
    delegate = GraphDiffusion
    takes_sparse = takes_labels = takes_sweep = True
    per_member: ClassVar[tuple[str, ...]] = ("time", "alpha", "input_dropout", "dropout")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: Annotated[int, Bounds(1)] = 80,
        input_dropout: Annotated[float, Bounds(0, 0.999)] = 0.5,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.05,
        mlp: bool = False,
        batch_norm: bool = False,
        augment: Annotated[int, Bounds(0)] = 0,
        relu: bool = True,
        readout: Annotated[int, Bounds(0, 1000)] = 0,
        kinetic: Annotated[float, Bounds(0)] = 0.0,
        jacobian: Annotated[float, Bounds(0)] = 0.0,
        label_channels: int = 0,
        self_loops: float | None = SELF_LOOPS,
        **diffusion: Any,
    ) -> None:
        super().__init__()
        check_arguments(GRAND, locals())
        for name, size in (("in_channels", in_channels), ("out_channels", out_channels)):
            if size < 1:
                raise ArgumentError(f"{name} must be at least 1, got {size}.")
        self.augment, self.relu, self.kinetic, self.jacobian = augment, relu, kinetic, jacobian
        self.readout, self.self_loops = readout, self_loops
        self.input_dropout, self.dropout = Dropout(input_dropout), Dropout(dropout)
        self.encoder = Linear(in_channels, hidden)
        self.label_encoder = Linear(label_channels, hidden, bias=False) if label_channels else None
        self.mlp = nn.ModuleList(Linear(hidden, hidden) for _ in range(2 * mlp))
        self.norm = BatchNorm(hidden) if batch_norm else None
        self.diffusion = GraphDiffusion(hidden + augment, **diffusion, self_loops=self_loops)
        self.decoder = Linear((readout + 1) * hidden, out_channels)

    def run(
        self,
        x: Features,
        graph: Graph,
        *,
        prepared: Any = None,
        labels: Tensor | None = None,
        observed: Tensor | None = None,
        key: Tensor | None = None,
        sweep: Sequence[float] | None = None,
        check: bool = True,
    ) -> Output:
        x, layer = checked(x, self.encoder.weight), self.diffusion
        key = drawn_key(x, self.training, self.encoder.weight) if key is None else key
        state = self._encode(x, labels, key)
        flow = layer.bind(state, graph, observed=observed)
        span, ends = layer.span, [1.0] if sweep is None else list(sweep)
        penalised = self.training and sweep is None and (self.kinetic > 0 or self.jacobian > 0)
        nodes = Quadrature().nodes if penalised else []
        # between x(0) and the state at each end
        inner = [[f * k / self.readout for f in ends] for k in range(1, self.readout)]
        wanted = sorted({*nodes, *chain(*inner), *(sweep or ())})
        times = _times(wanted, span) if wanted else None
        solution = layer.diffuse(flow, state, span if sweep is None else times[-1], times, check)  # type: ignore[index]

        def at(fractions: list[float]) -> Tensor:
            """States at some of the fractions of T that were computed, ``(m, ..., n, d)``."""
            states = solution.states
            assert states is not None
            if fractions == wanted:
                return states
            return torch.stack([states[wanted.index(f)] for f in fractions])

        penalty = None
        if penalised:
            energy, norm = path_penalty(
                flow, at(nodes), _times(nodes, span), span, Quadrature(), derive(key, 2),
                kinetic=self.kinetic > 0, jacobian=self.jacobian > 0,
            )  # fmt: skip
            penalty = self.kinetic * energy + self.jacobian * norm
        read = [layer.equation.read(solution.state if sweep is None else at(ends))]
        if self.readout:
            way = (at(fractions) for fractions in inner)
            read = [state, *(layer.equation.read(v[0] if sweep is None else v) for v in way), *read]
        logits = self._decode(read, key)
        return Output(logits, penalty, solution.stats.evaluations, solution.stats.failures)

    def encode(self, x: Features) -> Tensor:
        """The state x(0) that the diffusion of a model in evaluation mode starts from."""
        x = checked(x, self.encoder.weight)
        return self._encode(x, None, drawn_key(x, self.training, self.encoder.weight))

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

    def _decode(self, states: list[Tensor], key: Tensor) -> Tensor:
        if self.augment:
            states = [state[..., : -self.augment] for state in states]
        state = states[-1]
        if len(states) > 1:  # x(0) is the same for all times of a sweep
            state = torch.cat([part.expand_as(state) for part in states], -1)
        if self.relu:
            state = relu(state)
        if self.training:
            state = self.dropout(state, derive(key, 1))
        return self.decoder(state)

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        weights = sum(p.numel() for p in self.parameters())
        read = 4 * self.readout * nodes * self.diffusion.channels  # beside each other, ReLU, dropout
        return self.diffusion.memory(nodes, edges) + 4 * (3 * entries + 6 * weights + read)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        layer, hidden = self.diffusion, self.encoder.weight.shape[0]
        steps = layer.solver.held(layer.initial_time)
        # the gradient of a learnt matrix takes as much again as the product, and gathers both ends
        learnt = any(
            p.requires_grad and p.dim() > 1 and min(p.shape) > 1 for p in layer.equation.parameters()
        )
        each = 3 if learnt else 1  # coefficients have one row
        weights = sum(p.numel() for p in self.parameters()) - self.encoder.weight.numel()
        return float(
            entries * hidden + nodes * (weights + 8 * hidden) + each * steps * edges * layer.channels
        )

    @classmethod
    def row(cls, options: Mapping[str, Any]) -> str:
        return str(options.get("variant", "linear"))

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        """The variant, and what is not GRAND's own: another equation, further terms, fractional time."""
        equation, solver = options.get("equation", "diffusion"), options.get("solver")
        more = [name for name in split_names(options.get("terms", "")) if name != "source"]
        if equation != "diffusion":
            more.insert(0, equation)
        if solver == "fractional":
            more.append(solver)
        return TITLES[cls.row(options)] + (f" with {', '.join(more)}" if more else "")


def _times(fractions: Sequence[float], time: Tensor) -> Tensor:
    """Fractions of the time of each member: ``(m, ...)``."""
    return torch.stack([f * time.double() for f in fractions])
