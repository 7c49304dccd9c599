"""What can happen to a node, and how it ends."""

import contextlib
from dataclasses import dataclass

from support.processes import until

#: How long a fault lasts, in seconds. A lease ends after 10 s.
SHORT, LONG, LONGEST = 2.0, 12.0, 30.0


@dataclass(frozen=True)
class Kind:
    name: str
    begin: callable
    end: callable


def nothing(_fleet, _node):
    pass


def kinds():
    network = lambda method, *arguments: lambda fleet, node: getattr(fleet.network, method)(node.name, *arguments)
    of_node = lambda method, *arguments: lambda _fleet, node: getattr(node, method)(*arguments)
    restart = lambda _fleet, node: node.start()
    undelay, unfilter = network("stop_delay"), network("stop_filter")
    return (
        Kind("the server is killed", of_node("kill"), restart),
        Kind("the machine loses its power", of_node("die"), restart),
        Kind("the server stands still", of_node("pause"), of_node("resume")),
        Kind("the link is down", network("cut"), network("join")),
        Kind("nothing arrives", network("drop", "input"), unfilter),
        Kind("nothing leaves", network("drop", "output"), unfilter),
        Kind("packets are lost", network("lose"), unfilter),
        Kind("packets are late", network("delay"), undelay),
        Kind("the disk is full", of_node("fill_disk"), of_node("free_disk")),
        Kind("the clock is an hour ahead", of_node("set_clock", "+3600"), of_node("set_clock", "+0")),
        Kind("the clock is an hour behind", of_node("set_clock", "-3600"), of_node("set_clock", "+0")),
        Kind("etcd is killed", lambda fleet, _node: fleet.nodes[0].end_etcd(), nothing),
        Kind("the node drains", drain, undrain),
    )


def drain(_fleet, node):
    # Without etcd, nobody can drain a node.
    with contextlib.suppress(AssertionError):
        node.cli("fleet", "drain", "--keep-sandboxes", node.name)


def undrain(_fleet, node):
    def undrained():
        with contextlib.suppress(AssertionError):
            node.cli("fleet", "undrain", node.name)
            return True

    until("the drain ends", undrained)


@dataclass
class Fault:
    kind: Kind
    node: int
    seconds: float

    def begin(self, fleet):
        self.kind.begin(fleet, fleet.nodes[self.node])

    def end(self, fleet):
        self.kind.end(fleet, fleet.nodes[self.node])

    def __str__(self):
        return f"{self.kind.name} at {'abc'[self.node]} for {self.seconds:.0f} s"


def plan(chance, count, nodes):
    """Rounds of one or two faults at different nodes. Each kind comes before one comes again."""
    order, rounds, left = [], [], count
    while left:
        size = min(left, chance.choice((1, 1, 2)), nodes)
        places = chance.sample(range(nodes), size)
        rounds.append([])
        for place in places:
            order = order or chance.sample(kinds(), len(kinds()))
            seconds = chance.choice((SHORT, SHORT, SHORT, LONG, LONG) + ((LONGEST,) if count >= 50 else ()))
            rounds[-1].append(Fault(order.pop(), place, chance.uniform(seconds / 2, seconds)))
        left -= size
    return rounds
