import { useSignal } from "@preact/signals";
import { get, query, type Schemas } from "../api/client";
import { Badge, Button, Card, Empty, Page, Show, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { fullTime } from "../ui/format";

type Entry = Schemas["AuditView"];
type Verification = Schemas["AuditVerification"];

function download(entries: Entry[]): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(entries.map((entry) => `${JSON.stringify(entry)}\n`), { type: "application/x-ndjson" }));
  link.download = "audit.ndjson";
  link.click();
}

export function Audit() {
  const since = useSignal("");
  const search = useSignal("");
  const result = useSignal("");
  const at = since.value ? new Date(since.value).toISOString() : undefined;
  const log = useLoad(() => get<Schemas["AuditList"]>(`/v1/audit${query({ since: at, limit: 1000 })}`), [since.value]);
  const checked = useSignal<Verification | Error | null>(null);
  const recording = useSignal<Schemas["RecordingView"] | null>(null);
  const fits = (entry: Entry) => {
    const text = [entry.action, entry.object, entry.actor.name, entry.actor.prefix, entry.code, entry.remote, entry.request_id].join(" ").toLowerCase();
    return (!result.value || entry.result === result.value) && search.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  };
  const shown = (log.value?.items ?? []).filter(fits).reverse();
  const verify = async () => {
    try {
      checked.value = await get<Verification>("/v1/audit/verify");
    } catch (error) {
      checked.value = error as Error;
    }
  };
  const broken = checked.value && !(checked.value instanceof Error) ? checked.value.chains.filter((chain) => chain.broken) : [];
  return (
    <Page
      title="Audit log"
      actions={
        <>
          <Button onClick={verify}>Verify the chain</Button>
          <Button disabled={shown.length === 0} onClick={() => download(shown)}>Export as JSON lines</Button>
        </>
      }
    >
      <div class="filters">
        <input type="search" aria-label="Search the audit log" placeholder="Search actions, objects, tokens" value={search.value} onInput={(event) => (search.value = event.currentTarget.value)} />
        <select aria-label="Result" value={result.value} onChange={(event) => (result.value = event.currentTarget.value)}>
          <option value="">All results</option>
          <option value="ok">ok</option>
          <option value="refused">refused</option>
          <option value="error">error</option>
        </select>
        <label class="row">Since <input type="datetime-local" value={since.value} onChange={(event) => (since.value = event.currentTarget.value)} /></label>
      </div>
      {checked.value && (
        <p class={checked.value instanceof Error || broken.length ? "problem" : "note"} role="status">
          {checked.value instanceof Error ? checked.value.message : broken.length ? `The log was changed: ${broken.map((chain) => `entry ${chain.broken!.number} (${chain.broken!.cause})`).join(", ")}` : `The log is complete: ${checked.value.chains.reduce((sum, chain) => sum + chain.entries, 0)} entries, every hash is right.`}
        </p>
      )}
      <Card>
        <Show from={log}>
          {() =>
            shown.length === 0 ? (
              <Empty title="No entry fits">Every change and every command leaves an entry here.</Empty>
            ) : (
              <div class="table-box">
                <table>
                  <thead><tr><th>Time</th><th>Who</th><th>Action</th><th>Object</th><th>Result</th><th>From</th><th><span class="sr">Recording</span></th></tr></thead>
                  <tbody>
                    {shown.slice(0, 500).map((entry) => (
                      <tr key={`${entry.node ?? ""} ${entry.number}`}>
                        <td class="nowrap muted">{fullTime(entry.time)}</td>
                        <td class="name">{entry.actor.name || entry.actor.prefix}</td>
                        <td class="mono">{entry.action}{entry.count > 1 ? ` × ${entry.count}` : ""}</td>
                        <td class="mono">{entry.object ?? ""}</td>
                        <td><Badge status={entry.result} /> <small>{entry.code ?? ""}</small></td>
                        <td class="mono nowrap">{entry.remote ?? ""}</td>
                        <td class="actions">{entry.recorded && <Button class="button-small" onClick={async () => (recording.value = await get(`/v1/audit/${entry.number}/recording${query({ node: entry.node ?? undefined })}`))}>Recording</Button>}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )
          }
        </Show>
      </Card>
      <p class="muted" style={{ marginTop: "8px" }}>{Math.min(shown.length, 500)} of {log.value?.items.length ?? 0} entries shown</p>
      {recording.value && (
        <Dialog title="Recorded run" wide close={() => (recording.value = null)}>
          <h3>Code</h3>
          <pre class="code">{recording.value.code}</pre>
          <h3>Output</h3>
          <pre class="code">{recording.value.output}</pre>
        </Dialog>
      )}
    </Page>
  );
}
