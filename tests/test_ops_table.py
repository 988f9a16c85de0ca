"""Every operator under every transform of torch, with the kernels of stock torch."""

from __future__ import annotations

import pytest
from ops_table import CELLS, CHECKS, OPERATORS


@pytest.mark.parametrize(("operator", "check"), CELLS)
def test_table(operator: str, check: str) -> None:
    CHECKS[check](OPERATORS[operator], "torch")
