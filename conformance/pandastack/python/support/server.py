"""Where the server under test is, and the tokens it accepts."""

import os
from urllib.parse import urlsplit

API = os.environ.get("SANDLING_API") or os.environ["PANDASTACK_API"]
#: Accepted as an administrator's.
TOKEN = os.environ["PANDASTACK_API_KEY"]
#: Belongs to another workspace.
TOKEN_OTHER = os.environ.get("SANDLING_TOKEN_OTHER", "")

_address = urlsplit(API)
HOST = _address.hostname
PORT = _address.port

#: What the public Python client calls itself; the server tells its long calls apart by it.
PYTHON_AGENT = "pandastack-py/0.10.0"
