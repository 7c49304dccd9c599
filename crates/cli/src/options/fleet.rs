//! Options of `sandling fleet`.

use clap::{Args, Subcommand, value_parser};

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Make this machine the first node of a fleet, and print a token with which another joins
    #[command(after_help = "Example:\n  sandling fleet init --address 10.0.0.1:7443")]
    Init {
        /// Where other nodes reach this machine
        #[arg(long, value_name = "HOST:PORT")]
        address: String,
        /// An etcd that you run, reached without TLS; may be repeated for its members [default: this node's server runs
        /// one, at the port after that of --address]
        #[arg(long, value_name = "etcd://HOST:PORT")]
        engine: Vec<String>,
        #[command(flatten)]
        store: StoreOptions,
        /// Name of this node [default: the host's name]
        #[arg(long)]
        name: Option<String>,
    },
    /// Make this machine a node of an existing fleet
    #[command(after_help = "Example:\n  sandling fleet join 10.0.0.1:7443 --token sdlf_… --address 10.0.0.2:7443")]
    Join {
        /// Address of the node that printed the token
        #[arg(value_name = "HOST:PORT")]
        through: String,
        /// The token that `sandling fleet init` or `sandling fleet token` printed
        #[arg(long, env = "SANDLING_FLEET_TOKEN", hide_env_values = true)]
        token: String,
        /// Where other nodes reach this machine
        #[arg(long, value_name = "HOST:PORT")]
        address: String,
        /// Name of this node [default: the host's name]
        #[arg(long)]
        name: Option<String>,
    },
    /// Print a token with which one machine, or several, join through this node within an hour
    #[command(after_help = "Example:\n  sandling fleet token --machines 10")]
    Token {
        /// How many machines can join with it
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
        machines: u32,
    },
    /// List the nodes of the fleet, and how many of their snapshots are durable
    Status {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Give the fleet another etcd, after the machine that runs it is lost for good; run this on a node that is up
    #[command(after_help = "Example:\n  sandling fleet rebuild --lost a")]
    Rebuild {
        /// An etcd without data that you run, reached without TLS; may be repeated for its members [default: this node's
        /// server runs one, at the port after that of its address]
        #[arg(long, value_name = "etcd://HOST:PORT")]
        engine: Vec<String>,
        /// Replace the etcd even if it answers; what only it knows is lost
        #[arg(long)]
        force: bool,
        /// A node that does not answer, and that you have turned off, or cut off from the store and the network; may be
        /// repeated
        #[arg(long, value_name = "NODE")]
        lost: Vec<String>,
    },
    /// Exclude a node, whether it is up or not; its sandboxes keep running on its machine but are no longer the fleet's
    Remove { node: String },
    /// Move the sandboxes and snapshots of a node to other nodes, place no new ones on it, and wait for the end
    #[command(after_help = "Example:\n  sandling fleet drain b && ssh b reboot")]
    Drain {
        node: String,
        /// Move a sandbox that is still in use after this time, in seconds; its commands go on, but connections end
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        wait: u64,
        /// Only place no new sandboxes on the node
        #[arg(long)]
        keep_sandboxes: bool,
        /// Return at once; `sandling fleet status` shows the progress
        #[arg(long)]
        detach: bool,
    },
    /// End a drain: what has not moved stays, and the node gets new sandboxes again
    Undrain { node: String },
}

#[derive(Debug, Args)]
pub struct StoreOptions {
    /// Where the fleet keeps copies of snapshots: s3://BUCKET/PREFIX, with the credentials in AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY of each node's server, or a directory that all nodes share [default: nowhere]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// URL of an S3 server that is not Amazon's [default: AWS_ENDPOINT_URL of each node]
    #[arg(long, value_name = "URL", requires = "store")]
    pub store_endpoint: Option<String>,
    /// Region of the bucket [default: AWS_REGION of each node, or us-east-1]
    #[arg(long, value_name = "REGION", requires = "store")]
    pub store_region: Option<String>,
}
