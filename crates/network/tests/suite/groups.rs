//! Sandboxes of one group reach each other by name, and no other sandbox does.

use std::sync::Arc;

use sandling_network::policy::{Policy, Refusal};
use sandling_network::{EventKind, Gateway, Group, Member, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::isolated;
use crate::world::{World, guest};

isolated! {
    async fn peers_see_each_other_by_name() {
        let group = Group::new();
        let seen_as = |name: &str| Member::new(group.clone(), name.parse().unwrap());
        let mut world = World::with(Policy::default(), |config| config.peers = Some(seen_as("client"))).await;
        let mut config = world.config("gateway-b", "machine-b");
        let (tell, mut told) = mpsc::channel(64);
        config.peers = Some(seen_as("database"));
        config.events = Some(tell);
        let other = Gateway::start(config).unwrap();
        let neighbour = guest(&world.directory, "machine-b", "gateway-b");
        assert!(group.join("database".parse().unwrap(), &other));
        assert!(!group.join("database".parse().unwrap(), world.gateway()), "the name is taken");
        assert!(group.join("client".parse().unwrap(), world.gateway()));

        let [address] = world.guest.resolve("database").await[..] else { panic!("no address") };
        let server = async {
            let mut stream = neighbour.accept(5432).await.unwrap();
            let mut asked = [0; 5];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            stream.shutdown().await.unwrap();
            asked
        };
        let client = async {
            let mut stream = world.guest.connect(address, 5432).await.unwrap();
            stream.write_all(b"query").await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let (asked, answer) = tokio::join!(server, client);
        assert_eq!((&asked, &answer[..]), (b"query", &b"answer"[..]));
        let accepted = told.recv().await.unwrap();
        assert_eq!((accepted.kind, accepted.verdict, accepted.port), (EventKind::Accept, Verdict::Allowed, Some(5432)));
        assert_eq!(accepted.name.unwrap().as_str(), "client");
        assert_eq!((other.stats().bytes_in, other.stats().bytes_out), (5, 6));

        assert!(world.guest.connect(address, 1).await.is_err(), "nobody listens there");
        assert!(neighbour.resolve("sandbox-a").await.is_empty(), "nobody has that name");
        // A member that leaves loses its connections. It gets the same address when it returns.
        let (theirs, ours) = tokio::join!(neighbour.accept(5432), world.guest.connect(address, 5432));
        let (_theirs, ours) = (theirs.unwrap(), ours.unwrap());
        group.leave(&"database".parse().unwrap());
        assert!(ours.reset().await, "a connection outlived the group");
        world.event(EventKind::Close, |event| event.verdict == Verdict::Refused(Refusal::PolicyChanged)).await;
        assert!(world.guest.resolve("database").await.is_empty());
        assert!(world.guest.connect(address, 5432).await.is_err());
        group.join("database".parse().unwrap(), &other);
        assert_eq!(world.guest.resolve("database").await, [address]);
        world.gateway().set_peers(None);
        assert!(world.guest.resolve("database").await.is_empty());
        assert!(world.guest.connect(address, 5432).await.is_err());
    }
    async fn no_connection_outlives_a_move_to_another_group() {
        let (first, second) = (Group::new(), Group::new());
        let of = |group: &Arc<Group>, name: &str| Member::new(group.clone(), name.parse().unwrap());
        let world = World::with(Policy::default(), |config| config.peers = Some(of(&first, "client"))).await;
        let start = |group: &Arc<Group>, gateway: &str, machine: &str| {
            let mut config = world.config(gateway, machine);
            config.peers = Some(of(group, "database"));
            let gateway_of = Gateway::start(config).unwrap();
            assert!(group.join("database".parse().unwrap(), &gateway_of));
            (gateway_of, guest(&world.directory, machine, gateway))
        };
        let (_one, one) = start(&first, "gateway-b", "machine-b");
        let (two, other) = start(&second, "gateway-c", "machine-c");

        let [address] = world.guest.resolve("database").await[..] else { panic!("no address") };
        let (theirs, ours) = tokio::join!(one.accept(5432), world.guest.connect(address, 5432));
        let (theirs, ours) = (theirs.unwrap(), ours.unwrap());
        world.gateway().set_peers(Some(of(&second, "client")));
        assert!(ours.reset().await, "it still has a connection into the group that it left");
        assert!(theirs.reset().await, "what was cut looks like an end");

        assert_eq!(world.guest.resolve("database").await, [address]);
        let (theirs, ours) = tokio::join!(other.accept(5432), world.guest.connect(address, 5432));
        let (theirs, ours) = (theirs.unwrap(), ours.unwrap());
        two.set_peers(None);
        assert!(theirs.reset().await && ours.reset().await, "it is still reached from the group that it left");
    }
}
