"""The package `IPython` for contexts, if it is not installed: what `IPython.display` has, and `get_ipython`.

If IPython is installed, its own classes are used, and only `display` and `get_ipython` are replaced by the context's.
"""

import html
import json
import os
import sys

from python_imports import after_import

# The shell and the display function of this process's context.
_shell = None
_display = None


def get_ipython():
    return _shell


def display(*values, raw=False, display_id=None, **_ignored):
    """Shows values; with `raw`, dictionaries from MIME type to content."""
    _display(*values, raw=raw)
    return DisplayHandle(display_id) if display_id is not None else None


def update_display(value, *, display_id=None, **options):
    """Shows the value once more: what was shown cannot be changed."""
    display(value, **options)


def publish_display_data(data, metadata=None, **_ignored):
    _display(data, raw=True)


def clear_output(wait=False):
    """Does nothing: what was shown stays."""


def set_matplotlib_formats(*formats, **options):
    """Does nothing: figures are PNG."""


set_matplotlib_close = set_matplotlib_formats


class DisplayHandle:
    def __init__(self, display_id=None):
        self.display_id = display_id if isinstance(display_id, str) else os.urandom(16).hex()

    def display(self, value, **options):
        display(value, **options)

    update = display


class CapturedIO:
    """What a cell with `%%capture` printed and showed."""

    def __init__(self, stdout, stderr, outputs):
        self.stdout, self.stderr, self.outputs = stdout, stderr, outputs

    def __str__(self):
        return self.stdout

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        display(*self.outputs, raw=True)

    __call__ = show


class DisplayObject:
    """Content of one type, given as it is, in a file or at a URL."""

    _mime = None
    _read_as = "r"

    def __init__(self, data=None, url=None, filename=None, metadata=None, **_options):
        if data is not None and isinstance(data, (str, os.PathLike)) and url is None and filename is None:
            text = os.fspath(data)
            if text.startswith(("http://", "https://")):
                data, url = None, text
            elif isinstance(data, os.PathLike) or (self._read_as == "rb" and _is_file(text)):
                data, filename = None, text
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        self.reload()

    def reload(self):
        if self.filename is not None:
            encoding = None if "b" in self._read_as else "utf-8"
            with open(self.filename, self._read_as, encoding=encoding) as file:
                self.data = file.read()
        elif self.url is not None and self.data is None:
            from urllib.request import urlopen

            with urlopen(self.url) as answer:
                self.data = answer.read() if "b" in self._read_as else answer.read().decode("utf-8", "replace")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self._mime: self.data} if self._mime else {}

    def __repr__(self):
        return f"<{type(self).__module__}.{type(self).__qualname__} object>"


class TextDisplayObject(DisplayObject):
    pass


class HTML(TextDisplayObject):
    _mime = "text/html"

    def _repr_html_(self):
        return self.data

    __html__ = _repr_html_


class Markdown(TextDisplayObject):
    _mime = "text/markdown"


class Latex(TextDisplayObject):
    _mime = "text/latex"


class Math(TextDisplayObject):
    def _repr_latex_(self):
        return "$\\displaystyle {}$".format(self.data.strip("$"))


class SVG(DisplayObject):
    _mime = "image/svg+xml"

    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):
        if isinstance(data, str) and "<" not in data and _is_file(data):
            data, filename = None, data
        super().__init__(data, url, filename, metadata)
        if isinstance(self.data, bytes):
            self.data = self.data.decode("utf-8", "replace")


class Pretty(TextDisplayObject):
    _mime = "text/plain"


class Javascript(TextDisplayObject):
    _mime = "application/javascript"


class JSON(DisplayObject):
    _mime = "application/json"

    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **options):
        super().__init__(data, url, filename, metadata)
        if isinstance(self.data, str):
            self.data = json.loads(self.data)


class GeoJSON(JSON):
    _mime = "application/geo+json"


