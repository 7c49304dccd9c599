"""A value as a MIME bundle, which maps MIME types to text, by IPython's conventions and within a size limit."""

import binascii
import io
import json
import os
import sys

import python_charts
from python_imports import after_import

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
    "_repr_javascript_": "application/javascript",
    "_repr_pdf_": "application/pdf",
}
# Functions that libraries registered to show values of a type, by MIME type and type.
printers = {}


def bundle(value):
    """All representations of a value; `text/plain` is always there."""
    registered = printed(value)
    if type(value) in PLAIN_TYPES:
        return fit({"text/plain": repr(value), "application/json": as_json(value), **registered})
    if is_figure(value):
        return draw(value)
    found = {}
    if not isinstance(value, type):
        for method, mime in METHODS.items():
            found[mime] = ask(value, method)
        found.update(ask(value, "_repr_mimebundle_", include=None, exclude=None) or {})
        found[TABLE] = as_data(python_charts.columns, value)
    found.update(registered)
    found.setdefault("text/plain", repr(value))
    return fit(found)


def shows_itself(value):
    """Calls `_ipython_display_` of a value that has no other representation; whether there is one."""
    kind = type(value)
    others = ("_repr_mimebundle_", *METHODS)
    if isinstance(value, type) or not hasattr(kind, "_ipython_display_") or any(hasattr(kind, name) for name in others):
        return False
    value._ipython_display_()
    return True


def printed(value):
    """What the registered functions make of a value."""
    found = {}
    for mime, of_types in printers.items():
        show = next((of_types[kind] for kind in type(value).__mro__ if kind in of_types), None) if of_types else None
        content = show and as_data(Printer.show if mime == "text/plain" else Printer.call, (show, value))
        if content is not None:
            found[mime] = content
    return found


class Printer:
    """Collects the text of a function that prints to IPython's pretty printer."""

    def __init__(self):
        self.written = []

    def text(self, text):
        self.written.append(text)

    @staticmethod
    def show(arguments):
        show, value = arguments
        printer = Printer()
        show(value, printer, False)
        return "".join(printer.written)

    @staticmethod
    def call(arguments):
        show, value = arguments
        return show(value)


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

    after_import("matplotlib.pyplot", lambda pyplot: setattr(pyplot, "show", pyplot_show))


def watch_pillow(show):
    """Gives the pictures that Pillow shows, or saves to a file, to `show`."""

    def change(module):
        save = module.Image.save

        def save_and_show(image, fp, format=None, **parameters):
            # Figures that matplotlib saves are shown by `take_figures`.
            by_matplotlib = sys._getframe(1).f_globals.get("__name__", "").startswith("matplotlib")
            save(image, fp, format, **parameters)
            if isinstance(fp, (str, os.PathLike)) and not by_matplotlib:
                show(image, False)

        module.Image.save = save_and_show
        module.Image.show = lambda image, *_arguments, **_options: show(image, True)

    after_import("PIL.Image", change)


def as_picture(image):
    """A picture of Pillow's as PNG; only as text if it has no PNG form."""
    try:
        png = image._repr_png_()
    except Exception:
        png = None
    return {"image/png": png, "text/plain": repr(image)}
