"""A graph in parts, one for each process: how it is cut, what a part holds, and what parts exchange."""

from .part import Part, split

__all__ = ["Part", "split"]
