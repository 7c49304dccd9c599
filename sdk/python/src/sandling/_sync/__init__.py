"""Made from ``sandling._async`` by ``scripts/generate_sync.py``, except for ``colour``."""
