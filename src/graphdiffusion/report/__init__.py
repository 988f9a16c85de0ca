"""Pictures made from run folders or from the library itself; needs the extra ``plots``."""

from .depth import plot_depth
from .diffusion import plot_diffusion
from .ensemble import plot_choice
from .run import plot_run
from .schemes import plot_schemes
from .stability import plot_stability, step_errors
from .superpixels import animate_superpixels, plot_superpixels

__all__ = [
    "animate_superpixels",
    "plot_choice",
    "plot_depth",
    "plot_diffusion",
    "plot_run",
    "plot_schemes",
    "plot_stability",
    "plot_superpixels",
    "step_errors",
]
