//! What `sandling doctor` says about the fleet of this machine.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sandling_api::FleetSettings;
use sandling_engine::with_causes;
use sandling_fleet::{EtcdLedger, Ledger, LedgerError, NodeRecord, Protocol, own_etcd};
use sandling_wire::Home;

use super::checks::{Check, Verdict};
use crate::commands::fleet;

const ETCD: &str = "fleet etcd";
const STORE: &str = "fleet store";
/// A certificate that expires earlier deserves a word.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);
/// Creates with an idempotency key wait for a few of these.
const SLOW: Duration = Duration::from_millis(100);
/// Join tokens and certificates have times in them.
const CLOCKS_DIFFER_MS: u64 = 2000;

/// Nothing if this machine is in no fleet.
pub(super) async fn checks() -> Vec<Check> {
    let Some(home) = Home::from_environment() else { return Vec::new() };
    let settings = match FleetSettings::load(&home) {
        Ok(Some(settings)) => settings,
        Ok(None) => return Vec::new(),
        Err(error) => return vec![Check::new("fleet", Verdict::Missing, with_causes(&error))],
    };
    let mut checks = vec![certificate(&settings, &home)];
    checks.extend(store(&settings, &home).await);
    match reach(&settings, &home).await {
        Ok((ledger, etcd)) => {
            checks.extend(etcd);
            checks.extend(nodes(&settings, &home, &ledger).await);
        }
        Err(why) => {
            let fix = match settings.runs_engine {
                true => "start the server, which runs etcd: sandling serve".to_owned(),
                false => format!(
                    "check that etcd runs and that this machine reaches {}; if its machine is lost for good: sandling \
                     fleet rebuild",
                    settings.engine.join(", ")
                ),
            };
            checks.push(Check::new(ETCD, Verdict::Missing, why).fix(fix));
        }
    }
    checks
}

fn certificate(settings: &FleetSettings, home: &Home) -> Check {
    let check = |verdict, detail: &str| Check::new("fleet certificate", verdict, detail);
    let holds = |after| settings.certificate_holds(home, after);
    let renew = "restart the server: it makes a new certificate at every start";
    match (holds(Duration::ZERO), holds(SOON)) {
        (Ok(true), Ok(true)) => check(Verdict::Ok, "valid for at least 30 days"),
        (Ok(true), _) => check(Verdict::Weaker, "expires within 30 days").fix(renew),
        (Ok(false), _) => check(Verdict::Missing, "not valid now, so other nodes refuse this one").fix(renew),
        (Err(error), _) => check(Verdict::Missing, &with_causes(&error)).fix(renew),
    }
}

/// Asks from this process. The server may have other credentials, of which `fleet status` tells.
async fn store(settings: &FleetSettings, home: &Home) -> Option<Check> {
    let url = &settings.store.as_ref()?.url;
    let sent = Instant::now();
    let check = match settings.check_store(home).await? {
        Ok(()) => Check::new(STORE, Verdict::Ok, format!("{url} answered in {:.1?}", sent.elapsed())),
        Err(error) => Check::new(STORE, Verdict::Weaker, with_causes(&error)).fix(
            "new snapshots stay local until it works; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY here and for the \
             server, or mount the directory",
        ),
    };
    Some(check)
}

async fn reach(settings: &FleetSettings, home: &Home) -> Result<(EtcdLedger, Vec<Check>), String> {
    let ledger = settings.ledger(home).map_err(|error| with_causes(&error))?;
    let unreachable = |error: LedgerError| error.to_string();
    let status = ledger.status().await.map_err(unreachable)?;
    let sent = Instant::now();
    ledger.get("doctor").await.map_err(unreachable)?;
    let round_trip = sent.elapsed();
    let version = &status.version;
    let whose = match fleet::members(settings, home).await {
        Ok(members) => members.into_iter().find(|(_, record)| fleet::runs_etcd(settings, record)),
        Err(_) => None,
    };
    let whose = whose.map_or_else(|| settings.engine.join(", "), |(name, _)| format!("node {name}"));
    let detail = format!(
        "on {whose}, generation {}, version {version}, a read took {round_trip:.1?}",
        settings.engine_generation
    );
    let mut etcd = Check::new(ETCD, Verdict::Ok, detail);
    if let Some(problem) = known_problem(version) {
        etcd = Check::new(ETCD, Verdict::Weaker, format!("{}; this version {problem}", etcd.detail))
            .fix("install etcd 3.5.13, 3.4.31 or newer");
    } else if round_trip > SLOW {
        etcd = Check::new(ETCD, Verdict::Weaker, etcd.detail).fix("give etcd a faster disk or a nearer machine");
    }
    let used_mib = status.size_bytes >> 20;
    // A node of the fleet runs this etcd, with this quota. That of another etcd is not known.
    let is_own = settings.engine.iter().all(|address| address.starts_with("https://"));
    let space = match is_own {
        true => format!("{used_mib} MiB of {} MiB", own_etcd::QUOTA >> 20),
        false => format!("{used_mib} MiB"),
    };
    let is_full = is_own && status.size_bytes > own_etcd::QUOTA / 10 * 6;
    let space = match status.alarms.as_slice() {
        [] if is_full => Check::new("fleet space", Verdict::Weaker, space).fix("free space with `etcdctl defrag`"),
        [] => Check::new("fleet space", Verdict::Ok, space),
        alarms => Check::new("fleet space", Verdict::Missing, format!("{space}; etcd says: {}", alarms.join(", ")))
            .fix("free space with `etcdctl defrag`, then `etcdctl alarm disarm`"),
    };
    Ok((ledger, vec![etcd, space]))
}

