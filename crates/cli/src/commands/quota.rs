//! `sandling quota`.

use anyhow::bail;
use sandling_wire::LimitsChange;
use serde_json::Value;

use crate::client::{Client, Quota as Answer, field, read, segment};
use crate::options::Quota;
use crate::show;

pub async fn quota(options: &Quota) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let path = match (&options.workspace, options.set.is_empty()) {
        (Some(workspace), _) => format!("/v1/workspaces/{}/quota", segment(workspace)),
        (None, true) => "/v1/quota".to_owned(),
        (None, false) => {
            format!("/v1/workspaces/{}/quota", segment(&field(&client.get("/v1/me").await?, "workspace")?))
        }
    };
    let answer: Value = match options.set.is_empty() {
        true => client.get(&path).await?,
        false => client.put(&path, &changed(&options.set)?).await?,
    };
    if options.json { show::json(&answer) } else { print(&read(answer)?) }
}

/// The limits to change; the others stay.
fn changed(set: &[(String, Option<u32>)]) -> anyhow::Result<LimitsChange> {
    let mut limits = LimitsChange::default();
    for (name, value) in set {
        let limit = match name.as_str() {
            "sandboxes" => &mut limits.sandboxes,
            "cpu" => &mut limits.cpu,
            "memory_mb" => &mut limits.memory_mb,
            "disk_mb" => &mut limits.disk_mb,
            "creates_per_minute" => &mut limits.creates_per_minute,
            "requests_per_second" => &mut limits.requests_per_second,
            "open_requests" => &mut limits.open_requests,
            _ => bail!(
                "unknown limit {name:?}; use sandboxes, cpu, memory_mb, disk_mb, creates_per_minute, \
                 requests_per_second or open_requests"
            ),
        };
        *limit = Some(*value);
    }
    Ok(limits)
}

fn print(answer: &Answer) -> anyhow::Result<()> {
    let mut table = show::table(&["limit", "used", "of"]);
    for (name, limit) in &answer.limits {
        // The server does not report usage of the rate limit.
        let used = answer.used.get(name).map_or("-".to_owned(), u64::to_string);
        table.add_row([name.clone(), used, limit.map_or("no limit".to_owned(), |limit| limit.to_string())]);
    }
    show::line(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_limits_change() {
        let set = [("sandboxes".to_owned(), None), ("memory_mb".to_owned(), Some(7))];
        let sent = serde_json::to_value(changed(&set).unwrap()).unwrap();
        assert_eq!(sent, serde_json::json!({ "sandboxes": null, "memory_mb": 7 }));
        assert!(changed(&[("ram".to_owned(), None)]).unwrap_err().to_string().contains("memory_mb"));
    }
}
