"""Trainings as pages that are looked at in a browser: each one file, without a network."""

from .compare import write_comparison
from .report import write_report

__all__ = ["write_comparison", "write_report"]
