"""The configuration: TOML there and back, names, values and bounds."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiffusion.errors import ConfigError
from graphdiffusion.training import Config


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
    ],
)
def test_refused(options, says):
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(options)
    assert says in str(caught.value)


def test_copies():
    config = Config()
    assert config.but(hidden=16) == replace(config, hidden=16)
    assert config.but() == config
    with pytest.raises(ConfigError, match="unknown option"):
        config.but(hiden=16)
    assert Config.from_dict(config.to_dict()) == config
