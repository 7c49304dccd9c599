"""A server of the fault tests, with options."""

import os
import re
import subprocess
import time

from support.server import ADDRESS_WITHIN, Server


class Listening(Server):
    def start(self):
        """Starts it and waits until it says where it listens."""
        begun = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [os.environ["SANDLING"], "serve", "--standbys", "0", *self.options],
                env=self.environment, stdout=log, stderr=log,
            )
        while not (found := re.search(r"listens on (https?)://[^:]+:(\d+)\n", self.said())):
            assert self.process.poll() is None, f"the server ended at its start:\n{self.said()}"
            assert time.monotonic() - begun < ADDRESS_WITHIN, f"no address:\n{self.said()}"
            time.sleep(0.01)
        self.scheme, self.port = found[1], int(found[2])
