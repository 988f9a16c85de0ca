"""Rewiring: the spatial discretisation as a choice (section 4 of the paper).

Before training, :class:`Rewire` replaces the edges of a graph by those along which heat or a random
walk flows most, and :func:`knn_graph` builds a graph where none is given. During training,
:func:`attention_mask` picks the edges to keep from the attention at t = 0 (equation 12).
"""

from .attention import attention_mask
from .neighbours import knn_graph
from .transform import Rewire

__all__ = ["Rewire", "attention_mask", "knn_graph"]
