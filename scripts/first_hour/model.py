"""A model that adds a function to the user's project and says so. Prints its address and serves until stdin closes."""

import sys

from model_server import ModelServer

server = ModelServer([
    [("write_file", {"path": "greeting.py", "content": "def greet(name):\n    return f'Hello, {name}'\n"})],
    "greeting.py has the function greet now.",
])
print(server.url, flush=True)
sys.stdin.read()
server.close()
