"""A graph in parts, one for each process: how it is cut, what a part holds, and what parts exchange."""

from .cut import METHODS, cut
from .part import Part, split

__all__ = ["METHODS", "Part", "cut", "split"]
