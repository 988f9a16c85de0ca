"""The default for a graph of one's own: a race of configurations, and an ensemble of the best."""

from .automatic import Automatic, Standing
from .choice import choose
from .plan import Plan, make_plan
from .portfolio import Candidate, portfolio
from .result import Ensemble, load_ensemble

__all__ = [
    "Automatic",
    "Candidate",
    "Ensemble",
    "Plan",
    "Standing",
    "choose",
    "load_ensemble",
    "make_plan",
    "portfolio",
]
