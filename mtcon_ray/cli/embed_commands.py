"""Commands on images with a trained encoder: embed, neighbours."""

import hashlib
from pathlib import Path

import click
import torch

from mtcon_ray.base.paths import cache_folder
from mtcon_ray.cli import options
from mtcon_ray.cli.options import PATH
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.display.build import neighbours_page
from mtcon_ray.display.console import Terminal, say, warn
from mtcon_ray.display.presentation import one_line
from mtcon_ray.display.tables import Table
from mtcon_ray.errors import UserError, nearest
from mtcon_ray.export.embed import data_at, embed_images, embedded_images, open_images
from mtcon_ray.export.encoder import TrainedEncoder
from mtcon_ray.export.search import search
from mtcon_ray.records.stored import find_network

PARQUET = ".parquet"
THUMBNAIL = 128  # pixels


@click.command()
@options.trained_model
@click.argument("images", type=PATH)
@click.option("--to", type=PATH, required=True, metavar="FILE.parquet", help="The file to write.")
@click.option(
    "--images", "folder", type=PATH,
    help="Folder of the images that a table names.  [default: the table's folder]",
)  # fmt: skip
@click.option("--column", help="Column of a table with names of images.  [default: image]")
@options.root_folder
@options.allow_plugins
def embed(
    model: str, images: Path, to: Path, folder: Path | None, column: str | None, root: Path
) -> None:
    """Write an embedding of each image to a Parquet file.

    IMAGES is a folder, a .tar, a .csv with a row per image, or a spec with a section
    `data`. The file has a row per image: its path, its features, and the output of each head. A
    killed command continues when it is repeated.
    """
    if to.suffix != PARQUET:
        raise UserError(f"--to must end in {PARQUET}, got {to}")
    encoder, digest = _opened(model, root)
    with options.display() as console:
        found = open_images(data_at(images, folder, column), encoder, cache_folder(root), console)
        unreadable = embed_images(encoder, found, to.absolute(), digest, console)
    if unreadable:
        first = next(iter(unreadable.values()))
        warn(f"{len(unreadable)} of {len(found.names)} images were not read, the first: {first}")
    say(f"{to}: {len(found.names)} rows")


@click.command()
@options.trained_model
@click.argument("queries", metavar="IMAGE...", nargs=-1, required=True, type=PATH)
@click.option(
    "--among", type=PATH,
    help="Folder, .tar or spec of images, or a file written by `embed`.  [default: all images of "
    "the training's data]",
)  # fmt: skip
@click.option("--head", help="Compare the outputs of this head, such as a task's.")
@click.option(
    "-k", "count", type=click.IntRange(1), default=10, show_default=True,
    help="Number of images for each IMAGE.",
)  # fmt: skip
@click.option("--html", type=PATH, metavar="FILE", help="Write a page that shows the images.")
@options.root_folder
@options.allow_plugins
@options.as_json
def neighbours(
    model: str,
    queries: tuple[Path, ...],
    among: Path | None,
    head: str | None,
    count: int,
    html: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Find the images nearest to each IMAGE, by cosine similarity."""
    encoder, digest = _opened(model, root)
    if among is None and encoder.is_export:  # it has no paths
        raise UserError("an exported folder needs --among, which names the images to search")
    if head is not None and head not in encoder.names:
        raise UserError(f"--head: the model has no head {head!r}{nearest(head, encoder.names)}")
    try:
        rows_by_column = encoder.project(encoder.stored(queries))
    except (OSError, UnreadableImageError) as error:
        raise UserError(f"an IMAGE cannot be read: {error}") from None
    column = f"heads/{head}" if head else "embedding"
    names, images, file = [*map(str, queries)], None, among
    if among is None or among.suffix != PARQUET:
        with options.display(quiet=as_json) as console:
            spec = encoder.data if among is None else data_at(among)
            images = open_images(spec, encoder, store := cache_folder(root), console)
            file = embedded_images(encoder, images, store, digest, console)
    elif html is not None:
        raise UserError("--html needs the images: give --among their folder")
    assert file is not None
    found = search(file, column, rows_by_column[column], count, digest)
    if html is not None and images is not None:
        pictures, _ = images.decoded([n.row for group in found for n in group], THUMBNAIL)
        shown = [decode_image(path.read_bytes(), THUMBNAIL, encoder.resize) for path in queries]
        page = neighbours_page(names, shown, found, pictures)
        html.write_text(page, encoding="utf-8", errors="replace")
    lines, data = [], {}
    for query, group in zip(names, found, strict=True):
        rows = [[f"{n.similarity:.4f}", n.path] for n in group]
        table = Table(["similarity", "image"], rows, right=[0])
        lines += [one_line(query), *table.lines(Terminal().columns)]
        data[query] = [n._asdict() for n in group]
    options.tell(data, lines, as_json=as_json)


def _opened(model: str, root: Path) -> tuple[TrainedEncoder, str]:
    """Returns a model's encoder, on a GPU if there is one, and the digest of its file."""
    encoder = TrainedEncoder(find_network(model, root)[0])
    digest = hashlib.sha256(f"{encoder.size} {encoder.resize}".encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return encoder.to("cuda" if torch.cuda.is_available() else "cpu"), digest.hexdigest()
