"""Make the pictures of README and docs again: python docs/make_pictures.py"""

from pathlib import Path

from graphdiffusion.report import plot_diffusion, plot_stability

if __name__ == "__main__":
    folder = Path(__file__).parent / "pictures"
    for made in (plot_diffusion(folder / "diffusion.png"), plot_stability(folder / "stability.png")):
        print(made)
