"""Changes modules of other packages as soon as they are imported."""

import sys


def after_import(name, change):
    """Calls `change` with the module: now, or when it has been imported."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
        return
    if _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)
    _watch.changes[name] = change


class ImportWatch:
    """An importer that imports nothing, but notices when a module has been imported."""

    def __init__(self):
        self.changes = {}

    def find_spec(self, name, path=None, target=None):
        change = self.changes.pop(name, None)
        if change is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            # The package may be installed later.
            self.changes[name] = change
            return None
        load = spec.loader.exec_module

        def load_then_change(module):
            load(module)
            change(module)

        spec.loader.exec_module = load_then_change
        return spec


_watch = ImportWatch()
