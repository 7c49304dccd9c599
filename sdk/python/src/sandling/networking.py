"""Network policies, usage and events as plain data, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional, TypedDict

#: Nothing, the allow-list, the public internet, or the public internet with a list of what was used.
NetworkMode = Literal["deny", "allow", "open", "learn"]
#: Where a policy comes from: the sandbox itself, a default that it follows, or nowhere.
NetworkSource = Literal["sandbox", "template", "workspace", "nothing"]


class NetworkLimits(TypedDict, total=False):
    """How much of the network a sandbox may use. A missing value means the server's limit."""

    #: In total.
    sent_bytes: int
    sent_bytes_per_second: int
    received_bytes_per_second: int
    #: At the same time.
    connections: int
    dns_queries_per_second: int


class NetworkOptions(TypedDict, total=False):
    """What a sandbox may reach. In a change, missing fields keep their value."""

    #: By default ``allow`` if the list ``allow`` has entries, otherwise ``deny``. A change without a list keeps the
    #: mode. A change to another mode than ``allow`` empties the list, unless you pass one.
    mode: Optional[NetworkMode]
    #: Names, ``*.name``, addresses, networks, and the presets ``pypi``, ``npm``, ``crates``, ``debian`` and ``github``.
    allow: Optional[List[str]]
    #: Addresses and networks that are always refused.
    deny: Optional[List[str]]
    #: ``sealed``, or ``inspected``: the gateway compares the host of each request with the name of the server.
    tls: Optional[Literal["sealed", "inspected"]]
    limits: Optional[NetworkLimits]
    #: Names of all secrets that it has after this.
    secrets: Optional[List[str]]
    #: Members reach each other as ``HOSTNAME.internal`` and ``ID.internal``. In a change, ``""`` leaves the group.
    group: Optional[str]
    hostname: Optional[str]


@dataclass(frozen=True)
class GrantedSecret:
    """A secret that a sandbox may use."""

    #: Also the name of the variable that holds the placeholder.
    name: str
    #: What the guest sees instead of the value.
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
    #: Includes dropped frames: damaged, too long, fragmented or spoofed.
    packets_refused: int = 0
    #: Decisions without an event, because there were too many at once.
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
    #: Addresses and networks that are always refused.
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
    #: The limits in force, wherever they come from.
    limits: NetworkLimits
    secrets: List[GrantedSecret] = field(default_factory=list)
    group: Optional[str] = None
    #: The name by which its group reaches it.
    hostnames: List[str] = field(default_factory=list)
    usage: NetworkUsage = field(default_factory=NetworkUsage)
    #: In the mode ``learn``: the allow-list that would have been enough.
    learned: Optional[List[str]] = None
    #: Where the policy comes from.
    source: NetworkSource = "sandbox"
    #: The workspace's policy if it is binding: connections must pass it, too.
    bound: Optional[NetworkPolicy] = None
    #: Names of granted secrets that were removed since.
    revoked_secrets: List[str] = field(default_factory=list)
    #: Addresses and networks that are always refused.
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
    """The default for sandboxes without their own policy."""

    #: ``None`` if the workspace's default applies, or if there is none.
    mode: Optional[NetworkMode] = None
    allow: List[str] = field(default_factory=list)
    tls: Optional[str] = None
    #: The limits that it sets.
    limits: NetworkLimits = field(default_factory=NetworkLimits)
    #: Whether no sandbox of the workspace may exceed it.
    binding: bool = False
    #: Addresses and networks that are always refused.
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

    #: Increases with each event.
    number: int
    time: str
    #: ``dns``, ``connect``, ``accept``, ``name``, ``request``, ``close`` or ``packet``.
    kind: str
    #: ``allowed``, ``refused`` or ``failed``.
    verdict: str
    name: Optional[str] = None
    address: Optional[str] = None
    port: Optional[int] = None
    #: Whether it is about UDP.
    udp: bool = False
    #: Why it was refused or failed, as text.
    reason: Optional[str] = None
    #: The same as a stable code.
    code: Optional[str] = None
    sent_bytes: int = 0
    received_bytes: int = 0
    #: Names of secrets that were placed into a request.
    secrets: List[str] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> NetworkEvent:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


def network_body(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The request body. Options that are not given are not sent and keep their value."""
    return {name: value for name, value in options.items() if value is not None}
