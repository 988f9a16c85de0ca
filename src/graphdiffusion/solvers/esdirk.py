"""A stiff scheme that adapts its step: ESDIRK of order 4."""

from __future__ import annotations

from .base import SOLVERS
from .implicit import AdaptiveImplicit, DiagonallyImplicit
from .tableau import Tableau


@SOLVERS.register("esdirk")
class ESDIRK4(DiagonallyImplicit, AdaptiveImplicit):
    """Kennedy and Carpenter's ESDIRK 4(3), 2003, implicit, for stiff equations. Order 4, L-stable.

    The implicit half of ARK4(3)6L[2]SA (Additive Runge-Kutta schemes for convection-diffusion-reaction
    equations, Applied Numerical Mathematics 44): six stages, the first explicit, five solved by
    Newton-Krylov. Stiffly accurate, stage order 2; the embedded solution of order 3 is A-stable.
    Jacobian-vector products count as evaluations. Between steps a cubic, of order 3.
    """

    keeps_last = True
    tableau = Tableau(
        4,
        (
            (1 / 4,),
            (8611 / 62500, -1743 / 31250),
            (5012029 / 34652500, -654441 / 2922500, 174375 / 388108),
            (15267082809 / 155376265600, -71443401 / 120774400, 730878875 / 902184768, 2285395 / 8070912),
            (82889 / 524892, 0.0, 15625 / 83664, 69875 / 102672, -2260 / 8211),
        ),
        (82889 / 524892, 0.0, 15625 / 83664, 69875 / 102672, -2260 / 8211, 1 / 4),
        error=(
            82889 / 524892 - 4586570599 / 29645900160,
            0.0,
            15625 / 83664 - 178811875 / 945068544,
            69875 / 102672 - 814220225 / 1159782912,
            -2260 / 8211 + 3700637 / 11593932,
            1 / 4 - 61727 / 225920,
        ),
        diagonal=1 / 4,
    )