/// What is known to be wrong with a version of etcd.
fn known_problem(version: &str) -> Option<&'static str> {
    let mut numbers = version.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    match (numbers.next()?, numbers.next()?, numbers.next()?) {
        (3, 5, 0..=2) => Some("can corrupt its data"),
        (3, 5, ..=12) | (3, 4, ..=30) => Some("can end the lease of a live node after etcd was stalled"),
        (3, ..=3, _) | (..=2, ..) => Some("is older than 3.4, which Sandling needs"),
        _ => None,
    }
}

async fn nodes(settings: &FleetSettings, home: &Home, ledger: &EtcdLedger) -> Vec<Check> {
    let own = format!("fleet node {}", settings.name);
    match sandling_fleet::is_removed(ledger, &settings.fingerprint).await {
        Ok(false) => {}
        Ok(true) => {
            let fix = format!("stop the server, remove {} and join again", home.fleet().display());
            return vec![Check::new(own, Verdict::Missing, "this machine was removed from the fleet").fix(fix)];
        }
        Err(error) => return vec![Check::new(own, Verdict::Weaker, error.to_string())],
    }
    let members = match fleet::members(settings, home).await {
        Ok(members) => members,
        Err(error) => return vec![Check::new(own, Verdict::Weaker, format!("{error:#}"))],
    };
    let mut checks = Vec::new();
    if !members.iter().any(|(name, _)| *name == settings.name) {
        let detail = "not a member now, so it gets no new sandboxes";
        checks.push(Check::new(own, Verdict::Weaker, detail).fix("start the server, or read its log: sandling serve"));
    }
    let others = members.into_iter().filter(|(name, _)| *name != settings.name);
    checks.extend(join_all(others.map(|(name, record)| node(settings, home, name, record))).await);
    checks
}

async fn node(settings: &FleetSettings, home: &Home, name: String, record: NodeRecord) -> Check {
    let (title, address) = (format!("fleet node {name}"), &record.address);
    let health = match settings.ask_peer(home, &name, &record).await {
        Ok(health) => health,
        Err(why) => {
            let fix = format!("check that its server runs and that this machine reaches {address}");
            return Check::new(title, Verdict::Weaker, format!("does not answer: {why}")).fix(fix);
        }
    };
    let version = &health.version;
    let ahead = health.clock_ahead_ms;
    let detail = format!(
        "{address} answers in {:.1?}, version {version}, its clock is {ahead} ms ahead of this one",
        health.round_trip
    );
    if let Err(incompatible) = health.protocol.check(&name) {
        return Check::new(title, Verdict::Missing, format!("{detail}; {incompatible}"))
            .fix("install the same version of Sandling on all nodes");
    }
    if version != env!("CARGO_PKG_VERSION") || health.protocol != Protocol::OWN {
        return Check::new(title, Verdict::Weaker, format!("{detail}, which works together with this one"))
            .fix("finish the upgrade: install the same version of Sandling on all nodes");
    }
    if ahead.unsigned_abs() > CLOCKS_DIFFER_MS {
        return Check::new(title, Verdict::Weaker, detail).fix("set both clocks by NTP: sudo timedatectl set-ntp true");
    }
    Check::new(title, Verdict::Ok, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_versions_of_etcd_are_named() {
        for corrupts in ["3.5.0", "3.5.2"] {
            assert!(known_problem(corrupts).unwrap().contains("corrupt"), "{corrupts}");
        }
        for ends_leases in ["3.4.23", "3.4.30", "3.5.3", "3.5.12"] {
            assert!(known_problem(ends_leases).unwrap().contains("lease"), "{ends_leases}");
        }
        for old in ["3.3.27", "2.3.8"] {
            assert!(known_problem(old).unwrap().contains("older"), "{old}");
        }
        for good in ["3.4.31", "3.5.13", "3.5.21", "3.6.0", "3.7.1", "unreadable"] {
            assert_eq!(known_problem(good), None, "{good}");
        }
    }
}
