"""Names of image files: the endings of their formats, and hidden names."""

from itertools import chain

# Only formats of photographs, by Pillow's names, with the endings of their files.
# Pillow's EPS reader would run Ghostscript on the file.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "AVIF": (".avif", ".avifs"),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "JPEG2000": (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"),
}
IMAGE_ENDINGS = tuple(chain(*FORMATS.values()))
# Files of rows, as on the hub of Hugging Face. They are not read.
ROW_ENDINGS = (".parquet", ".arrow")
CONVERSION = "write images and a CSV of labels, see 'Hugging Face and Parquet' in docs/data.md"
# Folders made by programs among the images, in addition to folders with a dot at the start.
HIDDEN_FOLDERS = {"__MACOSX", "lost+found"}


def is_hidden(name: str) -> bool:
    """Returns True for a name with a part in HIDDEN_FOLDERS, or a part beginning with a dot."""
    return any(part[:1] == "." or part in HIDDEN_FOLDERS for part in name.split("/"))


def is_image(name: str) -> bool:
    """Returns True for the name of an image, unless the name is hidden."""
    return name.lower().endswith(IMAGE_ENDINGS) and not is_hidden(name)
