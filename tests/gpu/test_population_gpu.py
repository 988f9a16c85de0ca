"""The population engine on a GPU: captured steps, members alone and together, GPU against CPU."""

from __future__ import annotations

import pytest
import torch

from graphdiffusion import DormandPrince, GraphDiffusion
from graphdiffusion.equation import TERMS, Context, Term
from graphdiffusion.training import Config, Member, Population, Trainer, load_problem, protocol

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CASES = {
    "linear": {"variant": "linear"},
    "rk4": {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0, "time": 3.0},
    "dopri5": {"variant": "nonlinear", "solver": "dopri5", "time": 3.0},
    "rewired": {"variant": "nonlinear-rewired", "solver": "rk4", "step_size": 1.0, "time": 3.0},
    # not captured: positions, products whose number is read, adaptive steps
    "blend": {"equation": "blend", "positions": 4, "augment": 4},
    "polynomial": {"terms": "source,blurring-sharpening", "time": 3.0},
    "acmp": {"equation": "acmp", "solver": "dopri5", "time": 2.0},
}


def settings(case: str) -> Config:
    return Config(hidden=16, heads=2, attention_dim=8, splits=3, **CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_a_member_alone_equals_the_member_of_a_population(case: str) -> None:
    config = settings(case)
    problem = load_problem(config).to("cuda")
    members = protocol(config, problem.data)
    together = Population(problem, config, members)
    alone = [Population(problem, config, [member]) for member in members]
    for _ in range(4):
        together.step()
        for single in alone:
            single.step()
    # error norms may be added up in another order, so adaptive steps differ in their last digits; where a
    # gradient is nearly zero the optimiser divides it by its own size, and makes that visible
    tolerance = 1e-3 if case in ("dopri5", "acmp") else 1e-6
    for k, single in enumerate(alone):
        for name, value in single.parameters.items():
            torch.testing.assert_close(together.parameters[name][k], value[0], rtol=0, atol=tolerance)


# rewiring is left out: an edge at the threshold may fall on either side of it by rounding
@pytest.mark.parametrize("case", [case for case in CASES if case != "rewired"])
def test_the_gpu_agrees_with_the_cpu_after_the_first_steps(case: str) -> None:
    config = settings(case)
    problem = load_problem(config)
    found = []
    for device in ("cpu", "cuda"):
        population = Population(problem.to(device), config, protocol(config, problem.data))
        losses = []
        for _ in range(3):
            population.step()
            losses.append(population.loss.cpu().clone())
        found.append(torch.stack(losses))
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=2e-3)


RK4 = {"variant": "nonlinear", "solver": "rk4", "step_size": 0.9}
CAPTURED = {
    "linear": {},
    "linear, learnt T": {"learn_time": True},
    "linear, sweep": {"sweep": 3.0, "sweep_points": 4},
    "linear, readout": {"readout": 3, "sweep": 3.0, "sweep_points": 4},
    "rk4": RK4,
    "linear, symmetric": {"over": "symmetric"},
    "rk4, symmetric": {**RK4, "over": "symmetric"},
    "rk4, readout": {**RK4, "readout": 2, "learn_time": True},
    "rk4, learnt T": {**RK4, "learn_time": True},
    "rk4, sweep": {**RK4, "sweep": 3.0, "sweep_points": 4},
    "rk4, penalties": {**RK4, "kinetic": 0.01, "jacobian": 0.01},
    "rk4, adam, labels": {**RK4, "optimiser": "adam", "label_rate": 0.4},
    # the bias before a batch norm has no gradient but rounding, which Adam would divide by its own size
    "rk4, sgd, batch norm": {**RK4, "optimiser": "sgd", "batch_norm": True},
    "euler, rewired": {"variant": "nonlinear-rewired", "solver": "euler", "step_size": 0.4, "keep": 0.8},
    "adams-bashforth": {"variant": "nonlinear", "solver": "adams-bashforth", "step_size": 0.2},
    **{
        name: {"variant": "nonlinear", "solver": name, "step_size": 0.9}
        for name in ("exponential-euler", "exponential-midpoint", "exponential-two-step", "exponential-cf4")
    },
    "fractional": {"solver": "fractional", "step_size": 0.5},
    "graphcon": {"equation": "graphcon", "solver": "symplectic-euler", "step_size": 0.5},
    "adc": {"equation": "adc"},
    "labelled source": {"terms": "source,labelled-source"},
    **{
        name: {**RK4, "variant": "linear", "terms": f"source,{name}"}
        for name in ("fisher", "allen-cahn", "zeldovich", "convection", "repulsion")
    },
    "acmp": {**RK4, "step_size": 0.25, "variant": "linear", "equation": "acmp"},  # stiff: infinite in 0.9
    "blurring-sharpening": {**RK4, "variant": "linear", "terms": "source,blurring-sharpening"},
}
OPTIONS = (
    {"time": 2.7, "alpha": 0.8, "rate": 0.01},
    {"time": 0.7, "alpha": 0.3, "dropout": 0.3},
    {"time": 1.8, "decay": 0.02, "input_dropout": 0.2},
)


