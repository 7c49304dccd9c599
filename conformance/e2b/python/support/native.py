"""Sandling's own API, for what must be the same in both dialects."""

import json
import os
import urllib.request


def call(method, path, body=None, headers=None):
    request = urllib.request.Request(os.environ["SANDLING_API"] + path, method=method)
    request.add_header("Authorization", f"Bearer {os.environ['SANDLING_TOKEN']}")
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    data = None
    if body is not None:
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=60) as answer:
        text = answer.read()
        return json.loads(text) if text else None
