"""Sphinx configuration of these pages: `make docs`. Every warning is an error."""

project = "mtcon-ray"
extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "mtcon-ray"
html_static_path: list[str] = []
exclude_patterns = ["_build"]
nitpicky = True
# Links to files outside docs/ are broken in the built pages but work in the repository.
# tests/test_docs.py checks the existence of these files.
suppress_warnings = ["myst.xref_missing"]
