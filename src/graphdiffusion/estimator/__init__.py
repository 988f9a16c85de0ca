"""scikit-learn's face: estimators that classify nodes, or predict numbers for them."""

from .classifier import GRANDClassifier
from .regressor import GRANDRegressor

__all__ = ["GRANDClassifier", "GRANDRegressor"]
