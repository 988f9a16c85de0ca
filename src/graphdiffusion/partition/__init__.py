"""A graph in parts, one for each process: how it is cut, what a part holds, and what parts exchange."""

from .part import Part, split
from .whole import use_part

__all__ = ["Part", "split", "use_part"]