@pytest.mark.parametrize("case", CAPTURED)
def test_captured_steps_alone_and_together(case: str) -> None:
    """The state after eight epochs, where every member needs another number of steps or products."""
    config = Config(hidden=16, heads=2, attention_dim=8, **CAPTURED[case])
    problem = load_problem(config).to("cuda")
    members = [Member(k, k, 100 + k, own) for k, own in enumerate(OPTIONS)]
    together = Population(problem, config, members)
    for _ in range(8):
        together.step()
    assert together.captured is not None and together.captured.graph is not None
    for k, member in enumerate(members):
        alone, plain = (Population(problem, config, [member]) for _ in range(2))
        for _ in range(8):
            alone.step()
            plain.compute()
        for name, value in plain.state().items():
            if name in ("optimiser/step", "self/epoch"):
                assert torch.equal(alone.state()[name], value) and torch.equal(
                    together.state()[name], value
                )
                continue
            assert bool(torch.isfinite(value).all()), name
            own = together.state()[name][k]
            assert torch.equal(alone.state()[name], value), f"{name}: captured and plain differ"
            # Adamax divides small gradients by themselves: 2e-5 is a thousandth of what eight updates move
            torch.testing.assert_close(
                own, value[0], rtol=1e-4, atol=2e-5, msg=lambda m, n=name: f"{n} {m}"
            )


def test_a_member_whose_time_diverges_ends_alone() -> None:
    config = Config(hidden=16, heads=2, attention_dim=8, learn_time=True, optimiser="adam", time=3.0)
    problem = load_problem(config).to("cuda")
    members = [Member(k, k, 100 + k, {"rate": rate}) for k, rate in enumerate((0.01, 1e6))]
    first, second = Trainer(problem, config.replace(epochs=20), members, chunk=2).run()
    assert first.epochs == 20 and first.val > 0.3 and second.epochs < 20
    (alone,) = Trainer(problem, config.replace(epochs=20), members[:1], chunk=1).run()
    assert (alone.val, alone.best_epoch) == (first.val, first.best_epoch)


@pytest.mark.parametrize("kind", ["softmax", "squareplus"])
@pytest.mark.parametrize("linear", [True, False])
def test_learnt_edge_weights(kind: str, linear: bool) -> None:
    """The gradient of edge weights on CUDA, against the CPU in float64."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(200, (2, 1500), generator=generator)
    weight = torch.rand(1500, generator=generator, dtype=torch.float64) + 0.1
    x = torch.randn(200, 16, generator=generator, dtype=torch.float64)
    layer = GraphDiffusion(
        16, 2.0, variant="linear" if linear else "nonlinear", heads=2, attention_dim=8, normaliser=kind,
        solver=None if linear else DormandPrince(1e-8, 1e-9),
    ).double()  # fmt: skip
    found = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float64), ("cuda", torch.float32)):
        own = weight.to(device, dtype).requires_grad_()
        if dtype == torch.float32 and not linear:
            layer.solver = DormandPrince(1e-5, 1e-6)
        out = layer.to(device, dtype)(x.to(device, dtype), edges.to(device), own)
        found.append(torch.autograd.grad(out.square().sum(), own)[0].double().cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found[2], found[0], rtol=1e-2, atol=1e-3)


class _Reading(Term):
    """A term of somebody who reads a number from the device."""

    members = True

    def forward(self, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
        size = float(context.x.detach().abs().max())
        return context.x.new_full((1, 1), 0.01 if size < 1e9 else 0.0), -context.x


def test_a_term_that_reads_from_the_device_is_not_captured() -> None:
    TERMS.names()
    TERMS.register("reading")(_Reading)
    try:
        config = Config(hidden=16, heads=2, attention_dim=8, splits=3, terms="reading", **RK4, time=2.0)
        problem = load_problem(config).to("cuda")
        population = Population(problem, config, protocol(config, problem.data))
        for _ in range(5):
            assert population.step() is None
        assert population.captured is None and bool(torch.isfinite(population.loss).all())
    finally:
        TERMS.forget(_Reading.__module__)


RIVALS = {
    "adalanczosnet": {},
    "cgnn": {"weights": True, "solver": "rk4"},
    "gat": {},
    "gcn": {},
    "gde": {},
    "gode": {"solver": "rk4"},
    "lanczosnet": {},
    "mlp": {},
    "monet": {},
    "sage-mean": {"model": "sage"},
    "sage-max": {"model": "sage", "aggregator": "max"},
    "gcn-residual": {"model": "gcn", "layers": 5, "residual": True},
    "gat-rewired": {"model": "gat", "rewire": "ppr"},
}


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_are_captured_and_equal_the_cpu(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GRAND_CACHE", str(tmp_path))
    config = Config(hidden=16, splits=3, **{"model": name, **RIVALS[name]})
    problem = load_problem(config)
    losses = []
    for device in ("cpu", "cuda"):
        population = Population(problem.to(device), config, protocol(config, problem.data))
        for _ in range(4):
            population.step()
        losses.append(population.loss.cpu().clone())
    assert population.captured is not None and population.captured.graph is not None
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-3)
