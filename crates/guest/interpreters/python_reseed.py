"""Gives a live Python interpreter fresh randomness, so that no clone of a machine repeats another's.

Only modules that are loaded already are touched; one that is imported later seeds itself from the kernel, as do
`os.urandom` and `secrets`. Out of reach: hash randomisation, which is fixed for the life of a process, and generators
that user code made for itself.
"""

import _random
import _thread
import os
import sys
import time


def reseed(entropy):
    """Gives every random generator that is loaded a new state. Hash randomisation cannot change in a live process."""
    seed = entropy + os.urandom(32) + b"%d %d" % (os.getpid(), time.monotonic_ns())
    for name, mix in RESEEDS:
        module = sys.modules.get(name)
        if module is not None:
            try:
                mix(module, seed)
            except Exception:  # A module of the user's that has the same name, or one that is half imported.
                pass


def _reseed_random(module, seed):
    # What `random.seed` does with bytes, but for a hash over them: these are random already.
    _random.Random.seed(module._inst, int.from_bytes(seed, "little"))
    module._inst.gauss_next = None


def _reseed_numpy(module, seed):
    # Backwards: with the words in the order that `random` has them, the same generator would draw the same numbers.
    words = memoryview(seed[: len(seed) // 4 * 4]).cast("I").tolist()[::-1]
    lock = module.mtrand._rand._bit_generator.lock
    if lock.acquire(False):
        lock.release()
        module.seed(words)
    else:
        # This may be a signal handler inside a draw of the same thread: waiting here would be for ever.
        _thread.start_new_thread(module.seed, (words,))


def _reseed_openssl(module, seed):
    module.RAND_add(seed, 32.0)


def _reseed_uuid(module, seed):
    module._last_timestamp = None
    if module._node is not None and module._node >> 40 & 1:
        module._node = None  # Not a network card's address but one drawn at random.


def _reseed_tempfile(module, seed):
    module._name_sequence = None


RESEEDS = (
    ("random", _reseed_random),
    ("numpy.random", _reseed_numpy),
    ("_ssl", _reseed_openssl),
    ("uuid", _reseed_uuid),
    ("tempfile", _reseed_tempfile),
)
