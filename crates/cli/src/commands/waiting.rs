//! Progress while a sandbox is created or a volume copied, if that takes long.

use std::pin::pin;
use std::time::Duration;

use sandling_engine::Step;
use sandling_wire::{CreateSandbox, DEFAULT_TEMPLATE, ImagePulls};
use tokio::time::timeout;

use super::image::QUIET;
use crate::client::Client;
use crate::show;

const POLL: Duration = Duration::from_millis(500);

/// Waits for a server to create a sandbox. If it takes long, shows what the pull of its image does, or that its size may
/// be new.
pub async fn with_progress<T>(client: &Client, wanted: &CreateSandbox, creating: impl Future<Output = T>) -> T {
    let Some(image) = &wanted.image else {
        return of_size(wanted, creating).await;
    };
    let mut creating = pin!(creating);
    if let Ok(done) = timeout(QUIET, &mut creating).await {
        return done;
    }
    let progress = show::Progress::new();
    let mut last = String::new();
    loop {
        if let Ok(ImagePulls { pulls }) = client.get("/v1/images/pulls").await
            && let Some(pull) = pulls.into_iter().find(|pull| pull.image == *image)
            && (pull.total.is_some() || pull.step != last)
        {
            last.clone_from(&pull.step);
            progress.step(&Step { text: pull.step, progress: pull.done.zip(pull.total) });
        }
        if let Ok(done) = timeout(POLL, &mut creating).await {
            progress.done();
            return done;
        }
    }
}

/// Waits for a sandbox of a template. The first one of a size has to wait until the template is baked in this size.
pub async fn of_size<T>(wanted: &CreateSandbox, creating: impl Future<Output = T>) -> T {
    let Some(size) = own_size(wanted) else { return creating.await };
    let template = wanted.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
    let what =
        format!("preparing {template} with {size}; the first sandbox of a size takes a minute or two without KVM");
    saying(what, creating).await
}

/// Waits for something, and says what it is if that takes long.
pub async fn saying<T>(what: String, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = timeout(QUIET, &mut work).await {
        return done;
    }
    let progress = show::Progress::new();
    progress.say(what);
    let done = work.await;
    progress.done();
    done
}

/// The size, unless it is the template's, which was baked when the template was built.
fn own_size(wanted: &CreateSandbox) -> Option<String> {
    let cpus = wanted.cpu.map(|count| format!("{count} {}", if count == 1 { "CPU" } else { "CPUs" }));
    let memory = wanted.memory_mb.map(|mib| format!("{mib} MiB"));
    let size: Vec<_> = cpus.into_iter().chain(memory).collect();
    (!size.is_empty() && wanted.from_snapshot.is_none()).then(|| size.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_size_that_was_asked_for_is_named() {
        let size = |cpu, memory_mb| own_size(&CreateSandbox { cpu, memory_mb, ..CreateSandbox::default() });
        assert_eq!(size(None, None), None);
        assert_eq!(size(None, Some(4096)).as_deref(), Some("4096 MiB"));
        assert_eq!(size(Some(2), Some(4096)).as_deref(), Some("2 CPUs and 4096 MiB"));
    }
}
