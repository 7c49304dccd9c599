//! Sandboxes of one group reach each other by name, and nobody else.

use sandling_network::policy::Policy;
use sandling_network::{Gateway, Group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::isolated;
use crate::world::{World, guest};

isolated! {
    async fn peers_see_each_other_by_name() {
        let group = Group::new();
        let world = World::with(Policy::default(), |config| config.peers = Some(group.clone())).await;
        let mut config = world.config("gateway-b", "machine-b");
        config.peers = Some(group.clone());
        let other = Gateway::start(config).unwrap();
        let neighbour = guest(&world.directory, "machine-b", "gateway-b");
        group.join("database".parse().unwrap(), &other);

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

        assert!(world.guest.connect(address, 1).await.is_err(), "nobody listens there");
        assert!(neighbour.resolve("sandbox-a").await.is_empty(), "the first did not join");
        group.leave(&"database".parse().unwrap());
        assert!(world.guest.resolve("database").await.is_empty());
        assert!(world.guest.connect(address, 5432).await.is_err());
    }
}
