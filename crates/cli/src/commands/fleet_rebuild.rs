//! `sandling fleet rebuild`.

use anyhow::{Context, bail};
use sandling_api::{FleetSettings, NodeState, Rebuild};
use sandling_fleet::{Copies, Engine, own_etcd};
use sandling_wire::Home;

use crate::show;

/// Gives the fleet another etcd: one of these addresses, or one that this node's server runs.
pub(super) async fn rebuild(
    settings: &FleetSettings,
    home: &Home,
    addresses: Option<Vec<String>>,
    lost: &[String],
    force: bool,
) -> anyhow::Result<()> {
    if addresses.is_none() && own_etcd::program().is_none() {
        bail!("the program etcd is not installed; run `apt-get install etcd-server`, or name an etcd with --engine");
    }
    let mut rebuild = Rebuild::new(settings, home)?;
    eprintln!("Asking all nodes for the fleet's etcd.");
    let (own, others) = rebuild.ask_all().await;
    let generation = next_generation(&own, &others, lost, force)?;
    let engine = match addresses {
        Some(endpoints) => Engine { generation, endpoints },
        None => {
            eprintln!("Starting an etcd on this node.");
            rebuild.start_engine(generation).await?
        }
    };
    rebuild.check_engine(&engine).await?;
    eprintln!("Writing to it what the nodes remember.");
    let (copies, silent) = rebuild.fill(&engine).await?;
    refuse_silent(silent.iter().map(|(name, why)| (&**name, &**why)), lost)?;
    rebuild.switch_own(&engine).await.context(
        "nothing has changed for the other nodes; read the log of this node's server, and run this command again",
    )?;
    eprintln!("The fleet's etcd is at {} now (generation {generation}).", engine.endpoints.join(", "));
    show::line(format!("node {}: switched", own.name))?;
    for (name, switched) in rebuild.switch_others(&engine).await {
        show::line(match switched {
            Ok(()) => format!("node {name}: switched"),
            Err(why) => format!("node {name}: not yet, it follows when it answers ({why})"),
        })?;
    }
    eprintln!("{}", what_is_lost(&copies, &silent));
    Ok(())
}

/// The generation of the new etcd, if there may be one.
fn next_generation(own: &NodeState, others: &[NodeState], lost: &[String], force: bool) -> anyhow::Result<u32> {
    let Some(known) = own.generation() else {
        let why = own.engine.as_ref().err().map_or("", String::as_str);
        bail!("the server of this node does not answer ({why}); start it with `sandling serve`");
    };
    if let Some(newer) = others.iter().find(|node| node.generation().is_some_and(|theirs| theirs > known)) {
        bail!(
            "node {} uses an etcd of a later generation already, and this node follows it within seconds; see `sandling \
             fleet status`",
            newer.name
        );
    }
    let reaching = std::iter::once(own).chain(others).find(|node| node.reaches_etcd());
    if let Some(node) = reaching.filter(|_| !force) {
        bail!(
            "node {} reaches the fleet's etcd, so nothing has to be rebuilt; `--force` replaces it nevertheless, and what \
             only it knows is lost",
            node.name
        );
    }
    refuse_silent(others.iter().filter_map(|node| Some((&*node.name, &**node.engine.as_ref().err()?))), lost)?;
    Ok(known + 1)
}

/// Nodes that do not answer, each with the reason, must be off. With the old etcd, they could take over sandboxes that others
/// run.
fn refuse_silent<'a>(silent: impl Iterator<Item = (&'a str, &'a str)>, lost: &[String]) -> anyhow::Result<()> {
    let mut silent = silent.filter(|(name, _)| lost.iter().all(|lost| **lost != **name)).peekable();
    if silent.peek().is_none() {
        return Ok(());
    }
    let (said, options): (Vec<_>, Vec<_>) =
        silent.map(|(name, why)| (format!("node {name} does not answer ({why})"), format!("--lost {name}"))).unzip();
    bail!(
        "{}; such a node may still reach the old etcd and run sandboxes, so turn it off, or cut it off from the store and the \
         network, and then repeat the command with `{}`",
        said.join(", "),
        options.join(" ")
    )
}

fn what_is_lost(copies: &Copies, silent: &[(String, String)]) -> String {
    let mut text = format!(
        "The new etcd knows where {} moved sandboxes are, {} durable snapshots, and {} removed machines. The nodes write tokens, workspaces and \
         settings again within seconds.\n\
         Lost is: which node has an Idempotency-Key, so a create that is repeated with an old key may make a second sandbox; \
         which join tokens were used.",
        copies.moved(),
        copies.snapshots(),
        copies.removed()
    );
    if !silent.is_empty() {
        let names: Vec<_> = silent.iter().map(|(name, _)| &**name).collect();
        text += &format!(
            "\nWhat only these nodes remembered is lost, too: {}. If one of them does not come back: sandling fleet remove \
             NODE",
            names.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, generation: Option<u32>, reaches: bool) -> NodeState {
        let engine = generation.map(|generation| (Engine { generation, endpoints: Vec::new() }, reaches));
        NodeState { name: name.to_owned(), engine: engine.ok_or_else(|| "it is down".to_owned()) }
    }

    #[test]
    fn an_etcd_that_a_node_reaches_is_not_replaced() {
        let a = ["a".to_owned()];
        let next = |own: NodeState, others: &[NodeState], force| next_generation(&own, others, &a, force);
        let others = [node("a", None, false), node("c", Some(1), false)];
        assert_eq!(next(node("b", Some(1), false), &others, false).unwrap(), 2);
        let why = |own: NodeState, others: &[NodeState], force| next(own, others, force).unwrap_err().to_string();
        assert!(why(node("b", None, false), &others, true).contains("sandling serve"));
        let reached = [node("a", None, false), node("c", Some(1), true)];
        assert!(why(node("b", Some(1), false), &reached, false).contains("node c reaches"));
        assert_eq!(next(node("b", Some(1), false), &reached, true).unwrap(), 2);
        let ahead = [node("c", Some(2), true)];
        assert!(why(node("b", Some(1), false), &ahead, true).contains("node c uses"));
    }

    #[test]
    fn a_node_that_does_not_answer_stops_a_rebuild_unless_it_is_lost() {
        let others = [node("a", None, false), node("c", None, false), node("d", Some(1), false)];
        let lost = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let next = |names: &[&str]| next_generation(&node("b", Some(1), false), &others, &lost(names), true);
        let why = next(&[]).unwrap_err().to_string();
        assert!(why.contains("node a does not answer (it is down)") && why.contains("`--lost a --lost c`"), "{why}");
        let why = next(&["a"]).unwrap_err().to_string();
        assert!(!why.contains("node a") && why.contains("`--lost c`"), "{why}");
        assert_eq!(next(&["c", "a"]).unwrap(), 2);
    }
}
