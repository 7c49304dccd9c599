import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { allows, del, get, put, type Schemas } from "../api/client";
import { follow } from "../api/live";
import { list } from "../pages/create";
import { touch } from "../state/sandboxes";
import { attempt } from "../state/toasts";
import { Badge, Button, Card, Empty, Field, Show, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes, clockTime } from "../ui/format";
import type { TabProps } from "./page";

type View = Schemas["NetworkView"];
type Decision = Schemas["NetworkEventView"];

const MOST = 500;
const MODES: Record<string, string> = {
  deny: "Nothing is reachable",
  allow: "Only the listed names are reachable",
  open: "Everything public is reachable",
  learn: "Everything public is reachable, and the server remembers what was used",
};

/** A change of the policy must repeat everything that stays. */
function request(view: View, change: { mode?: string; allow?: string[] }) {
  return {
    mode: view.mode,
    allow: view.allow,
    ...(view.deny?.length ? { deny: view.deny } : {}),
    tls: view.tls,
    secrets: view.secrets.map(({ name }) => name),
    ...(view.group ? { group: view.group.name } : {}),
    ...change,
  };
}

export function Network({ sandbox }: TabProps) {
  const path = `/v1/sandboxes/${sandbox.id}/network`;
  const policy = useLoad(() => get<View>(path), [sandbox.id, sandbox.network.allow.join(), sandbox.network.mode]);
  const decisions = useSignal<Decision[]>([]);
  const only = useSignal("");
  const editing = useSignal(false);
  useEffect(() => {
    decisions.value = [];
    return follow<Decision>(`${path}/events?follow=true&tail=200`, (event) => (decisions.value = [event, ...decisions.value].slice(0, MOST)));
  }, [sandbox.id]);
  const view = policy.value;
  const allow = (name: string) =>
    attempt(
      `${name} was not allowed`,
      async () => {
        const fresh = await get<View>(path);
        const names = fresh.mode === "allow" ? fresh.allow : [];
        await put(path, request(fresh, { mode: "allow", allow: [...new Set([...names, name])] }));
        touch(sandbox.id);
        await policy.reload();
      },
      `${name} is allowed from now on`,
    );
  const allowed = new Set(view?.mode === "allow" ? view.allow : []);
  const shown = decisions.value.filter(({ verdict }) => !only.value || verdict === only.value);
  return (
    <div class="stack">
      <Card title="Effective policy" actions={allows("run") && view && <Button onClick={() => (editing.value = true)}>Change</Button>}>
        <Show from={policy}>
          {(now) => (
            <div class="grid">
              <dl class="facts">
                <dt>Mode</dt>
                <dd><Badge status={now.mode} /> {MODES[now.mode]}</dd>
                <dt>Allowed</dt>
                <dd>{now.allow.length ? now.allow.map((name) => <><span class="label">{name}</span>{" "}</>) : <span class="muted">nothing listed</span>}</dd>
                {Boolean(now.deny?.length) && (<><dt>Denied</dt><dd>{now.deny!.map((name) => <><span class="label">{name}</span>{" "}</>)}</dd></>)}
                <dt>Comes from</dt>
                <dd>{now.from === "nothing" ? "the default" : `the ${now.from}`}{now.bound ? ", within the workspace's limit" : ""}</dd>
                <dt>TLS</dt>
                <dd>{now.tls === "inspected" ? "inspected by the gateway" : "sealed: the gateway sees names only"}</dd>
                <dt>Secrets</dt>
                <dd>{now.secrets.length ? now.secrets.map(({ name }) => name).join(", ") : <span class="muted">none</span>}</dd>
              </dl>
              <dl class="facts">
                <dt>Sent</dt>
                <dd>{bytes(now.counts.sent_bytes)}</dd>
                <dt>Received</dt>
                <dd>{bytes(now.counts.received_bytes)}</dd>
                <dt>Connections</dt>
                <dd>{now.counts.connections_open} open, {now.counts.connections_allowed} allowed, {now.counts.connections_refused} refused</dd>
                <dt>DNS queries</dt>
                <dd>{now.counts.dns_queries}, {now.counts.dns_refused} refused</dd>
              </dl>
            </div>
          )}
        </Show>
      </Card>
      <Card
        title="Decisions of the gateway, live"
        actions={
          <select aria-label="Show" value={only.value} onChange={(event) => (only.value = event.currentTarget.value)}>
            <option value="">All decisions</option>
            <option value="refused">Refused</option>
            <option value="allowed">Allowed</option>
            <option value="failed">Failed</option>
          </select>
        }
      >
        {shown.length === 0 ? (
          <Empty title="No decisions yet">As soon as the sandbox tries to reach something, it appears here.</Empty>
        ) : (
          <div class="table-box">
            <table>
              <thead><tr><th>Time</th><th>Decision</th><th>What</th><th>Where</th><th>Reason</th><th><span class="sr">Actions</span></th></tr></thead>
              <tbody>
                {shown.map((one) => (
                  <tr key={one.number}>
                    <td class="nowrap muted">{clockTime(one.time)}</td>
                    <td><Badge status={one.verdict} /></td>
                    <td>{one.kind}{one.udp ? " (UDP)" : ""}</td>
                    <td class="mono">{one.name ?? one.address ?? "–"}{one.port ? `:${one.port}` : ""}</td>
                    <td class="muted">{one.reason ?? (one.sent_bytes || one.received_bytes ? `${bytes(one.sent_bytes)} sent, ${bytes(one.received_bytes)} received` : "")}</td>
                    <td class="actions">
                      {one.verdict === "refused" && one.name && allows("run") && (allowed.has(one.name) ? <span class="muted">allowed now</span> : <Button class="button-small" onClick={() => allow(one.name!)}>Allow this name</Button>)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
      {editing.value && view && <PolicyDialog path={path} view={view} close={() => (editing.value = false)} changed={() => { touch(sandbox.id); void policy.reload(); }} />}
    </div>
  );
}

interface PolicyProps {
  path: string;
  view: View;
  close: () => void;
  changed: () => void;
}

function PolicyDialog({ path, view, close, changed }: PolicyProps) {
  const mode = useSignal<string>(view.mode);
  const names = useSignal(view.allow.join(" "));
  const submit = async () => {
    const done = await attempt("The policy was not changed", () => put(path, request(view, { mode: mode.value, allow: mode.value === "allow" ? list(names.value) : [] })), "The policy is in force");
    if (done) changed();
    return done;
  };
  const reset = async () => {
    if (await attempt("The policy was not removed", () => del(path), "The defaults are in force")) {
      changed();
      close();
    }
  };
  return (
    <Dialog title="Change the network policy" close={close} submit={submit}>
      <Field label="Mode">
        <select value={mode.value} onChange={(event) => (mode.value = event.currentTarget.value)}>
          {Object.entries(MODES).map(([key, text]) => <option value={key}>{key}: {text}</option>)}
        </select>
      </Field>
      {mode.value === "allow" && (
        <Field label="Allowed names" hint="Host names, *.example.org, addresses, or groups such as pypi and npm">
          <textarea rows={4} value={names.value} onInput={(event) => (names.value = event.currentTarget.value)} />
        </Field>
      )}
      <div><Button onClick={reset}>Return to the defaults</Button></div>
    </Dialog>
  );
}
