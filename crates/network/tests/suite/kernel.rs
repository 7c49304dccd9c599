//! Linux as the guest: a tap device in a second namespace, so that the gateway is tested with the TCP stack of real
//! guests.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::UnshareFlags;
use sandling_network::Ends;
use sandling_network::policy::{Mode, Policy};

use crate::isolated;
use crate::servers::byte_at;
use crate::world::{SHARED, STRANGER, World, allow};

/// Runs `work` in a namespace whose only network card is at the end of the cable. None if this host has no tap devices.
async fn as_kernel<T: Send + 'static>(world: &World, mtu: u16, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if tap().is_err() {
        eprintln!("SKIPPED: /dev/net/tun cannot be opened");
        return None;
    }
    let path = |name: &str| world.directory.path().join(name);
    let (own, gateway, ends) = (path("kernel"), path("gateway-k"), world.guest.ends);
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // SAFETY: this changes the network namespace of this thread only, and the thread shares nothing that depends on
        // it.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        // A tap device belongs to the namespace in which its file is opened, so open it here.
        plug_in(tap().unwrap(), own, gateway, &ends, mtu);
        let _ = done.send(work());
    });
    Some(result.await.unwrap())
}

fn tap() -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/net/tun")
}

fn plug_in(device: File, own: PathBuf, gateway: PathBuf, ends: &Ends, mtu: u16) {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"card0") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open and the request outlives the call.
    assert_eq!(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &request) }, 0, "no tap device");
    let mac = ends.guest_mac.0.map(|byte| format!("{byte:02x}")).join(":");
    for line in [
        format!("link set card0 address {mac} mtu {mtu} up"),
        format!("addr add {}/{} dev card0", ends.guest_address, ends.prefix_length),
        format!("route add default via {}", ends.gateway_address),
    ] {
        assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
    }
    let device = Arc::new(device);
    let socket = Arc::new(UnixDatagram::bind(own).unwrap());
    let (card, cable) = (device.clone(), socket.clone());
    std::thread::spawn(move || {
        let mut room = [0; 70_000];
        while let Ok(count) = (&*card).read(&mut room) {
            let _ = cable.send_to(&room[..count], &gateway);
        }
    });
    std::thread::spawn(move || {
        let mut room = [0; 70_000];
        while let Ok(count) = socket.recv(&mut room) {
            let _ = (&*device).write(&room[..count]);
        }
    });
}

/// A world with a second gateway, for the kernel.
async fn world(policy: Policy) -> (World, sandling_network::GatewayHandle) {
    let world = World::open().await;
    let mut config = world.config("gateway-k", "kernel");
    config.policy = policy;
    let gateway = sandling_network::Gateway::start(config).unwrap();
    (world, gateway)
}

fn down_and_up(count: u64) {
    let mut stream = TcpStream::connect((SHARED, 19)).unwrap();
    stream.write_all(&count.to_be_bytes()).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received.len() as u64, count);
    assert!(received.iter().enumerate().all(|(place, byte)| *byte == byte_at(place as u64)));
    let mut stream = TcpStream::connect((SHARED, 9)).unwrap();
    stream.write_all(&received).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut right = [0; 8];
    stream.read_exact(&mut right).unwrap();
    assert_eq!(u64::from_be_bytes(right), count);
}

isolated! {
    async fn linux_sends_and_receives_with_small_packets() {
        let (world, _gateway) = world(Policy::of(Mode::Open)).await;
        as_kernel(&world, 1500, || down_and_up(16 << 20)).await;
    }

    async fn linux_sends_and_receives_with_large_packets() {
        let (world, _gateway) = world(Policy::of(Mode::Open)).await;
        as_kernel(&world, 16_000, || down_and_up(16 << 20)).await;
    }

    async fn linux_sees_refusals_at_once() {
        let (world, _gateway) = world(allow(&["example.com"])).await;
        as_kernel(&world, 1500, || {
            let start = Instant::now();
            for (address, port) in [(STRANGER, 443), (Ipv4Addr::new(169, 254, 169, 254), 80), (Ipv4Addr::new(10, 0, 0, 1), 22)] {
                let refused = TcpStream::connect_timeout(&(address, port).into(), Duration::from_secs(30));
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}:{port}");
            }
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((STRANGER, 443)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket.send(b"quic").unwrap();
            assert_eq!(socket.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::HostUnreachable);
            assert!(UdpSocket::bind("[::]:0").and_then(|socket| socket.connect("[2606:2800::1]:443")).is_err());
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        })
        .await;
    }

    async fn linux_exchanges_datagrams() {
        let (world, _gateway) = world(allow(&["93.184.216.34:9999", "93.184.216.34:4444"])).await;
        as_kernel(&world, 16_000, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket.connect((SHARED, 9999)).unwrap();
            for size in [0, 1, 2000] {
                socket.send(&vec![7; size]).unwrap();
                assert_eq!(socket.recv(&mut [0; 4000]).unwrap(), size);
            }
            socket.connect((SHARED, 4444)).unwrap();
            socket.send(b"nobody there").unwrap();
            assert_eq!(socket.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            socket.connect((SHARED, 123)).unwrap();
            socket.send(b"not listed").unwrap();
            assert_eq!(socket.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::HostUnreachable);
        })
        .await;
    }

    async fn linux_opens_hundreds_of_connections() {
        let (world, gateway) = world(Policy::of(Mode::Open)).await;
        let opened = as_kernel(&world, 1500, || {
            let mut streams: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect((SHARED, 7)).unwrap()).collect();
            for stream in &mut streams {
                stream.write_all(b"\0").unwrap();
            }
            for stream in &mut streams {
                stream.read_exact(&mut [0]).unwrap();
            }
            streams
        });
        if let Some(streams) = opened.await {
            assert_eq!(gateway.stats().connections_open, streams.len() as u64);
        }
    }
}
