"""A value as a MIME bundle, which maps MIME types to text, by IPython's conventions and within a size limit."""

import binascii
import io
import json
import sys

import python_charts

# The limit for a bundle. The rest of its line on the control socket fits into the difference to 8 MiB.
LIMIT = (8 << 20) - 1024
PLAIN_TYPES = frozenset((bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset))
# The data of a figure and of a table, as JSON beside the picture.
CHART = "application/vnd.sandling.chart+json"
TABLE = "application/vnd.sandling.table+json"
METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
}


def bundle(value):
    """All representations of a value; `text/plain` is always there."""
    if type(value) in PLAIN_TYPES:
        return fit({"text/plain": repr(value), "application/json": as_json(value)})
    if is_figure(value):
        return draw(value)
    found = {}
    if not isinstance(value, type):
        for method, mime in METHODS.items():
            found[mime] = ask(value, method)
        found.update(ask(value, "_repr_mimebundle_", include=None, exclude=None) or {})
        found[TABLE] = as_data(python_charts.columns, value)
    found.setdefault("text/plain", repr(value))
    return fit(found)


def as_json(value):
    """A list or dictionary as JSON, if it can be."""
    if type(value) not in (list, dict):
        return None
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def as_data(read, value):
    """The data of a figure or table. If it cannot be read, the picture is still shown."""
    try:
        return read(value)
    except Exception:
        return None


def ask(value, method, **arguments):
    """The result of the object's own method. Its failure goes to stderr and does not affect other representations."""
    # Looked up on the class, because many objects answer to every attribute name.
    if not hasattr(type(value), method):
        return None
    try:
        answer = getattr(value, method)(**arguments)
    except Exception:
        import traceback

        traceback.print_exc()
        return None
    # A tuple is data and metadata; only the data is passed on.
    return answer[0] if isinstance(answer, tuple) and len(answer) == 2 else answer


def fit(found):
    """The bundle as text, or a note about what was too large."""
    texts = {mime: as_text(mime, content) for mime, content in found.items() if content is not None}
    for extra in (TABLE, CHART):
        # The picture matters more than its data.
        if len(texts.get(extra, "")) * 6 > LIMIT // 4:
            del texts[extra]
    # One character takes six bytes at most, so small bundles are not measured.
    if sum(map(len, texts.values())) * 6 <= LIMIT:
        return texts
    sizes = {mime: len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) for mime, text in texts.items()}
    if sum(sizes.values()) <= LIMIT:
        return texts
    listed = ", ".join(f"{mime} of {size} bytes" for mime, size in sizes.items())
    note = f"[cut: {listed}; a result may have {LIMIT} bytes]"
    return {"text/plain": texts.get("text/plain", "")[:10_000] + "\n" + note}


def as_text(mime, content):
    if isinstance(content, str):
        return content
    if isinstance(content, (bytes, bytearray)):
        return binascii.b2a_base64(content, newline=False).decode()
    if mime == "application/json" or mime.endswith("+json"):
        return json.dumps(content, default=str)
    return str(content)


def is_figure(value):
    figures = sys.modules.get("matplotlib.figure")
    return figures is not None and isinstance(value, figures.Figure)


def draw(figure):
    """A figure as a picture. It is closed, so that it is not shown once more when the cell ends."""
    png = io.BytesIO()
    figure.savefig(png, format="png", bbox_inches="tight")
    found = {"image/png": png.getvalue(), "text/plain": repr(figure), CHART: as_data(python_charts.chart, figure)}
    sys.modules["matplotlib._pylab_helpers"].Gcf.destroy_fig(figure)
    return fit(found)


def take_figures():
    """Closes all open figures and returns their pictures, except those of empty figures."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    open_figures = [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]
    try:
        return [draw(figure) for figure in open_figures if figure.axes or figure.lines]
    finally:
        helpers.Gcf.destroy_all()


def watch_pyplot(show):
    """Replaces `matplotlib.pyplot.show` by `show`, now or when pyplot is imported."""

    def pyplot_show(*_arguments, **_options):  # Not a method, because pyplot sets attributes on it.
        show()

    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.show = pyplot_show
    else:
        sys.meta_path.insert(0, PyplotWatch(pyplot_show))


class PyplotWatch:
    """An importer that imports nothing, but notices when pyplot has been imported."""

    def __init__(self, show):
        self.show = show

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.pyplot":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_then_patch(module):
            load(module)
            module.show = self.show

        spec.loader.exec_module = load_then_patch
        return spec
