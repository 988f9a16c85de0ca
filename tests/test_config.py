"""The configuration: TOML there and back, names, values and bounds."""

from __future__ import annotations

import copy
import pickle
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiffusion.data import load_data
from graphdiffusion.errors import ConfigError
from graphdiffusion.experiments import Plan
from graphdiffusion.nn import MODELS
from graphdiffusion.options import components, options_of
from graphdiffusion.registry import registries
from graphdiffusion.training import Config, protocol
from graphdiffusion.training.choices import all_options, applicable


def test_toml_round_trip(tmp_path):
    config = Config(data='C:\\graphs\\"mine"\n\tα', time=1e-5, lcc=False, variant="nonlinear", rate=3)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert Config.from_toml(path) == config
    assert isinstance(Config.from_toml(path).rate, float)
    assert list(tomllib.loads(config.to_toml())) == list(config.to_dict())


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(1e-300, 1e38),
    st.integers(0, 999_995),
    st.booleans(),
)
def test_toml_holds_any_value(text, number, whole, choice):
    config = Config(data=text, time=number, seed=whole, relu=choice)
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


def test_every_option_says_what_it_is():
    for kind, registry in registries().items():
        for label, cls in registry.classes().items():
            for option in options_of(cls).values():
                assert option.help.endswith(".") and option.group, f"{kind} {label}: {option.name}"
                assert not {"`", "\\"} & set(option.help), f"{kind} {label}: {option.name}: {option.help}"
    assert all(option.help.endswith(".") and option.group for option in all_options().values())


def test_classes_that_share_an_option_agree_on_it():
    """A choice that is left open, such as solver auto, has one value for all classes it may stand for."""
    for model in MODELS.names():
        for part in components(MODELS[model], {}):
            for name, option in options_of(part).items():
                shown = applicable({"model": model})[name]
                assert (option.kind, option.default) == (shown.kind, shown.default), f"{part}: {name}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"solver": "rk4", "rtol": 1e-3}, "rtol is an option of solver dopri5, "),
        (
            {"model": "gcn", "time": 3.0},
            "time is an option of model cgnn, model gde, model gode, model grand, and ",
        ),
        ({"terms": "", "detach_source": True}, "detach_source is an option of term source"),
        ({"diffusivity": "laplacian", "heads": 2}, "heads is an option of diffusivity "),
        ({"model": "mlp", "sweep": 2.0}, "the model mlp does not give results at several times"),
        ({"model": "gcn", "label_rate": 0.5}, "the model gcn does not take labels as features"),
        ({"model": "gnc"}, "model must be one of "),
        ({"terms": "source,sink"}, "terms must be names out of "),
        ({"terms": "source,fisher,source"}, "terms has 'source' twice: name it once"),
        ({"attention_dim": 8, "heads": 3}, "attention_dim must be a positive multiple of heads"),
        ({"variant": "nonlinear", "solver": "exponential"}, "needs an equation with a closed form"),
        ({"keep": 0.5, "mass": 0.5}, "give at most one of keep, threshold and mass"),
    ],
)
def test_options_that_do_not_go_together(options, says):
    with pytest.raises(ConfigError) as caught:
        Config(**options)
    assert says in str(caught.value)


def test_what_is_inherited_follows_the_choices():
    """Options below those given, of a preset for example, count where the chosen classes have them."""
    below = {"solver": "rk4", "step_size": 0.5, "hidden": 16}
    config = Config.from_dict({"solver": "dopri5", "rtol": 1e-5}, below)
    assert config.hidden == 16 and config.rtol == 1e-5 and not hasattr(config, "step_size")
    assert config.replace(solver="rk4").step_size == 1.0
    with pytest.raises(ConfigError, match="unknown option 'stepsize'"):
        Config.from_dict({}, {"stepsize": 0.5})


def test_per_member():
    assert Config().per_member == (
        "rate", "decay", "label_rate", "time", "alpha", "input_dropout", "dropout", "rtol", "atol",
    )  # fmt: skip
    assert "rtol" not in Config(variant="nonlinear", solver="rk4").per_member
    assert Config(model="gcn").per_member == ("rate", "decay", "label_rate", "dropout")


