"""Reseeds a live Python interpreter, so that clones of one machine draw different random numbers and know their own name.

Only loaded modules are reseeded. Modules that are imported later seed themselves from the kernel, as do `os.urandom`
and `secrets`. Two things cannot be reseeded: hash randomisation, which is fixed for the life of a process, and
generators that user code created.
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
            except Exception:  # A user's module of the same name, or a module that is still being imported.
                pass


def _reseed_random(module, seed):
    # As `random.seed` does with bytes, but without hashing them, because they are random already.
    _random.Random.seed(module._inst, int.from_bytes(seed, "little"))
    module._inst.gauss_next = None


def _reseed_numpy(module, seed):
    # Reversed: numpy uses the same generator, so the same words in the same order would draw the same numbers.
    words = memoryview(seed[: len(seed) // 4 * 4]).cast("I").tolist()[::-1]
    lock = module.mtrand._rand._bit_generator.lock
    if lock.acquire(False):
        lock.release()
        module.seed(words)
    else:
        # A signal handler may run this while the same thread draws a number; waiting for the lock would deadlock.
        _thread.start_new_thread(module.seed, (words,))


def _reseed_openssl(module, seed):
    module.RAND_add(seed, 32.0)


def _reseed_uuid(module, seed):
    module._last_timestamp = None
    if module._node is not None and module._node >> 40 & 1:
        module._node = None  # Makes `uuid` draw a random node instead of a network card's address.


def _reseed_tempfile(module, seed):
    module._name_sequence = None


def _forget_hostname(module, seed):
    module._uname_cache = None


RESEEDS = (
    ("random", _reseed_random),
    ("numpy.random", _reseed_numpy),
    ("_ssl", _reseed_openssl),
    ("uuid", _reseed_uuid),
    ("tempfile", _reseed_tempfile),
    ("platform", _forget_hostname),
)
