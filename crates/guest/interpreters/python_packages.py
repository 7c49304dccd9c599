"""Finds packages that are installed after the zygote started, also newer versions of those that it has loaded."""

import os
import site
import sys
from importlib.machinery import PathFinder

# What `note` found; empty in an interpreter that was not forked.
_folders = {}
_loaded = {}
_shared_folders = site.getsitepackages()
_OWN_FOLDER = ".local/lib/python%d.%d/site-packages" % sys.version_info[:2]


def note():
    """Records which packages are installed and which of them are loaded."""
    _folders.update((folder, _modified(folder)) for folder in _site_folders(os.environ.get("HOME")))
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if "." not in name and origin is not None and origin.startswith(tuple(_folders)):
            _loaded[name] = (origin, _modified(origin))


def noted():
    """What the agent needs to check whether a package was installed since."""
    return {"folders": list(_folders.items()), "own_folder": _OWN_FOLDER}


def loaded_are_replaced(home):
    """Whether a loaded package differs from the one that a new interpreter would find. If none does, adds the packages
    that were installed since to the search path, in a new interpreter's order."""
    changed = changed_folders(home)
    if not changed:
        return False
    for folder in changed:
        before = set(sys.path)
        site.addsitedir(folder)  # Also reads the `.pth` files of packages installed in place.
        if folder not in before and folder in sys.path:
            sys.path.remove(folder)
            sys.path.insert(_first_site_folder(), folder)
    return any(_found(name) != loaded for name, loaded in _loaded.items())


def changed_folders(home):
    """The folders in which packages were installed or removed since."""
    # A folder that the user cannot read holds no packages for them.
    now = _folders and ((folder, _modified(folder)) for folder in _site_folders(home))
    return [folder for folder, modified in now if modified not in (None, _folders.get(folder))]


def _site_folders(home):
    own = [os.path.join(home, _OWN_FOLDER)] if home else []
    return own + _shared_folders


def _first_site_folder():
    places = [place for place, folder in enumerate(sys.path) if folder in _folders]
    return min(places, default=len(sys.path))


def _found(name):
    spec = PathFinder.find_spec(name)
    return spec and (spec.origin, _modified(spec.origin))


def _modified(path):
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, TypeError):
        return None
