"""Block diagrams of a step of each scheme: figure 1 of the paper, from the code's own coefficients."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from .step_diagrams import Stage, StepDiagram, step_diagram, weight_label
from .style import BLUE, GREY, RED, new_figure, save

FIGURE_1 = ("euler", "rk4", "semi-implicit", "adams-bashforth", "adams-moulton")
INK, FILL, KEPT = "#333333", "#E3EEF6", "#F3F3F3"
RAIL, MIDDLE, ABOVE = 0.0, 1.5, 1.25  # heights of the sum and of the blocks, and of x above these
APART, LONGER, BEND = 2.1, 0.12, 0.35  # distance of blocks, more for each letter of a long weight; of arcs
WIDE, TALL, ROUND = 0.46, 0.3, 0.15  # half sizes of a block, radius of a sum
BEFORE = 0.85  # from a sum to the block that it feeds
HEAD, GAP, WIDEST = 2.2, 1.0, 22.5  # height of headings, between diagrams, width of a row
LETTER = 0.118  # width of a letter of a heading
LAYER = {"wire": 2, "shape": 3, "text": 4}


def plot_steps(path: str | os.PathLike[str], schemes: Sequence[str] = FIGURE_1) -> Path:
    """Draw one step of each scheme, by its registered name, and save the picture.

    The weights are those of the scheme's class: tableau, weights of a multistep formula, or equation (8).
    """
    diagrams = [step_diagram(name) for name in schemes]
    rows: list[list[StepDiagram]] = [[]]
    for own in diagrams:
        if rows[-1] and sum(width(d) + GAP for d in [*rows[-1], own]) > WIDEST:
            rows.append([])
        rows[-1].append(own)
    wide = max(max(sum(width(d) for d in row) + GAP * (len(row) - 1) for row in rows), 12.0)
    heights = [max(top(d) for d in row) + HEAD for row in rows]
    high = sum(heights) + 0.9
    figure, axis = new_figure(figsize=(0.68 * (wide + 0.6), 0.68 * high))
    axis.set_axis_off()
    axis.set_aspect("equal")
    axis.set_xlim(-0.4, wide + 0.2)
    axis.set_ylim(0, high)
    low = high
    for row, height in zip(rows, heights, strict=True):
        low -= height
        left = 0.0
        for own in row:
            Drawing(axis, own, left, low + 0.5, height - 0.5).draw()
            left += width(own) + GAP
    _legend(axis, 0.62)
    return save(figure, path)


def width(diagram: StepDiagram) -> float:
    """Of a diagram, its title included."""
    return max(_end(diagram) + 0.3, 1.2 * LETTER * len(diagram.title))


def top(diagram: StepDiagram) -> float:
    """Height of its highest wire: x runs above all arcs, which rise with their length."""
    if not any(stage.inputs for stage in diagram.stages):
        return MIDDLE + TALL
    skipped = [
        number - earlier
        for number, stage in enumerate(diagram.stages)
        for earlier, weight in enumerate(stage.inputs[:-1])
        if weight
    ]
    arc = TALL + 0.5 * BEND * (max(skipped) * apart(diagram) - BEFORE) + 0.35 if skipped else 0.0
    return MIDDLE + max(ABOVE, arc)


def apart(diagram: StepDiagram) -> float:
    """Distance of its blocks: room for the longest weight between two."""
    lengths = [len(weight_label(stage.inputs[-1])) for stage in diagram.stages if stage.inputs]
    return APART + LONGER * max(0, max(lengths, default=0) - 3)


def _end(diagram: StepDiagram) -> float:
    """Where x⁺ stands."""
    return apart(diagram) * len(diagram.stages) + 1.35


class Drawing:
    """One diagram.

    Below runs the sum from x to x⁺, in the middle stand the blocks, above runs x to the later stages.

    Args:
        axis: Where to draw.
        diagram: What to draw.
        left, low: Where x is.
        head: Height of the heading above x.
    """

    def __init__(self, axis: Any, diagram: StepDiagram, left: float, low: float, head: float) -> None:
        self.axis, self.diagram, self.left, self.low, self.head = axis, diagram, left, low, head
        self.apart, self.top = apart(diagram), top(diagram)
        self.labels: list[str] = []

    def draw(self) -> None:
        own = self.diagram
        end = _end(own)
        lines = wrap(own.relation, int((width(own) + 0.2) / LETTER))
        self._text(-0.2, self.head - 0.3, own.title, size=12.5, weight="bold", ha="left", va="top")
        how: dict[str, Any] = {"size": 10, "color": "#555555", "linespacing": 1.3}
        self._text(-0.2, self.head - 0.72, "\n".join(lines), ha="left", va="top", **how)
        self._name(0.0, "x")
        self._name(end, "x⁺")
        sums = [place for place, stage in self._places() if stage.output]
        starts, stops = [0.28, *(s + ROUND for s in sums)], [*(s - ROUND for s in sums), end - 0.3]
        for start, stop in zip(starts, stops, strict=True):
            self._wire([(start, RAIL), (stop, RAIL)], width=2.2)
        for place in sums:
            self._sum(place, RAIL)
        later = [place - BEFORE for place, stage in self._places() if stage.inputs]
        if later:  # x runs above all blocks to every stage
            self._wire([(0, MIDDLE), (0, self.top), (later[-1], self.top), (later[-1], MIDDLE + ROUND)])
            for place in later[:-1]:
                self._dot(place, self.top)
                self._wire([(place, self.top), (place, MIDDLE + ROUND)])
        for number, (place, stage) in enumerate(self._places()):
            self._stage(number, place, stage)

    def _places(self) -> list[tuple[float, Stage]]:
        return [(self.apart * (number + 1), stage) for number, stage in enumerate(self.diagram.stages)]

    def _stage(self, number: int, place: float, stage: Stage) -> None:
        colour = RED if stage.at_end else INK
        if stage.output:
            self._wire([(place, MIDDLE - TALL), (place, RAIL + ROUND)], colour)
            self._weight(place + 0.09, 0.68, stage.output, colour, ha="left")
        if stage.at_end:
            end = _end(self.diagram)
            self._wire([(end, RAIL + 0.28), (end, MIDDLE), (place + self._half(stage), MIDDLE)], RED)
            if stage.matrix:  # the old state gives the matrix
                self._wire([(0, RAIL + 0.28), (0, MIDDLE), (place - self._half(stage), MIDDLE)], style="--")
        elif stage.inputs:
            self._inputs(number, place, stage)
        elif number == 0:
            self._wire([(0, RAIL + 0.28), (0, MIDDLE), (place - WIDE, MIDDLE)])
            if any(other.inputs for other in self.diagram.stages):
                self._dot(0, MIDDLE)
        self._block(place, stage)

    def _inputs(self, number: int, place: float, stage: Stage) -> None:
        """The sum before a block, and what it adds up."""
        centre = place - BEFORE
        self._sum(centre, MIDDLE)
        self._wire([(centre + ROUND, MIDDLE), (place - WIDE, MIDDLE)])
        for earlier, weight in enumerate(stage.inputs):
            source = self.apart * (earlier + 1)
            if not weight:
                continue
            if earlier == number - 1:
                self._wire([(source + WIDE, MIDDLE), (centre - ROUND, MIDDLE)])
                self._weight((source + WIDE + centre - ROUND) / 2, MIDDLE + 0.2, weight)
            else:
                middle = self._arc((source, MIDDLE + TALL), (centre - 0.06, MIDDLE + ROUND), -BEND)
                self._weight(*middle, weight, size=8)
        if stage.itself:
            middle = self._arc((place - 0.2, MIDDLE - TALL), (centre, MIDDLE - ROUND), -0.9, RED)
            self._weight(middle[0] - 0.05, middle[1] - 0.2, stage.itself, RED)

    def _half(self, stage: Stage) -> float:
        return 0.85 if stage.matrix else WIDE

    def _block(self, place: float, stage: Stage) -> None:
        from matplotlib.patches import FancyBboxPatch

        half = self._half(stage)
        self.axis.add_patch(
            FancyBboxPatch(
                (self.left + place - half + 0.08, self.low + MIDDLE - TALL + 0.08),
                2 * half - 0.16,
                2 * TALL - 0.16,
                boxstyle="round,pad=0.08",
                facecolor=KEPT if stage.kept else FILL,
                edgecolor=GREY if stage.kept else (RED if stage.at_end else BLUE),
                linestyle="--" if stage.kept else "-",
                linewidth=1.4,
                zorder=LAYER["shape"],
            )
        )
        colour = "#666666" if stage.kept else "black"
        self._text(place, MIDDLE, stage.label, size=11, style="italic", color=colour)

    def _sum(self, place: float, height: float) -> None:
        from matplotlib.patches import Circle

        where = (self.left + place, self.low + height)
        self.axis.add_patch(
            Circle(where, ROUND, facecolor="white", edgecolor=INK, linewidth=1.3, zorder=LAYER["shape"])
        )
        for across in ((0.08, 0.0), (0.0, 0.08)):
            xs = [where[0] - across[0], where[0] + across[0]]
            ys = [where[1] - across[1], where[1] + across[1]]
            self.axis.plot(xs, ys, color=INK, linewidth=1.3, zorder=LAYER["text"])

    def _dot(self, place: float, height: float) -> None:
        self.axis.plot(
            [self.left + place], [self.low + height], "o", color=INK, markersize=4, zorder=LAYER["shape"]
        )

    def _wire(
        self, ends: Sequence[tuple[float, float]], colour: str = INK, style: str = "-", width: float = 1.3
    ) -> None:
        """A line through some places, with an arrow at the last."""
        xs, ys = ([own[axis] + (self.left, self.low)[axis] for own in ends] for axis in (0, 1))
        how = {"color": colour, "linestyle": style, "linewidth": width}
        self.axis.plot(xs[:-1], ys[:-1], zorder=LAYER["wire"], solid_capstyle="round", **how)
        self.axis.annotate(
            "",
            (xs[-1], ys[-1]),
            (xs[-2], ys[-2]),
            arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11, **how},
            zorder=LAYER["wire"],
        )

    def _arc(
        self, start: tuple[float, float], end: tuple[float, float], bend: float, colour: str = INK
    ) -> tuple[float, float]:
        """A bent arrow; where its middle is."""
        absolute = [(place + self.left, height + self.low) for place, height in (end, start)]
        how = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0}
        how |= {"color": colour, "linewidth": 1.1, "mutation_scale": 10}
        self.axis.annotate("", *absolute, arrowprops=how, zorder=LAYER["wire"])
        # of the quadratic curve that arc3 draws
        (x0, y0), (x1, y1) = start, end
        middle = ((x0 + x1) / 2 + bend * (y1 - y0) / 2, (y0 + y1) / 2 - bend * (x1 - x0) / 2)
        return middle

    def _weight(self, place: float, height: float, weight: float, colour: str = INK, **how: Any) -> None:
        label = weight_label(weight)
        self.labels.append(label)
        self._text(place, height, label, color=colour, box=True, **{"size": 10, **how})

    def _name(self, place: float, label: str) -> None:
        self._text(place, RAIL, label, size=14, style="italic")

    def _text(self, place: float, height: float, label: str, box: bool = False, **how: Any) -> None:
        how = {"ha": "center", "va": "center", **how}
        if box:
            how["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        self.axis.text(self.left + place, self.low + height, label, zorder=LAYER["text"], **how)


def _legend(axis: Any, low: float) -> None:
    """What the marks mean, below all diagrams."""
    text = (
        "f(x) = (A(x) − I) x with attention A(x);   ⊕ adds what arrives, times the weight at its wire;   "
        "dashed block: from an earlier step;   dashed arrow: where A is taken"
    )
    how = {"fontsize": 10, "va": "center"}
    axis.text(-0.2, low, text, color="#444444", **how)
    solved = "in this colour: fed by its own result, an equation is solved"
    axis.text(-0.2, low - 0.4, solved, color=RED, **how)
