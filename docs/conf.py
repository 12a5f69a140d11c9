"""Configuration of the documentation site: ``sphinx-build -W -n docs build/docs``."""

import sys
from importlib import import_module
from pathlib import Path

import loca_theory

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "loca_theory"
author = "The loca_theory developers"
version = release = loca_theory.__version__

extensions = [
    "myst_nb",  # pages in Markdown, by myst_parser, and notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "ledger",
    "mathml",
    "public_names",
    "rendering",
]
exclude_patterns = ["_extensions", "_generate", "ledger"]

# --- Markdown -----------------------------------------------------------------------------------

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Make anchors of headings as docutils does, so that claim a.b has the anchor a-b.
myst_heading_slug_func = "docutils.nodes.make_id"

# Notebooks show the outputs that are stored in them; tests/docs/test_notebooks.py runs them.
nb_execution_mode = "off"

# --- Reference ----------------------------------------------------------------------------------

PACKAGES = (
    "transforms",
    "sweeps",
    "increments",
    "locations",
    "expressivity",
    "adapters",
    "rounding",
    "dependence",
    "convergence",
    "checkpoints",
    "claims",
    "plotting",
)
for _name in PACKAGES:
    # autodoc documents the names in dir(), which lacks names that a package imports on first use.
    _package = import_module(f"loca_theory.{_name}")
    vars(_package).update({name: getattr(_package, name) for name in _package.__all__})

add_module_names = False
autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # types are in the signature
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

# Names of other projects cannot be looked up without a network. Our own names must all resolve.
nitpick_ignore_regex = [(r"py:.*", r"(?!loca_theory).*")]

# Texts contain commands and options, in which quotes and dashes must not change.
smartquotes = False

# --- Page ---------------------------------------------------------------------------------------

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"loca_theory {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
# Copy only what a reader types, not the prompts.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
