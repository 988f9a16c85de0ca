"""What all pictures share: the backend, the colours, and how they are saved."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every kind of colour blindness
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"


PANEL = (3.0, 2.6)  # inches of one of several pictures in a row


def new_figure(**how: Any) -> tuple[Figure, Any]:
    """Figure and axes on a canvas that needs no display; arguments as of ``plt.subplots``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # only where pictures are drawn
    from matplotlib.figure import Figure

    grid = {
        key: how.pop(key) for key in ("nrows", "ncols", "sharex", "sharey", "height_ratios") if key in how
    }
    figure = Figure(layout="constrained", **how)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**grid)


def axes_of(ax: Axes | None, **how: Any) -> tuple[Figure, Axes]:
    """The axes that are given with their figure, or those of a new one; arguments as of ``new_figure``."""
    if ax is None:
        return new_figure(**{"figsize": (5.2, 3.2), **how})
    return ax.figure, ax  # type: ignore[return-value]


def tidy(axes: Axes) -> None:
    """No frame on top and right, a light grid behind."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a PNG; the same picture gives the same bytes."""
    path, picture = Path(path), io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    write_bytes(path, picture.getvalue())
    return path
