"""A playground for lessons: diffusion on a small graph, in a browser, computed by this library."""

from .page import serve_playground, write_playground

__all__ = ["serve_playground", "write_playground"]
