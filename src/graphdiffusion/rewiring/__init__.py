"""Rewiring: the spatial discretisation as a choice (section 4 of the paper).

Transforms from one set of edges to another, before training: :class:`Rewire` replaces the edges of a graph
by those along which heat or a random walk flows most, and :func:`knn_graph` builds a graph where none is
given. The mask that follows the attention (equation 12) belongs to the equation.
"""

from .neighbours import knn_graph
from .transform import Rewire

__all__ = ["Rewire", "knn_graph"]
