"""Synthetic images of a single object, with independent label factors and nuisance factors.

Positions and lengths are fractions of the image's side, and each image has its own random
generator. An image therefore shows the same scene at any size, except for pixel noise.
"""

import math
from colorsys import hsv_to_rgb

import numpy as np
from PIL import Image, ImageChops, ImageDraw

VERSION = 3
SUPERSAMPLING = 4
# Probability of a bar over an object, and standard deviation of pixel noise, a share of full
# brightness.
OCCLUSION, NOISE = 0.05, 0.04
# Augmentation must not change labels: tilts stay distinct under a flip and a change of the aspect
# ratio by 4/3, hues under a shift of 0.1. The sign of a tilt is random, so 30 also means -30.
FACTORS = {
    "shape": ("cross", "ellipse", "hourglass", "rectangle", "triangle"),
    "colour": ("blue", "cyan", "green", "magenta", "red", "yellow"),
    "texture": ("checks", "dots", "plain", "stripes"),
    "tilt": ("0", "30", "60", "90"),
    "mark": ("bars", "disc", "plus", "ring"),
}
# Binary attributes: name -> (factor, its classes with the attribute). "large" is a size > LARGE.
ATTRIBUTES = {
    "angular": ("shape", ("cross", "hourglass", "rectangle", "triangle")),
    "convex": ("shape", ("ellipse", "rectangle", "triangle")),
    "warm": ("colour", ("magenta", "red", "yellow")),
    "primary": ("colour", ("blue", "green", "red")),
    "patterned": ("texture", ("checks", "dots", "stripes")),
    "lined": ("texture", ("checks", "stripes")),
    "steep": ("tilt", ("60", "90")),
}
LARGE = 0.4  # the middle of the range of `object_size`
HUES = {"red": 0, "yellow": 1 / 6, "green": 2 / 6, "cyan": 3 / 6, "blue": 4 / 6, "magenta": 5 / 6}

Colour = tuple[int, int, int]


def draw(factors: dict[str, str], size: int, seed: list[int]) -> np.ndarray:
    """Returns an image, uint8 [size, size, 3], as a pure function of the arguments."""
    rng = np.random.default_rng(seed)
    side = size * SUPERSAMPLING
    canvas, centre, length = _begin(rng, side)
    turn = math.radians(float(factors["tilt"]) + rng.uniform(-6, 6)) * rng.choice([-1, 1])
    body = _body(factors["shape"], centre, length, turn, side)
    hue = HUES[factors["colour"]] + rng.uniform(-0.06, 0.06)
    canvas.paste(_colour(hue, rng.uniform(0.3, 1), rng.uniform(0.6, 1)), mask=body)
    # The pattern has a random hue: the object's mean colour must not reveal its class.
    pattern = ImageChops.logical_and(_texture(factors["texture"], centre, rng, side), body)
    canvas.paste(_colour(rng.random(), rng.uniform(0.3, 1), rng.uniform(0.1, 0.4)), mask=pattern)
    _mark(canvas, factors["mark"], centre, rng)
    if rng.random() < OCCLUSION:
        _occlude(canvas, centre, rng)
    pixels = np.asarray(canvas.reduce(SUPERSAMPLING), dtype=np.float32)
    pixels = pixels + rng.standard_normal(pixels.shape, dtype=np.float32) * (255 * NOISE)
    return pixels.clip(0, 255).astype(np.uint8)


def key_of(num_items: int, seed: int) -> str:
    """Returns the key of a data set of images. Another word in it would discard all caches."""
    return f"drawn {VERSION} {(num_items, seed, 1, OCCLUSION, NOISE)}"  # one blob behind an object


def object_size(seed: list[int]) -> float:
    """Returns half the object's length as a share of the image's side, in [0.36, 0.44)."""
    # The canvas is minimal: `_begin` only runs to bring the generator to the object's length.
    return _begin(np.random.default_rng(seed), SUPERSAMPLING)[2]


def _begin(rng: np.random.Generator, side: int) -> tuple[Image.Image, np.ndarray, float]:
    """Returns the background with a blob, the object's centre [2] and half its length."""
    canvas = _background(rng, side)
    _blob(canvas, rng)
    return canvas, rng.uniform(0.36, 0.64, 2), rng.uniform(0.36, 0.44)


def _colour(hue: float, saturation: float, value: float) -> Colour:
    red, green, blue = hsv_to_rgb(hue % 1, saturation, value)
    return int(255 * red), int(255 * green), int(255 * blue)


def _any_colour(rng: np.random.Generator, saturation: float, value: float = 1) -> Colour:
    return _colour(rng.random(), rng.uniform(0, saturation), rng.uniform(0.1, value))


def _background(rng: np.random.Generator, side: int) -> Image.Image:
    """Returns a smooth gradient between four corner colours, darker than any object."""
    corners = np.array([_any_colour(rng, 0.5, 0.25) for _ in range(4)], dtype=np.uint8)
    small = Image.fromarray(corners.reshape(2, 2, 3))
    return small.resize((side, side), Image.Resampling.BILINEAR)


def _blob(canvas: Image.Image, rng: np.random.Generator) -> None:
    """Draws a small ellipse or rectangle in a single colour at a random place."""
    side = canvas.width
    x, y = rng.uniform(0, side, 2)
    a, b = rng.uniform(0.04, 0.13, 2) * side
    box = (x - a, y - b, x + a, y + b)
    pen = ImageDraw.Draw(canvas)
    colour = _any_colour(rng, 0.9)
    (pen.ellipse if rng.random() < 0.5 else pen.rectangle)(box, fill=colour)