class Code(TextDisplayObject):
    def __init__(self, data=None, url=None, filename=None, language=None):
        super().__init__(data, url, filename)
        self.language = language

    def _repr_html_(self):
        return f"<pre>{html.escape(self.data)}</pre>"

    def __repr__(self):
        return self.data


class Image(DisplayObject):
    _read_as = "rb"
    _TYPES = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))

    def __init__(
        self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, **options
    ):
        self.width, self.height, self.embed = width, height, embed
        # IPython only links to a picture at a URL, unless it is told to embed it.
        self.linked = url if url is not None and not embed else None
        if data is None and self.linked is not None:
            self.data, self.url, self.filename, self.metadata = None, url, None, {}
            return
        super().__init__(data, url, filename, options.get("metadata"))
        if isinstance(self.data, str):
            raise FileNotFoundError(f"No such file: '{self.data}'")

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            return {"text/html": f'<img src="{html.escape(self.url)}"{_size(self)}/>'}
        start = bytes(self.data[:4])
        mime = next((mime for magic, mime in self._TYPES if start.startswith(magic)), "image/png")
        return {mime: self.data}


class IFrame:
    def __init__(self, src, width="100%", height=150, extras=None, **parameters):
        self.src, self.width, self.height, self.params = src, width, height, parameters

    def _repr_html_(self):
        from urllib.parse import urlencode

        source = self.src + ("?" + urlencode(self.params) if self.params else "")
        return f'<iframe src="{html.escape(source)}"{_size(self)} frameborder="0" allowfullscreen></iframe>'


class YouTubeVideo(IFrame):
    def __init__(self, id, width=400, height=300, **parameters):
        self.id = id
        super().__init__(f"https://www.youtube.com/embed/{id}", width, height, **parameters)


class _Media(DisplayObject):
    """Sound or film, embedded in HTML."""

    _read_as = "rb"
    _element = _type = None

    def _repr_html_(self):
        import base64

        source = self.url
        if self.data is not None:
            data = self.data.encode() if isinstance(self.data, str) else self.data
            source = f"data:{self._type};base64,{base64.b64encode(data).decode()}"
        return f'<{self._element} controls src="{html.escape(source)}"{_size(self)}></{self._element}>'


class Video(_Media):
    _element, _type = "video", "video/mp4"

    def __init__(self, data=None, url=None, filename=None, embed=False, mimetype=None, width=None, height=None, **_):
        self.width, self.height = width, height
        self._type = mimetype or self._type
        super().__init__(data, url, filename)


class Audio(_Media):
    _element, _type = "audio", "audio/wav"

    def __init__(self, data=None, filename=None, url=None, embed=None, rate=None, autoplay=False, normalize=True, **_):
        if data is not None and rate is not None and not isinstance(data, (str, bytes)):
            data = _wave(data, rate)
        super().__init__(data, url, filename)


class FileLink:
    def __init__(self, path, url_prefix="", result_html_prefix="", result_html_suffix="<br>"):
        self.path, self.url_prefix = os.fspath(path), url_prefix

    def _repr_html_(self):
        path = html.escape(self.path)
        return f"<a href='{html.escape(self.url_prefix)}{path}' target='_blank'>{path}</a><br>"

    def __repr__(self):
        return os.path.abspath(self.path)


class FileLinks(FileLink):
    def _repr_html_(self):
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in sorted(names)]
        return "\n".join(FileLink(path, self.url_prefix)._repr_html_() for path in paths)


class ProgressBar(DisplayObject):
    def __init__(self, total):
        self.total, self.progress = total, 0
        super().__init__()

    def _repr_html_(self):
        return f"<progress max='{self.total}' value='{self.progress}'></progress>"

    def __repr__(self):
        return f"{self.progress}/{self.total}"

    def __iter__(self):
        for self.progress in range(self.total):
            yield self.progress


