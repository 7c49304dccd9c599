//! The task that receives the guest's frames.
//!
//! The task waits for frames only, and spawns another task for everything that takes longer. It slows down for a guest
//! that sends useless frames, so that such a guest costs other sandboxes nothing.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::dns_server::answer;
use crate::event::{Event, EventKind, Verdict};
use crate::frame::{self, Inbound};
use crate::journal::add;
use crate::policy::{Range, Refusal};
use crate::rate::Bucket;
use crate::shared::Shared;
use crate::{connections, datagrams};

/// Frames that are handled before the task yields to others.
const AT_ONCE: usize = 64;
/// Useless frames (malformed, refused or without effect) a second before reading slows down, and how many at once.
const RUBBISH: (f64, f64) = (2_000.0, 4_000.0);
/// DNS queries that are answered at the same time.
const QUESTIONS: usize = 256;
/// How often a fenced guest is looked at again.
const FENCED: Duration = Duration::from_millis(100);
/// One byte more than the longest frame, so that an oversized frame is recognized.
const ROOM: usize = 1;

/// Receives frames until the link fails.
pub(crate) async fn receive(shared: Arc<Shared>) {
    let mut room = vec![0; usize::from(shared.link.ends.mtu) + frame::ETHERNET_HEADER + ROOM];
    let mut receiver =
        Receiver { rubbish: Bucket::new(RUBBISH.0, RUBBISH.1), questions: Arc::new(Semaphore::new(QUESTIONS)), shared };
    loop {
        if let Err(error) = receiver.shared.link.readable().await {
            tracing::error!(%error, "the gateway's socket failed; the sandbox has no network");
            return;
        }
        let wait = receiver.some(&mut room);
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

struct Receiver {
    shared: Arc<Shared>,
    rubbish: Bucket,
    questions: Arc<Semaphore>,
}

impl Receiver {
    /// Handles some frames. Returns how long to wait before the next.
    fn some(&mut self, room: &mut [u8]) -> Duration {
        let mut wait = Duration::ZERO;
        for _ in 0..AT_ONCE {
            // Before each frame: this process may have stood still for long since the last one.
            if self.shared.is_fenced() {
                return FENCED;
            }
            let length = match self.shared.link.try_receive(room) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot receive a frame");
                    break;
                }
            };
            add(&self.shared.journal.counters.frames_in);
            if !self.one(&room[..length]) {
                wait = wait.max(self.rubbish.owe(1.0));
            }
        }
        wait
    }

    /// Handles one frame. Returns whether it was useful.
    fn one(&mut self, bytes: &[u8]) -> bool {
        let shared = &self.shared;
        match frame::read(&shared.link.ends, bytes) {
            Inbound::Tcp { segment, packet } => return connections::segment(shared, segment, packet),
            Inbound::Udp(datagram) => return datagrams::datagram(shared, &datagram),
            Inbound::Dns { from_port, message } => self.question(from_port, message),
            Inbound::WhoIsGateway => self.send(frame::arp_reply(&shared.link.ends)),
            Inbound::Echo { ident, sequence, data } => {
                self.send(frame::echo_reply(&shared.link.ends, ident, sequence, data));
            }
            Inbound::Dhcp(message) => {
                if let Some(reply) = frame::lease(&shared.link.ends, message) {
                    self.send(reply);
                }
            }
            Inbound::Refused { to, why, packet } => {
                // An IPv6 address that embeds an IPv4 address is reported as the range of that address.
                let why = match (why, Range::of(to)) {
                    (Refusal::Ipv6, Some(range)) if range != Range::Ipv6 => Refusal::Range(range),
                    _ => why,
                };
                shared.journal.write(Event::new(EventKind::Packet, Verdict::Refused(why)).at_address(to, None));
                if let Some(answer) = packet.and_then(|packet| frame::unreachable(&shared.link.ends, packet)) {
                    self.send(answer);
                }
            }
            Inbound::Chatter => {}
            Inbound::Dropped(why) => shared.journal.dropped(why),
        }
        false
    }

    fn send(&self, bytes: Vec<u8>) {
        self.shared.link.send(bytes);
    }

    fn question(&self, from_port: u16, message: &[u8]) {
        let Ok(place) = self.questions.clone().try_acquire_owned() else {
            self.shared.journal.asked();
            return self.shared.journal.sample(Event::new(EventKind::Dns, Verdict::Refused(Refusal::DnsRate)));
        };
        let (shared, message) = (self.shared.clone(), message.to_vec());
        tokio::spawn(async move {
            if let Some(answer) = answer(&shared, &message).await.message {
                let ends = &shared.link.ends;
                let (own, guest) = ((ends.gateway_address, 53), (ends.guest_address, from_port));
                let bytes = frame::udp(ends, own, guest, &answer);
                shared.link.send(bytes);
            }
            drop(place);
        });
    }
}
