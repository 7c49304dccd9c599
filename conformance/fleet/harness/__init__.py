"""A fleet of real servers in network namespaces, which can be damaged."""

import sys
from pathlib import Path

# The tests of single servers have the parts that a node needs, too.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "faults"))
