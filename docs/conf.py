"""Sphinx: how the site is built. ``make docs`` runs it strictly, so that a warning is an error."""

import logging
import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tools"))
# notebooks and doctests run with one thread, as the tests do
os.environ.setdefault("OMP_NUM_THREADS", "1")
logging.getLogger("traitlets").setLevel(logging.WARNING)
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # bars of notebooks, which no cell shows

project = "graphdiffusion"
author = "the authors of graphdiffusion"
copyright = "the authors of graphdiffusion, Apache-2.0"
release = version = installed("graphdiffusion")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_api",
    "sphinx_blocks",
    "sphinx_mathml",
    "sphinx_repository",
]
exclude_patterns = ["tools", "results", "pictures"]
templates_path: list[str] = []
html_math_renderer = "mathml"
highlight_language = "text"
nitpicky = True
# the classes of other libraries are named, but not linked: the site is built without a network
nitpick_ignore_regex = [
    ("py:.*", r"(torch|torch_geometric|numpy|np|nx|scipy|sp|sklearn|matplotlib|pandas)\..*"),
    ("py:.*", r"(pathlib|os|random|collections|typing)\..*"),
    ("py:class", r"Tensor|Figure|Axes|Data|Curves"),  # imported for type checkers alone
    ("py:class", r"graphdiffusion\.\w+\.[CT]"),  # variables of types
]

# Markdown: the files can be read on a code host, too
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# notebooks: run anew in every build, a failing cell is an error
nb_execution_mode = "force"
nb_execution_timeout = 240
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "warn"  # what a cell warns of is an error of the build

# docstrings
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # what a class overrides stands with its base
autodoc_typehints_format = "short"
autoclass_content = "class"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Shapes", "notes_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"graphdiffusion {release}"
html_static_path = ["tools/static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "
