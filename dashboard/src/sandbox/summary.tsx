import { href } from "../router";
import { Card, Copy, Time } from "../ui/basics";
import { duration, mebibytes, shortId } from "../ui/format";
import { HistoryCharts } from "../ui/history";
import type { TabProps } from "./page";

export function Summary({ sandbox }: TabProps) {
  const all = { ...sandbox.metadata, ...sandbox.labels };
  const pairs = Object.entries(all).filter(([key]) => !key.startsWith("fork_"));
  return (
    <div class="stack">
      <div class="grid">
        <Card title="About">
          <dl class="facts">
            <dt>Id</dt>
            <dd><code>{sandbox.id}</code> <Copy text={sandbox.id} /></dd>
            <dt>Template</dt>
            <dd>{sandbox.template}</dd>
            <dt>Size</dt>
            <dd>{sandbox.cpu} CPU, {mebibytes(sandbox.memory_mb)} memory, {mebibytes(sandbox.disk_mb)} disk</dd>
            <dt>Created</dt>
            <dd><Time at={sandbox.created_at} /> in {duration(sandbox.boot_ms)} ({sandbox.boot_mode})</dd>
            {sandbox.from_snapshot && (<><dt>From snapshot</dt><dd><code>{shortId(sandbox.from_snapshot)}</code></dd></>)}
            <dt>Labels</dt>
            <dd>{pairs.length ? pairs.map(([key, value]) => <><span class="label">{key}={value}</span>{" "}</>) : <span class="muted">none</span>}</dd>
          </dl>
        </Card>
        <Card title="Lifetime and access">
          <dl class="facts">
            <dt>Ends</dt>
            <dd>{sandbox.expires_at ? <Time at={sandbox.expires_at} /> : "when you end it"}</dd>
            <dt>Idle timeout</dt>
            <dd>{sandbox.idle_seconds ? duration(sandbox.idle_seconds * 1000) : "none"}</dd>
            <dt>Persistent</dt>
            <dd>{sandbox.persistent ? "yes: it hibernates instead of ending" : "no"}</dd>
            <dt>Network</dt>
            <dd>
              {sandbox.network.mode}
              {sandbox.network.mode === "allow" && `: ${sandbox.network.allow.join(", ") || "nothing"}`}{" "}
              <a class="inline" href={href(`/sandboxes/${sandbox.id}/network`)}>Decisions</a>
            </dd>
            <dt>Secrets</dt>
            <dd>{sandbox.network.secrets.join(", ") || <span class="muted">none</span>}</dd>
            <dt>Volumes</dt>
            <dd>{sandbox.volumes.length ? sandbox.volumes.map((volume) => `${volume.name} at ${volume.mount}`).join(", ") : <span class="muted">none</span>}</dd>
            <dt>Checkpoints</dt>
            <dd>{sandbox.checkpoints_kept ? `before every command, ${sandbox.checkpoints_kept} kept` : "off"}</dd>
          </dl>
        </Card>
      </div>
      <HistoryCharts title="Resources" path={`/v1/sandboxes/${sandbox.id}/metrics`} live={sandbox.status === "running"} />
    </div>
  );
}
