//! `sandling audit verify`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use sandling_service::{ChainReport, verify_copy};
use serde::Serialize;
use serde_json::Value;

use crate::client::{AuditChain, AuditEntry, Client, query, read};
use crate::show;

/// Whose chains are checked.
#[derive(Clone, Copy)]
pub struct Logs<'a> {
    pub workspace: Option<&'a str>,
    /// In a fleet.
    pub node: Option<&'a str>,
}

/// What was found in one chain.
#[derive(Debug, Serialize)]
struct Finding {
    workspace: String,
    kind: String,
    /// `server` or `file`, or in a fleet the name of the node.
    place: String,
    entries: u64,
    /// Entries of versions that had no hashes.
    without_hash: u64,
    last: i64,
    /// What is wrong; null if nothing is.
    problem: Option<String>,
}

pub async fn verify(logs: Logs<'_>, file: Option<&Path>, offline: bool, json: bool) -> anyhow::Result<()> {
    let copied = file.map(read_copy).transpose()?.unwrap_or_default();
    let is_wanted = |chain: &ChainReport| logs.workspace.is_none_or(|name| chain.workspace.as_str() == name);
    let copied: Vec<_> = copied.into_iter().filter(is_wanted).collect();
    let mut findings: Vec<_> = copied.iter().map(in_file).collect();
    if !offline {
        let client = Client::require().await?;
        let parameters =
            query(&[("workspace", logs.workspace.map(str::to_owned)), ("node", logs.node.map(str::to_owned))]);
        let mut answer: Value = client.get(&format!("/v1/audit/verify{parameters}")).await?;
        for chain in read::<Vec<AuditChain>>(answer["chains"].take())? {
            if file.is_some() && chain.node.is_some() {
                bail!("the server is a node of a fleet; say with --node which node has written the file");
            }
            let copy = copied.iter().find(|copy| is_same_chain(copy, &chain));
            let differs = match copy {
                Some(copy) => compare(&client, &chain, copy, logs.node).await?,
                None => None,
            };
            findings.push(on_server(chain, differs));
        }
    }
    print(&findings, json)?;
    match findings.iter().filter(|finding| finding.problem.is_some()).count() {
        0 => Ok(()),
        1 => bail!("a chain of the audit log is broken"),
        broken => bail!("{broken} chains of the audit log are broken"),
    }
}

fn read_copy(path: &Path) -> anyhow::Result<Vec<ChainReport>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    verify_copy(BufReader::new(file)).with_context(|| format!("cannot verify {}", path.display()))
}

fn is_same_chain(copy: &ChainReport, chain: &AuditChain) -> bool {
    copy.workspace.as_str() == chain.workspace && copy.kind.as_str() == chain.kind
}

/// Compares the server's chain with the last entry of the copy. If that is the same, all entries before it are.
async fn compare(
    client: &Client,
    chain: &AuditChain,
    copy: &ChainReport,
    node: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let (number, hash) = (copy.head.0, copy.head.1.to_string());
    // The server has pruned the entry, so there is nothing to compare.
    if number < chain.pruned || copy.entries == 0 {
        return Ok(None);
    }
    let found = if number == chain.pruned {
        Some(chain.pruned_hash.clone())
    } else {
        let parameters = query(&[
            ("workspace", Some(chain.workspace.clone())),
            ("after", Some((number - 1).to_string())),
            ("limit", Some("1".to_owned())),
            ("node", node.map(str::to_owned)),
        ]);
        let mut answer: Value = client.get(&format!("/v1/audit{parameters}")).await?;
        let entries: Vec<AuditEntry> = read(answer["items"].take())?;
        entries.into_iter().find(|entry| entry.number == number).and_then(|entry| entry.hash)
    };
    Ok(match found {
        Some(found) if found == hash => None,
        Some(_) => Some(format!("entry {number} differs from the file")),
        None => Some(format!("entry {number} of the file is missing")),
    })
}

fn in_file(chain: &ChainReport) -> Finding {
    Finding {
        workspace: chain.workspace.to_string(),
        kind: chain.kind.as_str().to_owned(),
        place: "file".to_owned(),
        entries: chain.entries,
        without_hash: chain.without_hash,
        last: chain.head.0,
        problem: chain.broken.as_ref().map(|found| problem(found.number, &found.cause)),
    }
}

fn on_server(chain: AuditChain, differs: Option<String>) -> Finding {
    Finding {
        problem: chain.broken.map(|found| problem(found.number, &found.cause)).or(differs),
        workspace: chain.workspace,
        kind: chain.kind,
        place: chain.node.unwrap_or_else(|| "server".to_owned()),
        entries: chain.entries,
        without_hash: chain.without_hash,
        last: chain.last,
    }
}

fn problem(number: i64, cause: &impl std::fmt::Display) -> String {
    format!("entry {number}: {cause}")
}

fn print(findings: &[Finding], json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(&findings);
    }
    let mut table = show::table(&["workspace", "chain", "in", "entries", "without hash", "last", "result"]);
    for finding in findings {
        table.add_row([
            finding.workspace.clone(),
            finding.kind.clone(),
            finding.place.clone(),
            finding.entries.to_string(),
            finding.without_hash.to_string(),
            finding.last.to_string(),
            finding.problem.clone().unwrap_or_else(|| "ok".to_owned()),
        ]);
    }
    show::line(table)
}