def _body(shape: str, centre: np.ndarray, length: float, turn: float, side: int) -> Image.Image:
    """Returns the mask of the object, longer than wide, rotated by `turn` radians."""
    outline = np.array(_OUTLINES[shape]) * [length, 0.7 * length]
    cos, sin = math.cos(turn), math.sin(turn)
    points = (outline @ np.array([[cos, sin], [-sin, cos]]) + centre) * side
    mask = Image.new("1", (side, side), 0)
    ImageDraw.Draw(mask).polygon(points.ravel().tolist(), fill=1)
    return mask


def _texture(texture: str, centre: np.ndarray, rng: np.random.Generator, side: int) -> Image.Image:
    """Returns the mask of a pattern's dark parts around a centre, at a random angle."""
    period, angle = rng.uniform(0.10, 0.14), rng.uniform(0, math.pi)
    period *= 1.5 if texture == "checks" else 1
    steps = np.arange(-_REACH, _REACH, period) + rng.uniform(0, period)
    along = np.array([math.cos(angle), math.sin(angle)])
    normal = np.array([-along[1], along[0]])
    if texture == "stripes":
        return _stripes(centre, along, normal, steps, side)
    if texture == "checks":
        there = _stripes(centre, along, normal, steps, side)
        return ImageChops.logical_xor(there, _stripes(centre, normal, along, steps, side))
    mask = Image.new("1", (side, side), 0)
    if texture == "dots":
        pen, radius = ImageDraw.Draw(mask), 0.3 * period * side
        lattice = np.add.outer(steps, 1j * steps).ravel() * complex(*along)
        for x, y in zip(lattice.real.tolist(), lattice.imag.tolist(), strict=True):
            u, v = (x + centre[0]) * side, (y + centre[1]) * side
            pen.ellipse((u - radius, v - radius, u + radius, v + radius), fill=1)
    return mask


def _stripes(
    centre: np.ndarray, along: np.ndarray, normal: np.ndarray, steps: np.ndarray, side: int
) -> Image.Image:
    """Returns the mask of parallel lines, each half a step wide."""
    mask = Image.new("1", (side, side), 0)
    pen, width = ImageDraw.Draw(mask), round((steps[1] - steps[0]) * side / 2)
    middles = centre + np.outer(steps, normal)
    ends = np.concatenate([middles - along * _REACH, middles + along * _REACH], axis=1) * side
    for line in ends.tolist():
        pen.line(line, 1, width)
    return mask


def _mark(canvas: Image.Image, mark: str, centre: np.ndarray, rng: np.random.Generator) -> None:
    """Draws a small light mark on or next to the object."""
    side, pen = canvas.width, ImageDraw.Draw(canvas)
    fill = (int(rng.uniform(215, 255)),) * 3
    angle, distance = rng.uniform(0, 2 * math.pi), rng.uniform(0.26, 0.4)
    x = float(centre[0] + distance * math.cos(angle)) * side
    y = float(centre[1] + distance * math.sin(angle)) * side
    r = float(rng.uniform(0.09, 0.12)) * side
    if mark == "disc":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)
    elif mark == "ring":
        pen.ellipse((x - r, y - r, x + r, y + r), outline=fill, width=round(0.45 * r))
    elif mark == "plus":
        pen.rectangle((x - r, y - 0.25 * r, x + r, y + 0.25 * r), fill=fill)
        pen.rectangle((x - 0.25 * r, y - r, x + 0.25 * r, y + r), fill=fill)
    else:
        pen.rectangle((x - r, y - 0.9 * r, x + r, y - 0.35 * r), fill=fill)
        pen.rectangle((x - r, y + 0.35 * r, x + r, y + 0.9 * r), fill=fill)


def _occlude(canvas: Image.Image, centre: np.ndarray, rng: np.random.Generator) -> None:
    """Draws a bar from edge to edge across a part of the object."""
    side = canvas.width
    angle = rng.uniform(0, math.pi)
    along = np.array([math.cos(angle), math.sin(angle)]) * 2
    through = centre + rng.uniform(-0.2, 0.2, 2)
    line = (np.concatenate([through - along, through + along]) * side).tolist()
    ImageDraw.Draw(canvas).line(line, _any_colour(rng, 0.5), round(rng.uniform(0.04, 0.1) * side))


_ARM = 0.3  # half the width of the cross's arms
_REACH = 0.45  # half the side of the square covered by a pattern
_OUTLINES: dict[str, list[tuple[float, float]]] = {
    "cross": [
        (1, _ARM), (_ARM, _ARM), (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM),
        (-1, -_ARM), (-_ARM, -_ARM), (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM),
    ],
    "ellipse": [(math.cos(a), math.sin(a)) for a in np.linspace(0, 2 * math.pi, 36)],
    "hourglass": [(1, 1), (0.15, 0), (1, -1), (-1, -1), (-0.15, 0), (-1, 1)],
    "rectangle": [(0.9, 0.8), (-0.9, 0.8), (-0.9, -0.8), (0.9, -0.8)],
    "triangle": [(1, 0), (-0.9, 1), (-0.9, -1)],
}  # fmt: skip
