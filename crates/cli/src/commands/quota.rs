//! `sandling quota`.

use anyhow::bail;
use sandling_wire::Limits;
use serde_json::Value;

use crate::client::{Client, Quota as Answer, field, read, segment};
use crate::options::Quota;
use crate::show;

pub async fn quota(options: &Quota) -> anyhow::Result<()> {
    let client = Client::require()?;
    let path = match (&options.workspace, options.set.is_empty()) {
        (Some(workspace), _) => format!("/v1/workspaces/{}/quota", segment(workspace)),
        (None, true) => "/v1/quota".to_owned(),
        (None, false) => {
            format!("/v1/workspaces/{}/quota", segment(&field(&client.get("/v1/me").await?, "workspace")?))
        }
    };
    let mut answer: Value = client.get(&path).await?;
    if !options.set.is_empty() {
        let limits = changed(read(answer["limits"].take())?, &options.set)?;
        answer = client.put(&path, &limits).await?;
    }
    if options.json { show::json(&answer) } else { print(&read(answer)?) }
}

/// Changes some limits. The server's API replaces all limits at once.
fn changed(mut limits: Limits, set: &[(String, Option<u32>)]) -> anyhow::Result<Limits> {
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
        *limit = *value;
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
        let limits = Limits {
            sandboxes: Some(1),
            cpu: Some(2),
            memory_mb: None,
            disk_mb: Some(4),
            creates_per_minute: Some(5),
            requests_per_second: None,
            open_requests: Some(6),
        };
        let set = [("sandboxes".to_owned(), None), ("memory_mb".to_owned(), Some(7))];
        let limits = changed(limits, &set).unwrap();
        assert_eq!((limits.sandboxes, limits.cpu, limits.memory_mb), (None, Some(2), Some(7)));
        assert!(changed(limits, &[("ram".to_owned(), None)]).unwrap_err().to_string().contains("memory_mb"));
    }
}
