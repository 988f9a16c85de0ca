"""Images from files, as arrays in [0, 1]; needs Pillow, which comes with the extra `images`."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.arrays import load_array
from graphdiffusion.data.foreign import reason
from graphdiffusion.data.superpixels import skimage
from graphdiffusion.errors import DataError

PIXELS = 1 << 26  # of a file, before it is made smaller
SIDE = 256  # the longer one, of the image that is returned


def read_image(path: Path) -> tuple[NDArray[np.float64], list[str]]:
    """An image (h, w) grey or (h, w, 3) colour, in [0, 1], and notes about what was done to it.

    Args:
        path: PNG, JPEG or another format that Pillow reads, or .npy: an array (h, w) or (h, w, c) with 1 to
            4 channels. Integers count from 0 to 255 or 65,535, floating-point numbers from 0 to 1, or from
            the smallest to the largest if some lie outside. Behind transparent pixels is white; of an
            animation the first frame is taken. The longer side of the result has at most 256 pixels.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file; name an image, PNG, JPEG or NumPy's .npy")
    notes: list[str] = []
    pixels = load_array(path) if path.suffix == ".npy" else _decode(path, notes)
    image, more = as_image(pixels, path.name)
    return image, notes + more


def as_image(pixels: NDArray[Any], name: str) -> tuple[NDArray[np.float64], list[str]]:
    """The pixels of an array as :func:`read_image` gives them."""
    notes: list[str] = []
    return _smaller(_opaque(_unit(pixels, name)), notes), notes


def _decode(path: Path, notes: list[str]) -> NDArray[Any]:
    skimage("io")  # Pillow comes with it
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings(), Image.open(path) as file:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if file.width * file.height > PIXELS:
                raise DataError(f"{path.name} has more than {PIXELS:,} pixels; make it smaller")
            if getattr(file, "n_frames", 1) > 1:
                notes.append(f"{path.name} is an animation: its first frame is taken")
            upright = ImageOps.exif_transpose(file)  # cameras note how they were held
            if "transparency" in upright.info and upright.mode in ("1", "L", "RGB"):
                upright = upright.convert("RGBA")  # one grey or colour stands for transparent
            if upright.mode in ("L", "LA", "RGB", "RGBA", "F") or upright.mode.startswith("I"):
                return np.asarray(upright)
            # palettes and printers' colours; a palette may have a transparent entry
            return np.asarray(upright.convert("L" if upright.mode == "1" else "RGBA"))
    except DataError:
        raise
    except Exception as error:  # a damaged image may raise anything
        raise DataError(
            f"{path.name} cannot be read as an image ({reason(error)}); name a PNG, JPEG or .npy file"
        ) from error


def _unit(pixels: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Values in [0, 1] with channels last: (h, w, c)."""
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 2, 3, 4) or not pixels.size:
        raise DataError(
            f"{name} must hold an image (h, w) or (h, w, 3), got an array of shape {pixels.shape}"
        )
    if pixels.shape[0] * pixels.shape[1] > PIXELS:
        raise DataError(f"{name} has more than {PIXELS:,} pixels; make it smaller")
    if pixels.dtype == bool or pixels.dtype in (np.uint8, np.uint16):
        return pixels / (1 if pixels.dtype == bool else np.iinfo(pixels.dtype).max)
    if pixels.dtype.kind not in "iuf":
        raise DataError(f"{name} must hold numbers, got {pixels.dtype}")
    values = pixels.astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError(f"{name} holds NaN or infinity; an image has neither")
    low, high = values.min(), values.max()
    if pixels.dtype.kind == "f" and low >= 0 and high <= 1:
        return values
    if pixels.dtype.kind in "iu" and low >= 0 and high < 1 << 16:  # Pillow gives 16 bits as 32
        return values / (255 if high < 256 else (1 << 16) - 1)
    # halves, because the difference of two finite numbers may be infinite
    return (values / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.zeros_like(values)


def _opaque(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without an alpha channel; (h, w) where it is grey."""
    if image.shape[2] in (2, 4):
        alpha = image[..., -1:]
        image = image[..., :-1] * alpha + (1 - alpha)
    if image.shape[2] == 3 and (image == image[..., :1]).all():
        image = image[..., :1]
    return image[..., 0] if image.shape[2] == 1 else image


def _smaller(image: NDArray[np.float64], notes: list[str]) -> NDArray[np.float64]:
    height, width = image.shape[:2]
    if max(height, width) <= SIDE:
        return image
    factor = SIDE / max(height, width)
    shape = tuple(max(1, round(factor * side)) for side in (height, width))
    notes.append(f"the image of {width} × {height} pixels is shrunk to {shape[1]} × {shape[0]}")
    small = skimage("transform").resize(image, shape + image.shape[2:], anti_aliasing=True)
    return np.clip(small, 0, 1)
