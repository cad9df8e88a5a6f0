"""The documentation site, built by `make docs` from these pages, docstrings and the gallery."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate

import hushgrid

project = "hushgrid"
author = "the hushgrid contributors"
version = release = hushgrid.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py"]
suppress_warnings = ["ref.python"]  # a word in brackets that several classes have as a field

myst_heading_anchors = 3
smartquotes = False
default_role = "py:obj"  # `name` in a docstring: a link where it is a public name
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "copyfile_regex": "",
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"hushgrid {version}"
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": html_title},
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "show_prev_next": False,
}
html_static_path, templates_path = ["_static"], ["_templates"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "**": ["contents.html"]}
copyright = f"{author}, Apache-2.0. Version {version}"  # noqa: A001


def setup(app):
    """Connect what is generated."""
    app.connect("builder-inited", generate.api_pages)
    app.connect("source-read", generate.fill_in)
    app.connect("autodoc-process-docstring", generate.adapt_docstring)
