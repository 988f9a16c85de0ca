"""When a step is captured anew: the policy, with recorded captures in place of CUDA graphs."""

from __future__ import annotations

import pytest
import torch

from graphdiffusion.errors import TooManyEvaluations
from graphdiffusion.solvers import Room
from graphdiffusion.solvers.exponential import default_tolerance, number_of_terms
from graphdiffusion.training import Config, Population, load_problem, protocol
from graphdiffusion.training import capture as capturing
from graphdiffusion.training.capture import CapturedStep, can_capture, has_bound, needed_room
from graphdiffusion.training.optimisers import REACH, Optimiser

ALPHA = "diffusion.equation.alpha.raw"


def population(**options) -> Population:
    config = Config(hidden=8, heads=2, attention_dim=8, splits=2, epochs=100, **options)
    problem = load_problem(config)
    return Population(problem, config, protocol(config, problem.data))


class Recorded(CapturedStep):
    """Notes the rooms that it is asked for, and replays nothing."""

    def __init__(self, members: Population) -> None:
        super().__init__(members)
        self.rooms: list[Room] = []

    def _capture(self, room: Room) -> None:
        self.room, self.graph = room, Nothing()
        self.rooms.append(room)


class Nothing:
    def replay(self) -> None: ...


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "_seen", type(capturing._seen)())


def test_nothing_is_captured_on_a_cpu():
    assert not can_capture(population())


def test_the_first_step_of_a_shape_is_taken_plainly():
    members = population()
    step = Recorded(members)
    assert not step.replay() and step.rooms == []
    assert step.replay() and len(step.rooms) == 1
    again = Recorded(population())  # another graph object: its work lists are still to be made
    assert not again.replay() and again.rooms == []
    known = Population(members.problem, members.config, members.members)
    same = Recorded(known)
    assert same.replay() and len(same.rooms) == 1


def test_a_member_beyond_its_limit_is_found_by_a_plain_step():
    members = population(time=10.0, max_evaluations=40)
    members.captured = step = Recorded(members)
    assert members.step() is None and members.step() is None and len(step.rooms) == 1
    with torch.no_grad():
        members.parameters[ALPHA][1] += 20.0  # α = 1: ten products become thirty
        members.stack.constants["diffusion.time"][1] *= 10
    assert not step.replay()
    failure = members.step()
    assert isinstance(failure, TooManyEvaluations) and failure.members.tolist() == [False, True]


def test_captured_anew_when_more_is_needed_or_much_less():
    members = population(time=10.0)
    step = Recorded(members)
    for _ in range(4):
        step.replay()
    assert len(step.rooms) == 1
    with torch.no_grad():
        members.parameters[ALPHA] += 0.5
    step.replay()
    assert len(step.rooms) == 2 and step.rooms[1] > step.rooms[0]
    step.replay()
    assert len(step.rooms) == 2  # the room to spare is not given back at once
    shrinks_where_it_pays(step, 3.0)


def shrinks_where_it_pays(step: Recorded, less: float) -> None:
    """A third capture when α falls, and none in the last epoch."""
    members = step.population
    with torch.no_grad():
        members.parameters[ALPHA] -= less
    step.replay()
    assert len(step.rooms) == 3 and step.rooms[2] < step.rooms[0]
    members.epochs_done = 99  # one epoch left: a smaller step does not pay
    with torch.no_grad():
        members.parameters[ALPHA] -= 3.0
    step.replay()
    assert len(step.rooms) == 3


@pytest.mark.parametrize("optimiser", ["adam", "adamax", "rmsprop"])
def test_one_update_does_not_outgrow_the_room(optimiser: str):
    members = population(time=10.0, optimiser=optimiser, rate=0.04, alpha=0.2)
    (room,) = needed_room(members)
    gradients = {name: -1e6 * torch.ones_like(p) for name, p in members.parameters.items()}
    members.optimiser.update(members.parameters, gradients)
    alpha = torch.sigmoid(members.parameters[ALPHA].detach().double())
    assert number_of_terms(10.0 * alpha, default_tolerance(torch.float32)) <= room


