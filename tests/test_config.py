"""The configuration: TOML there and back, names, values and bounds."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiffusion import GRANDClassifier
from graphdiffusion.errors import ConfigError
from graphdiffusion.experiments import Plan
from graphdiffusion.training import Config, protocol


def test_toml_round_trip(tmp_path):
    config = Config(data='C:\\graphs\\"mine"\n\tα', time=1e-5, lcc=False, variant="nonlinear", rate=3)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert Config.from_toml(path) == config
    assert isinstance(Config.from_toml(path).rate, float)
    assert list(tomllib.loads(config.to_toml())) == [f.name for f in fields(Config)]


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
    for field in fields(Config):
        assert field.metadata["help"].endswith(".") and field.metadata["group"]


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
        ({"step_size": 0.0}, "step_size must be greater than 0"),
        ({"alpha": 0.0}, "with 0 nothing diffuses"),
        ({"alpha": 1.5}, "alpha must be between 0 and 1, got 1.5"),
        ({"patience": -1}, "patience must be at least 0"),
        ({"optimiser": "adan"}, "got 'adan'. Did you mean 'adam'?"),
        ({"rtol": 0.0, "atol": 0.0}, "rtol and atol must not both be 0"),
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
    first = protocol(Config(splits=2, inits=1000))
    assert [(m.split, m.init) for m in first[998:1002]] == [(0, 998), (0, 999), (1, 1000), (1, 1001)]
    last = protocol(Config(seed=999_998, splits=2, inits=1000))
    assert len({m.init for m in first + last}) == 4000
    largest = max(m.init for m in last)
    for plan in (Plan(), Plan(seed=999_999, seeds=1000, final_seeds=9000)):
        assert min(plan.race_seeds) * 1000 > largest
        assert not set(plan.race_seeds) & set(plan.fresh_seeds)
    assert max(Plan(seed=1, final_seeds=9000).fresh_seeds) < min(Plan(seed=2).race_seeds)
    assert (max(Plan(seed=999_999, final_seeds=9000).fresh_seeds) + 1) * 1000 < 2**63
    with pytest.raises(ConfigError, match="seed must be between 0 and 999999, got 1000000"):
        Plan(seed=1_000_000)
    with pytest.raises(ConfigError, match="seed must be between 0 and 999999"):
        GRANDClassifier(seed=1_000_000).fit(None)
    assert Config(seed=999_999, split="given").seed == 999_999  # a fixed split is one


def test_copies():
    config = Config()
    assert config.but(hidden=16) == replace(config, hidden=16)
    assert config.but() == config
    with pytest.raises(ConfigError, match="unknown option"):
        config.but(hiden=16)
    assert Config.from_dict(config.to_dict()) == config