def _is_file(text):
    try:
        return len(text) < 4096 and os.path.isfile(text)
    except ValueError:  # A zero byte.
        return False


def _size(shown):
    sizes = (("width", getattr(shown, "width", None)), ("height", getattr(shown, "height", None)))
    return "".join(f' {name}="{html.escape(str(value))}"' for name, value in sizes if value is not None)


def _wave(samples, rate):
    """One channel of numbers between -1 and 1, or larger ones that are scaled down, as a WAV file."""
    import array
    import io
    import wave

    largest = max((abs(float(sample)) for sample in samples), default=0) or 1
    data = array.array("h", (int(float(sample) / largest * 32767) for sample in samples))
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(int(rate))
        file.writeframes(data.tobytes())
    return made.getvalue()


def _display_as(mime):
    def show(*values, raw=False, **_ignored):
        """Shows the values' representation of this type only."""
        import python_results

        for value in values:
            data = {mime: value} if raw else python_results.bundle(value)
            _display({kind: data[kind] for kind in (mime, "text/plain") if kind in data}, raw=True)

    return show


DISPLAY = {
    name: value
    for name, value in list(globals().items())
    if (isinstance(value, type) and name[:1] != "_" and name != "CapturedIO") or name in ("display", "update_display")
}
DISPLAY.update(
    clear_output=clear_output,
    publish_display_data=publish_display_data,
    set_matplotlib_close=set_matplotlib_close,
    set_matplotlib_formats=set_matplotlib_formats,
    display_html=_display_as("text/html"),
    display_javascript=_display_as("application/javascript"),
    display_jpeg=_display_as("image/jpeg"),
    display_json=_display_as("application/json"),
    display_latex=_display_as("text/latex"),
    display_markdown=_display_as("text/markdown"),
    display_pdf=_display_as("application/pdf"),
    display_png=_display_as("image/png"),
    display_pretty=_display_as("text/plain"),
    display_svg=_display_as("image/svg+xml"),
)
for _class in [value for value in DISPLAY.values() if isinstance(value, type)]:
    # They look like IPython's own in their representation.
    _class.__module__ = "IPython.core.display"

MODULES = {
    "IPython": {"get_ipython": get_ipython, "version_info": (8, 24, 0), "__version__": "8.24.0"},
    "IPython.display": DISPLAY,
    "IPython.core": {},
    "IPython.core.display": DISPLAY,
    "IPython.core.display_functions": DISPLAY,
    "IPython.core.getipython": {"get_ipython": get_ipython},
    # sympy would also draw formulas; it shows them as LaTeX.
    "IPython.lib": {},
    "IPython.lib.latextools": {"latex_to_png": lambda *_arguments, **_options: None},
    # sympy compares the shell with this class: one at a terminal shows no formulas.
    "IPython.terminal": {},
    "IPython.terminal.interactiveshell": {"TerminalInteractiveShell": type("TerminalInteractiveShell", (), {})},
    # matplotlib asks for it.
    "IPython.core.pylabtools": {"backend2gui": {}},
}


PACKAGES = ("IPython", "IPython.core", "IPython.lib", "IPython.terminal")


class IPythonFinder:
    """Comes last, so it is asked only if IPython is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name not in MODULES:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=name in PACKAGES)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__.update(MODULES[module.__name__])
        if module.__name__ == "IPython":
            import IPython.display  # noqa: F401  `import IPython` is enough to use `IPython.display`.


def install(shell, show):
    """Makes `IPython` importable and lets it show values with `show`."""
    global _shell, _display
    _shell, _display = shell, show
    sys.meta_path.append(IPythonFinder())
    after_import("IPython.core.getipython", lambda module: setattr(module, "get_ipython", get_ipython))
    after_import("IPython.core.display_functions", use_our_functions)


def use_our_functions(module):
    for name in ("clear_output", "display", "publish_display_data", "update_display"):
        setattr(module, name, DISPLAY[name])
