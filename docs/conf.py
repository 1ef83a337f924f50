"""How Sphinx builds the site: `make docs`."""

import inspect
import re
import textwrap
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from pclc.version import __version__

project = "pclc"
author = "The pclc developers"
copyright = "the pclc developers, MIT licence"  # noqa: A001
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
# Attributes of several results share their names.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
# The notebooks are kept without results, which are made when the site is built: they are those of this version.
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True

# Blocks without a language are commands and trees.
highlight_language = "none"
# Docstrings are Markdown-like: single backticks are code, dollars are formulas.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "groupwise"
autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": False}
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

copybutton_exclude = ".linenos, .gp, .go"

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "pclc"
html_theme_options = {
    "logo": {"text": "pclc"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}
html_sidebars = {"index": [], "quickstart": [], "api": []}
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False


def formulas(text: str) -> str:
    r"""Dollar formulas as reStructuredText has them.

    Example:
        >>> formulas("the margin $\\xi$")
        'the margin :math:`\\xi`'
    """

    def displayed(found: re.Match[str]) -> str:
        body = textwrap.dedent(found[2]).strip()
        return f"\n{found[1]}.. math::\n\n" + textwrap.indent(body, found[1] + "    ") + "\n"

    text = re.sub(r"^([ ]*)\$\$(.+?)\$\$(?=[^$])", displayed, text + "\n", flags=re.DOTALL | re.MULTILINE)
    # A role ends at a backtick, and has to be followed by something that is no letter.
    return re.sub(r"(?<![\w$`])\$([^$\n]+(?:\n[^$\n]+)?)\$(?![\w$`])", r":math:`\1`", text).removesuffix("\n")


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = formulas("\n".join(lines)).split("\n")


def _signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """Of a class whose `__new__` looks at anything, that of its `__init__`, which autodoc asks second."""
    if what == "class" and signature and signature.startswith("(*args"):
        return str(inspect.signature(obj)).removesuffix(" -> None"), None
    return None


def _mathml(text: str, as_block: bool = False) -> str:
    # docutils knows \left and \right, and not \big and \Big.
    text = re.sub(r"\\[bB]ig(?=[(\[])", r"\\left", text)
    return str(tex2mathml(re.sub(r"\\[bB]ig(?=[)\]])", r"\\right", text), as_block=as_block))


def _inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(_mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<p class="formula">{_mathml(node.astext(), as_block=True)}</p>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Formulas as MathML, which browsers show without a script and without the network; signatures as they are."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    # Before napoleon (priority 500), so that formulas in `Args:` are seen too.
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-process-signature", _signature)
