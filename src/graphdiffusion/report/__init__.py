"""Pictures and pages, made from run folders, results files or the library itself."""

from .claims import plot_claims
from .curves import plot_curves, read_curves
from .depth import plot_depth
from .diffusion import plot_diffusion
from .ensemble import plot_baselines, plot_choice, plot_confusion, plot_race, plot_reliability
from .page import write_comparison, write_report
from .run import plot_members, plot_run
from .schemes import plot_schemes
from .sparsity import plot_sparsity
from .stability import plot_stability, step_errors
from .step_diagrams import StepDiagram, step_diagram
from .steps import FIGURE_1, plot_steps
from .successors import plot_successors
from .superpixels import animate_superpixels, plot_superpixels
from .view import serve_view, write_view

__all__ = [
    "FIGURE_1",
    "StepDiagram",
    "animate_superpixels",
    "plot_baselines",
    "plot_choice",
    "plot_claims",
    "plot_confusion",
    "plot_curves",
    "plot_depth",
    "plot_diffusion",
    "plot_members",
    "plot_race",
    "plot_reliability",
    "plot_run",
    "plot_schemes",
    "plot_sparsity",
    "plot_stability",
    "plot_steps",
    "plot_successors",
    "plot_superpixels",
    "read_curves",
    "serve_view",
    "step_diagram",
    "step_errors",
    "write_comparison",
    "write_report",
    "write_view",
]
