def pytest_configure(config):
    # The suite has async tests without markers.
    config.option.asyncio_mode = "auto"
