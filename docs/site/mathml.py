"""Writes formulas as MathML, which browsers show without JavaScript, fonts or another server."""

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app):
    """Registers the renderer "mathml" for `html_math_renderer`."""
    inline, block = _renderer(as_block=False), _renderer(as_block=True)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _renderer(as_block):
    def render(translator, node):
        translator.body.append(tex2mathml(node.astext(), as_block=as_block) + "\n" * as_block)
        raise SkipNode

    return render
