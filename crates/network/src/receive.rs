//! The task that takes in the guest's frames.
//!
//! It never waits for anything but frames: what takes longer becomes a task of its own. A guest that sends rubbish is
//! read more slowly the more it sends, so that it costs nobody else anything.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::event::{Event, EventKind, Verdict, add};
use crate::frame::{self, Inbound};
use crate::policy::{Range, Refusal};
use crate::rate::Bucket;
use crate::shared::Shared;
use crate::{tcp, udp};

/// Frames between two looks at what else there is to do.
const AT_ONCE: usize = 64;
/// Frames a second that may be rubbish, refused or about nothing, and how many at once.
const RUBBISH: (f64, f64) = (2_000.0, 4_000.0);
/// Questions being answered at a time.
const QUESTIONS: usize = 256;
/// What is longer than the longest frame, so that an oversized one is seen as such.
const ROOM: usize = 1;

/// Takes in frames until the link breaks.
pub(crate) async fn receive(shared: Arc<Shared>) {
    let mut room = vec![0; usize::from(shared.ends.mtu) + frame::ETHERNET_HEADER + ROOM];
    let mut receiver =
        Receiver { rubbish: Bucket::new(RUBBISH.0, RUBBISH.1), questions: Arc::new(Semaphore::new(QUESTIONS)), shared };
    loop {
        if let Err(error) = receiver.shared.link.readable().await {
            tracing::error!(%error, "the gateway's socket is broken");
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
    /// Takes in some frames; answers how long to rest before the next.
    fn some(&mut self, room: &mut [u8]) -> Duration {
        let mut wait = Duration::ZERO;
        for _ in 0..AT_ONCE {
            let length = match self.shared.link.try_receive(room) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::warn!(%error, "a frame could not be received");
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

    /// Takes in one frame; answers whether it was of use.
    fn one(&mut self, bytes: &[u8]) -> bool {
        let shared = &self.shared;
        match frame::read(&shared.ends, bytes) {
            Inbound::Tcp { segment, packet } => return tcp::segment(shared, segment, packet),
            Inbound::Udp(datagram) => return udp::datagram(shared, &datagram),
            Inbound::Dns { from_port, message } => self.question(from_port, message),
            Inbound::WhoIsGateway => self.send(frame::arp_reply(&shared.ends)),
            Inbound::Echo { ident, sequence, data } => {
                self.send(frame::echo_reply(&shared.ends, ident, sequence, data));
            }
            Inbound::Dhcp(message) => {
                if let Some(reply) = frame::lease(&shared.ends, message) {
                    self.send(reply);
                }
            }
            Inbound::Refused { to, why, packet } => {
                // A disguise is called what it hides.
                let why = match (why, Range::of(to)) {
                    (Refusal::Ipv6, Some(range)) if range != Range::Ipv6 => Refusal::Range(range),
                    _ => why,
                };
                shared.journal.write(Event::new(EventKind::Packet, Verdict::Refused(why)).at_address(to, None));
                if let Some(answer) = packet.and_then(|packet| frame::unreachable(&shared.ends, packet)) {
                    self.send(answer);
                }
            }
            Inbound::Chatter => {}
            Inbound::Dropped(why) => shared.journal.dropped(why),
        }
        false
    }

    fn send(&self, bytes: Vec<u8>) {
        self.shared.link.send(bytes, &self.shared.journal.counters);
    }

    fn question(&self, from_port: u16, message: &[u8]) {
        let Ok(place) = self.questions.clone().try_acquire_owned() else {
            self.shared.journal.asked();
            return self.shared.journal.sample(Event::new(EventKind::Dns, Verdict::Refused(Refusal::DnsRate)));
        };
        let (shared, message) = (self.shared.clone(), message.to_vec());
        tokio::spawn(async move {
            if let Some(answer) = shared.dns.answer(&shared, &message).await.message {
                let ends = &shared.ends;
                let (own, guest) = ((ends.gateway_address, 53), (ends.guest_address, from_port));
                let bytes = frame::udp(ends, own, guest, &answer);
                shared.link.send(bytes, &shared.journal.counters);
            }
            drop(place);
        });
    }
}
