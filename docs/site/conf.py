"""Sphinx's configuration of the site; `make docs` builds it (docs/site/build.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import legacy_opt

project = "legacy-opt"
copyright = "the authors of legacy-opt, Apache License 2.0"
version = release = legacy_opt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

default_role = "code"  # in docstrings, single backticks are code
autodoc_inherit_docstrings = False  # docstrings of TensorFlow are not ours
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch", "optax"]
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"legacy-opt {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#00588f",
        "color-brand-content": "#00588f",
        "color-foreground-muted": "#5a5c63",
        "color-foreground-secondary": "#4b4d54",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7cc4ff",
        "color-brand-content": "#7cc4ff",
    },
}
html_math_renderer = "mathml"
# The contrast of these two themes is 7 : 1 and higher.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