def test_names_of_models():
    assert (Config().row, Config().title) == ("linear", "GRAND-l")
    assert (Config(model="gcn").row, Config(model="gcn").title) == ("gcn", "GCN")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hiden": 8}, "unknown option 'hiden': did you mean 'hidden'?"),
        ({"zzzz": 8}, "unknown option 'zzzz': known: data, lcc"),
        ({"hidden": 8.0}, "hidden must be a whole number, got 8.0"),
        ({"hidden": True}, "hidden must be a whole number, got True"),
        ({"relu": 1}, "relu must be true or false, got 1"),
        ({"time": "3"}, "time must be a number, got '3'"),
        ({"data": 3}, "data must be a text, got 3"),
        ({"time": float("inf")}, "time must be finite"),
        ({"solver": "euler", "step_size": 0.0}, "step_size must be greater than 0"),
        ({"alpha": 0.0}, "alpha must be greater than 0 and at most 1, got 0.0"),
        ({"alpha": 1.5}, "alpha must be greater than 0 and at most 1, got 1.5"),
        ({"patience": -1}, "patience must be at least 0"),
        ({"optimiser": "adan"}, "got 'adan'. Did you mean 'adam'?"),
        ({"variant": "nonlinear", "rtol": 0.0, "atol": 0.0}, "one of rtol and atol must be positive"),
        ({"root": "data"}, "root is no option of a configuration"),
        ({"inits": 1001}, "inits must be between 1 and 1000, got 1001"),
        ({"seed": 10**23}, "seed must be between 0 and 999999, got 100000000000000000000000"),
        ({"seed": 10**5000}, "seed must be between 0 and 999999, got a number of 16610 bits"),
        ({"seed": 999_998, "splits": 3}, "seed + splits must be at most 1000000, got 999998 + 3"),
        ({"hidden": 2**31}, "hidden must be at most 2147483647, got 2147483648"),
        ({"time": 1e39}, "time must be at most 3.4e+38, got 1e+39"),
        ({"time": 10**400}, "time must be finite, got inf"),
        ({"data": "\udcff"}, "data must be text in UTF-8"),
        ({"hidden": {"a": 1}}, "hidden must be a whole number, got {'a': 1}"),
        ({"variant": ["linear"]}, "variant must be one of linear, nonlinear, nonlinear-rewired"),
        ({3: 4}, "unknown option 3"),
    ],
)
def test_refused(options, says):
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(options)
    assert says in str(caught.value)


def test_no_seed_is_used_twice():
    """The seeds of reported trainings stay as they were; those that would meet others are refused."""
    data = load_data("cora-embedded")
    first = protocol(Config(splits=2, inits=1000), data)
    assert [(m.split, m.init) for m in first[998:1002]] == [(0, 998), (0, 999), (1, 1000), (1, 1001)]
    last = protocol(Config(seed=999_998, splits=2, inits=1000), data)
    assert len({m.init for m in first + last}) == 4000
    largest = max(m.init for m in last)
    for plan in (Plan(), Plan(seed=999_999, seeds=1000, final_seeds=9000)):
        assert min(plan.race_seeds) * 1000 > largest
        assert not set(plan.race_seeds) & set(plan.fresh_seeds)
    assert max(Plan(seed=1, final_seeds=9000).fresh_seeds) < min(Plan(seed=2).race_seeds)
    assert (max(Plan(seed=999_999, final_seeds=9000).fresh_seeds) + 1) * 1000 < 2**63
    with pytest.raises(ConfigError, match="seed must be between 0 and 999999, got 1000000"):
        Plan(seed=1_000_000)
    for split in ("planetoid", "all"):
        assert Config(seed=999_999, split=split).seed == 999_999  # each is one split
    with pytest.raises(ConfigError, match=r"at most 1000000, got 999999 \+ 5"):
        Config(seed=999_999)


def test_copies():
    config = Config()
    assert config.replace(hidden=16) == Config(hidden=16) != config
    assert config.replace() == config and hash(config.replace()) == hash(config)
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    with pytest.raises(AttributeError, match="does not change"):
        config.hidden = 16
    with pytest.raises(AttributeError, match="no option 'hiden'"):
        config.hiden  # noqa: B018
    assert repr(Config(hidden=16, solver="rk4")) == "Config(hidden=16, solver='rk4')"
    with pytest.raises(ConfigError, match="unknown option"):
        config.replace(hiden=16)
    assert Config.from_dict(config.to_dict()) == config
