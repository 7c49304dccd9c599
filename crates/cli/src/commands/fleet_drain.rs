//! What `sandling fleet drain` and `fleet status` say about a drain.

use std::time::Duration;

use anyhow::{Context, bail};
use sandling_fleet::{DrainLeft, DrainProgress, EtcdLedger, Ledger, NODES, drain_progress_key};

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a draining node shows. `None` before it has noticed that it drains.
pub(super) async fn progress(ledger: &EtcdLedger, node: &str) -> anyhow::Result<Option<DrainProgress>> {
    let found = ledger.get(&drain_progress_key(node)).await?;
    found.map(|found| serde_json::from_str(&found.value).context("the progress of the drain is unreadable")).transpose()
}

/// Shows the progress of a drain until nothing moves any more. Fails if something stays on the node.
pub(super) async fn watch(ledger: &EtcdLedger, node: &str) -> anyhow::Result<()> {
    let mut shown = String::new();
    loop {
        if let Some(progress) = progress(ledger, node).await? {
            let text = describe(&progress);
            if text != shown {
                eprintln!("{text}");
                shown = text;
            }
            if progress.left.is_empty() {
                return Ok(());
            }
            if progress.left.iter().all(|left| !left.moves_later) {
                bail!("{} cannot leave node {node}: {}", amount(&progress.left), reasons(&progress.left));
            }
        } else if ledger.get(&format!("{NODES}{node}")).await?.is_none() {
            bail!(
                "node {node} is down; its sandboxes move when it is back, unless `sandling fleet undrain {node}` ends that"
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub(super) fn describe(progress: &DrainProgress) -> String {
    let moved = format!("{} moved", progress.moved);
    match progress.left.is_empty() {
        true => format!("{moved}, nothing left"),
        false => format!("{moved}, {} left: {}", amount(&progress.left), reasons(&progress.left)),
    }
}

fn reasons(left: &[DrainLeft]) -> String {
    let one = |left: &DrainLeft| format!("{} ({})", left.why, left.count);
    left.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Such as `2 sandboxes and 1 snapshot`.
fn amount(left: &[DrainLeft]) -> String {
    let count = |what: &str| left.iter().filter(|left| left.what == what).map(|left| left.count).sum::<u32>();
    let named = [(count("sandbox"), "sandbox", "sandboxes"), (count("snapshot"), "snapshot", "snapshots")];
    let named = named.iter().filter(|(count, ..)| *count > 0);
    let one = |(count, one, many): &(u32, &str, &str)| format!("{count} {}", if *count == 1 { one } else { many });
    named.map(one).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_says_what_is_left_and_why() {
        let left = |what: &str, why: &str, count| DrainLeft {
            what: what.to_owned(),
            why: why.to_owned(),
            count,
            moves_later: true,
        };
        let progress = |left| DrainProgress { moved: 3, left, unknown: Default::default() };
        assert_eq!(describe(&progress(Vec::new())), "3 moved, nothing left");
        let some = vec![left("sandbox", "it has a volume", 2), left("snapshot", "others move first", 1)];
        let text = "3 moved, 2 sandboxes and 1 snapshot left: it has a volume (2), others move first (1)";
        assert_eq!(describe(&progress(some)), text);
    }
}
