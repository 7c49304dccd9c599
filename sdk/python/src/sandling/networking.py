"""What sandboxes may reach and what went through their gateways: plain data, the same for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional, TypedDict

#: Nothing, what is listed, the public internet, or that and a list of what was used.
NetworkMode = Literal["deny", "allow", "open", "learn"]
#: Who said what a sandbox may reach: it itself, the default that it follows, or nobody.
NetworkSource = Literal["sandbox", "template", "workspace", "nothing"]


class NetworkLimits(TypedDict, total=False):
    """How much of the network a sandbox may use. What is absent is the server's own limit."""

    #: In all.
    sent_bytes: int
    sent_bytes_per_second: int
    received_bytes_per_second: int
    #: At a time.
    connections: int
    dns_queries_per_second: int


class NetworkOptions(TypedDict, total=False):
    """What a sandbox is to reach. In a change, what is absent stays."""

    #: If absent, ``allow`` if anything is listed in ``allow``, else ``deny``; in a change without a list, it stays. A
    #: change to another mode than ``allow`` empties a list that is not given.
    mode: Optional[NetworkMode]
    #: Names, ``*.name``, addresses, networks, and the presets ``pypi``, ``npm``, ``crates``, ``debian`` and ``github``.
    allow: Optional[List[str]]
    #: Addresses and networks that are refused, whatever is allowed.
    deny: Optional[List[str]]
    #: ``sealed``, or ``inspected``: the host of each request inside is compared with the server's name.
    tls: Optional[Literal["sealed", "inspected"]]
    limits: Optional[NetworkLimits]
    #: Names of all secrets that it has from then on.
    secrets: Optional[List[str]]
    #: Its sandboxes reach each other, as ``HOSTNAME.internal`` and ``ID.internal``; in a change, ``""`` leaves it.
    group: Optional[str]
    hostname: Optional[str]


@dataclass(frozen=True)
class GrantedSecret:
    """A secret that a sandbox may use."""

    #: Also of the variable that holds the placeholder.
    name: str
    #: What the guest has instead of the value.
    placeholder: str


@dataclass(frozen=True)
class NetworkUsage:
    """What went through a sandbox's gateway."""

    sent_bytes: int = 0
    received_bytes: int = 0
    connections_open: int = 0
    connections_allowed: int = 0
    connections_refused: int = 0
    dns_queries: int = 0
    dns_refused: int = 0
    requests_refused: int = 0
    #: Also frames that were dropped: damaged, too long, in fragments or under another's name.
    packets_refused: int = 0
    #: Decisions that are no event, because there were too many at once.
    events_lost: int = 0

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> NetworkUsage:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


@dataclass(frozen=True)
class NetworkPolicy:
    """What may be reached."""

    mode: NetworkMode
    allow: List[str]
    tls: str
    #: Addresses and networks that are refused, whatever is allowed.
    deny: List[str] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> NetworkPolicy:
        return cls(data["mode"], data["allow"], data["tls"], data.get("deny", []))


@dataclass(frozen=True)
class Network:
    """What a sandbox may reach, and what went through its gateway."""

    mode: NetworkMode
    allow: List[str]
    tls: str
    #: What it may use, whoever said so.
    limits: NetworkLimits
    secrets: List[GrantedSecret] = field(default_factory=list)
    group: Optional[str] = None
    #: By which the others of its group reach it.
    hostnames: List[str] = field(default_factory=list)
    usage: NetworkUsage = field(default_factory=NetworkUsage)
    #: In the mode ``learn``: the list that would have allowed what was used.
    learned: Optional[List[str]] = None
    #: Whose policy it is.
    source: NetworkSource = "sandbox"
    #: The workspace's policy, if it binds: what that does not allow is refused, too.
    bound: Optional[NetworkPolicy] = None
    #: Names of secrets that it was granted and that were removed since.
    revoked_secrets: List[str] = field(default_factory=list)
    #: Addresses and networks that are refused, whatever is allowed.
    deny: List[str] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Network:
        group, bound = data.get("group") or {}, data.get("bound")
        return cls(
            mode=data["mode"],
            allow=data["allow"],
            tls=data["tls"],
            limits=data["limits"],
            secrets=[GrantedSecret(item["name"], item["placeholder"]) for item in data["secrets"]],
            group=group.get("name"),
            hostnames=group.get("names", []),
            usage=NetworkUsage.from_wire(data["counts"]),
            learned=data.get("learned"),
            source=data.get("from", "sandbox"),
            bound=bound and NetworkPolicy.from_wire(bound),
            revoked_secrets=data.get("revoked_secrets", []),
            deny=data.get("deny", []),
        )


@dataclass(frozen=True)
class NetworkDefault:
    """What sandboxes may reach that say nothing about it themselves."""

    #: Nothing if it is left to the workspace's default, and that to none at all.
    mode: Optional[NetworkMode] = None
    allow: List[str] = field(default_factory=list)
    tls: Optional[str] = None
    #: Those that it sets.
    limits: NetworkLimits = field(default_factory=NetworkLimits)
    #: Whether it is the most for all sandboxes of the workspace, whatever they say themselves.
    binding: bool = False
    #: Addresses and networks that are refused, whatever is allowed.
    deny: List[str] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> NetworkDefault:
        policy = data.get("policy") or {}
        return cls(
            mode=policy.get("mode"),
            allow=policy.get("allow", []),
            tls=policy.get("tls"),
            limits=data["limits"],
            binding=data.get("binding", False),
            deny=policy.get("deny", []),
        )


@dataclass(frozen=True)
class NetworkEvent:
    """One decision of a sandbox's gateway."""

    #: Rises from event to event.
    number: int
    time: str
    #: ``dns``, ``connect``, ``accept``, ``name``, ``request``, ``close`` or ``packet``.
    kind: str
    #: ``allowed``, ``refused`` or ``failed``.
    verdict: str
    name: Optional[str] = None
    address: Optional[str] = None
    port: Optional[int] = None
    #: Whether it is about datagrams rather than a connection.
    udp: bool = False
    #: Why it was refused or failed, for people.
    reason: Optional[str] = None
    #: The same for programs.
    code: Optional[str] = None
    sent_bytes: int = 0
    received_bytes: int = 0
    #: Names of secrets that were placed into a request.
    secrets: List[str] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> NetworkEvent:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


def network_body(options: Mapping[str, Any]) -> Dict[str, Any]:
    """What is not given is not sent: it stays as it is."""
    return {name: value for name, value in options.items() if value is not None}
