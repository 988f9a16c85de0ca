"""Pictures made from run folders or from the library itself; needs the extra ``plots``."""

from .depth import plot_depth
from .diffusion import plot_diffusion
from .ensemble import plot_choice
from .run import plot_run
from .sparsity import plot_sparsity
from .stability import plot_stability, step_errors
from .step_diagrams import StepDiagram, step_diagram
from .steps import FIGURE_1, plot_steps
from .superpixels import animate_superpixels, plot_superpixels

__all__ = [
    "FIGURE_1",
    "StepDiagram",
    "animate_superpixels",
    "plot_choice",
    "plot_depth",
    "plot_diffusion",
    "plot_run",
    "plot_sparsity",
    "plot_stability",
    "plot_steps",
    "plot_superpixels",
    "step_diagram",
    "step_errors",
]
