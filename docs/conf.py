"""Sphinx configuration of these pages: `make docs`. Every warning is an error.

The source is the whole repository, so that pages outside docs/ belong to the site too.
"""

project = "mtcon-ray"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "*/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "build", "dist", "docs/_build", "shared", "tests"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "mtcon-ray"
nitpicky = True
# The page of the API. Docstrings put code in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
