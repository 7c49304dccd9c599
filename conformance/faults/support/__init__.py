"""What the tests of faults share: a server that can be killed, a plain client, and a look at what is really there."""
