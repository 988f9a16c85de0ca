"""Pictures made from run folders or from the library itself; needs the extra ``plots``."""

from .diffusion import plot_diffusion
from .ensemble import plot_choice
from .run import plot_run
from .stability import plot_stability, step_errors

__all__ = ["plot_choice", "plot_diffusion", "plot_run", "plot_stability", "step_errors"]
