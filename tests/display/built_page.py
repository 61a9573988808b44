"""The page of a report, built and parsed."""

from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

from mtcon_ray.display.build import build_report
from mtcon_ray.records.results import SweepResults

VOID = {"meta", "img", "br", "wbr", "link", "hr", "input"}


class Page(HTMLParser):
    """Parser of a page's text, links and pictures; fails on tags that do not nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.pictures: list[bytes] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(self.source)
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        self.links += [str(found[k]) for k in ("src", "href") if k in found]
        if tag == "img":
            assert found["alt"]
            head, data = str(found["src"]).split(",", 1)
            assert head == "data:image/png;base64"
            self.pictures.append(b64decode(data))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def built(results: SweepResults, ui: str = "mlflow ui") -> Page:
    """Builds the report and returns its parsed page."""
    return Page(build_report(results, ui_command=ui))
