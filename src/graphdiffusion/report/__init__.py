"""Pictures and pages, made from run folders, results files or the library itself."""

from .curves import plot_curves, read_curves
from .depth import plot_depth
from .diffusion import plot_diffusion
from .ensemble import plot_baselines, plot_choice, plot_confusion, plot_race, plot_reliability
from .page import write_comparison, write_report
from .run import plot_members, plot_run
from .stability import plot_stability, step_errors
from .superpixels import animate_superpixels, plot_superpixels

__all__ = [
    "animate_superpixels",
    "plot_baselines",
    "plot_choice",
    "plot_confusion",
    "plot_curves",
    "plot_depth",
    "plot_diffusion",
    "plot_members",
    "plot_race",
    "plot_reliability",
    "plot_run",
    "plot_stability",
    "plot_superpixels",
    "read_curves",
    "step_errors",
    "write_comparison",
    "write_report",
]
