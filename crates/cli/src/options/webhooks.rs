//! Options of `sandling webhook`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Send events to a URL from now on, and print the ID of the webhook
    #[command(
        after_help = "Example:\n  sandling webhook create https://example.org/hook --event sandbox.created --event sandbox.ended"
    )]
    Create {
        /// Address of the receiver: https:// or http://
        url: String,
        /// Type of events to send, such as sandbox.ended; sandbox.* and * stand for several; may be repeated
        #[arg(long = "event", value_name = "TYPE", required = true)]
        events: Vec<String>,
        /// What the webhook is for
        #[arg(long, value_name = "TEXT", default_value = "")]
        description: String,
        #[arg(long, help = "Print JSON, with the key of the signatures")]
        json: bool,
    },
    /// List webhooks; their keys are not shown
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Remove a webhook and its deliveries
    Rm {
        /// Webhook ID
        id: String,
    },
    /// List the newest deliveries of a webhook
    Deliveries {
        /// Webhook ID
        id: String,
        /// How many deliveries to list
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
        #[arg(long, help = "Print JSON, with what is sent")]
        json: bool,
    },
    /// Send a delivery again
    Replay {
        /// Webhook ID
        id: String,
        /// Number of the delivery, as shown by `webhook deliveries`
        number: i64,
    },
}
