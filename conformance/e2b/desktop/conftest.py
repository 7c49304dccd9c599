import support.localhost  # noqa: F401
