"""A scheme is a tableau: Tsitouras 5(4).

    grand train cora-embedded --plugin examples/extending/solver.py --variant nonlinear --solver example

Coefficients: Ch. Tsitouras, Computers and Mathematics with Applications 62 (2011) 770-775.
"""

from graphdiffusion.solvers import SOLVERS, AdaptiveRungeKutta, Tableau

B = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
    0.0,
)


@SOLVERS.register("example")
class Tsitouras(AdaptiveRungeKutta):
    """Tsitouras 5(4). Order 5, 6 evaluations a step, a smaller error than Dormand-Prince's.

    Between steps a cubic of order 3 interpolates.
    """

    tableau = Tableau(
        5,
        (
            (0.161,),
            (-0.008480655492356989, 0.335480655492357),
            (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
            (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
            (
                5.86145544294642,
                -12.92096931784711,
                8.159367898576159,
                -0.071584973281401,
                -0.028269050394068383,
            ),
            B[:-1],
        ),
        B,
        error=(
            -0.00178001105222577714,
            -0.0008164344596567469,
            0.007880878010261995,
            -0.1447110071732629,
            0.5823571654525552,
            -0.45808210592918697,
            0.015151515151515152,
        ),
        limit=1.7,
    )
