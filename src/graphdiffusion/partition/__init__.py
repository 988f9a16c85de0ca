"""A graph in parts, one for each process: how it is cut, what a part holds, and what parts exchange."""

from .cut import METHODS, cut
from .fields import SparseRows
from .outofcore import write_parts_of_edges
from .part import Part, split
from .store import About, read_about, read_assignment, read_part, write_parts
from .whole import use_part

__all__ = [
    "METHODS",
    "About",
    "Part",
    "SparseRows",
    "cut",
    "read_about",
    "read_assignment",
    "read_part",
    "split",
    "use_part",
    "write_parts",
    "write_parts_of_edges",
]