def test_fixed_steps_need_as_many_as_the_longest_time():
    options = {"variant": "nonlinear", "solver": "rk4", "step_size": 0.5, "time": 3.0}
    fixed = population(**options)
    assert needed_room(fixed) == (6,) and not fixed.stack.model.learns_capacity()
    learnt = population(**options, learn_time=True)
    assert needed_room(learnt) == (7,) and learnt.stack.model.learns_capacity()


def test_exponential_steps_need_room_for_their_series():
    """Steps, and τα in eighths; only what has grown gets more than it needs."""
    options = {"variant": "nonlinear", "solver": "exponential-two-step", "step_size": 2.0, "time": 6.0}
    members = population(**options)
    (steps, parts) = needed_room(members)
    assert steps == 3 and parts == 9 and members.stack.model.learns_capacity()  # τα a little above 1
    step = Recorded(members)
    for _ in range(2):
        step.replay()
    with torch.no_grad():
        members.parameters[ALPHA] += 1.0
    step.replay()
    (room, needed) = step.rooms[1], needed_room(members)
    assert room == (3, needed[1] + capturing.GROWTH) and needed[1] > parts
    shrinks_where_it_pays(step, 4.0)


def test_a_fixed_alpha_needs_one_look():
    members = population(time=10.0, alpha=1.0)
    assert not members.stack.model.learns_capacity()
    terms = number_of_terms(torch.tensor([10.0]), default_tolerance(torch.float32))
    assert needed_room(members) == (terms,)


# growing as fast as the second moment forgets; the last one is all that is remembered
FURTHEST = {
    "adam": [1e-140 * (0.999 / 0.9) ** k for k in range(6000)],
    "adamax": [(1 / 0.999) ** k for k in range(200)],
    "rmsprop": [0.0, 0.0, 1.0],
}


@pytest.mark.parametrize("gradients", ["furthest", "constant", "alternating", "shrinking"])
@pytest.mark.parametrize("optimiser", FURTHEST)
def test_the_longest_step_of_an_optimiser(optimiser: str, gradients: str) -> None:
    tried = {
        "furthest": FURTHEST[optimiser],
        "constant": [1e3] * 50,
        "alternating": [(-1e3) ** (k % 2) for k in range(50)],
        "shrinking": [1e9 * 0.5**k for k in range(50)],
    }[gradients]
    parameters = {"p": torch.zeros(1, 1, dtype=torch.float64)}
    rule = Optimiser(optimiser, parameters, torch.ones(1).double(), torch.zeros(1).double())
    largest = 0.0
    for gradient in tried:
        before = parameters["p"].clone()
        rule.update(parameters, {"p": torch.full((1, 1), gradient, dtype=torch.float64)})
        largest = max(largest, float((parameters["p"] - before).abs()))
    assert largest <= REACH[optimiser] * (1 + 1e-9)
    if gradients == "furthest":
        assert largest > 0.99 * REACH[optimiser]


def test_room_that_has_no_bound_is_not_captured() -> None:
    """A step of SGD can be of any length: what it learns of T or α cannot be foreseen."""
    assert has_bound(population(optimiser="adam")) and has_bound(
        population(optimiser="adam", learn_time=True)
    )
    assert not has_bound(population(optimiser="sgd"))
    assert has_bound(population(optimiser="sgd", alpha=1.0))
    assert not has_bound(population(optimiser="sgd", alpha=1.0, learn_time=True))


def test_a_learnt_time_below_the_shortest_needs_room_all_the_same() -> None:
    members = population(learn_time=True)
    with torch.no_grad():
        members.parameters["diffusion.time"].fill_(-3.0)
    assert needed_room(members)[0] >= 1
