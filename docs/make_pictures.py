"""Make the pictures of README and docs again: python docs/make_pictures.py"""

from pathlib import Path

from graphdiffusion.report import (
    plot_claims,
    plot_depth,
    plot_diffusion,
    plot_schemes,
    plot_sparsity,
    plot_stability,
    plot_steps,
    plot_successors,
    plot_superpixels,
)

ROBUST = ["edges", "attack", "adaptive"]

if __name__ == "__main__":
    docs = Path(__file__).parent
    folder = docs / "pictures"
    for made in (
        plot_claims(docs / "results" / "claims.json", folder / "claims.png"),
        plot_claims(docs / "results" / "claims-small.json", folder / "claims-small.png"),
        plot_depth(docs / "results" / "depth.json", folder / "depth.png"),
        plot_diffusion(folder / "diffusion.png"),
        plot_stability(folder / "stability.png"),
        plot_steps(folder / "steps.png"),
        plot_schemes(docs / "results" / "schemes.json", folder / "schemes.png"),
        plot_sparsity(docs / "results" / "sparsity.json", folder / "sparsity.png"),
        plot_sparsity(docs / "results" / "sparsity-small.json", folder / "sparsity-small.png"),
        *(
            plot_successors(docs / "results" / "successors.json", folder / f"successors-{name}.png", parts)
            for name, parts in (("sets", ["sets"]), ("labels", ["labels"]), ("robust", ROBUST))
        ),
        plot_superpixels(docs / "results" / "superpixels.json", folder / "superpixels.png"),
    ):
        print(made)
