"""Pictures made from run folders or from the library itself; needs the extra ``plots``."""

from .claims import plot_claims
from .depth import plot_depth
from .diffusion import plot_diffusion
from .ensemble import plot_choice
from .run import plot_run
from .stability import plot_stability, step_errors
from .superpixels import animate_superpixels, plot_superpixels

__all__ = [
    "animate_superpixels",
    "plot_choice",
    "plot_claims",
    "plot_depth",
    "plot_diffusion",
    "plot_run",
    "plot_stability",
    "plot_superpixels",
    "step_errors",
]
