import { useSignal } from "@preact/signals";
import { allows, del, get, post, query, type Sandbox, type Schemas } from "../api/client";
import { nameOf } from "../pages/sandboxes";
import { href, navigate } from "../router";
import { recentEvents, sandboxes, touch } from "../state/sandboxes";
import { attempt } from "../state/toasts";
import { Badge, Button, Card, Empty, Field, Problem, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes, shortId } from "../ui/format";
import { DiffFiles } from "./diff";
import type { TabProps } from "./page";

type Relative = Schemas["RelativeView"];
type Metrics = Schemas["SandboxMetrics"];

interface ForkDialogProps {
  sandbox: Sandbox;
  /** The number of the checkpoint that the forks start at; without it, they start now. */
  at?: number;
  close: () => void;
}

export function ForkDialog({ sandbox, at, close }: ForkDialogProps) {
  const count = useSignal("1");
  const purpose = useSignal(at === undefined ? "" : `From checkpoint ${at}`);
  const submit = () =>
    attempt(
      "The sandbox was not forked",
      async () => {
        const number = Math.max(1, Number(count.value));
        const body = { count: number, at: at === undefined ? null : String(at), metadata: purpose.value ? { purpose: purpose.value } : {} };
        const made = await post<{ children: Sandbox[]; sandbox?: Sandbox | null }>(`/v1/sandboxes/${sandbox.id}/${number > 1 ? "fork-tree" : "fork"}`, body);
        for (const child of made.children ?? []) touch(child.id);
        touch(sandbox.id);
        navigate(`/sandboxes/${sandbox.id}/forks`);
      },
      "Forked",
    );
  return (
    <Dialog title={at === undefined ? `Fork ${nameOf(sandbox)}` : `Fork from checkpoint ${at}`} action="Fork" close={close} submit={submit}>
      {at === undefined ? <p>A fork continues from this moment with the same memory, processes and files.</p> : <p>A new sandbox starts with the memory, processes and files of that moment. This sandbox continues undisturbed.</p>}
      <Field label="Copies"><input type="number" min="1" max="50" required value={count.value} onInput={(event) => (count.value = event.currentTarget.value)} /></Field>
      <Field label="Purpose" hint="Optional: what this fork tries. It is stored in the metadata."><input value={purpose.value} onInput={(event) => (purpose.value = event.currentTarget.value)} /></Field>
    </Dialog>
  );
}

export function Forks({ sandbox }: TabProps) {
  const newest = recentEvents.value[0]?.number;
  const family = useLoad(() => get<Relative[]>(`/v1/sandboxes/${sandbox.id}/family`), [sandbox.id, newest]);
  const picked = useSignal<string[]>([]);
  const compared = useSignal<[string, string] | null>(null);
  const forking = useSignal<Sandbox | null>(null);
  const winner = useSignal<string | null>(null);
  const pick = (id: string) => {
    picked.value = picked.value.includes(id) ? picked.value.filter((one) => one !== id) : [...picked.value, id].slice(-2);
  };
  const promote = async (id: string, cleanup: boolean) => {
    const before = [...sandboxes.value.keys()];
    const done = await attempt("The fork was not promoted", () => post(`/v1/sandboxes/${id}/promote`, { cleanup_siblings: cleanup }), cleanup ? "Promoted; its siblings have ended" : "Promoted");
    for (const each of before) touch(each);
    return done;
  };
  return (
    <div class="stack">
      <Card
        title="Family"
        actions={
          <>
            <Button disabled={picked.value.length !== 2} onClick={() => (compared.value = picked.value as [string, string])}>Compare the two selected</Button>
            {allows("run") && sandbox.status === "running" && <Button kind="primary" onClick={() => (forking.value = sandbox)}>Fork from here</Button>}
          </>
        }
      >
        <Show from={family}>
          {(relatives) => {
            const ids = new Set(relatives.map(({ id }) => id));
            const roots = relatives.filter(({ parent_id }) => !parent_id || !ids.has(parent_id));
            const branch = (nodes: Relative[]): preact.JSX.Element => (
              <ul class="family">
                {nodes.map((node) => {
                  const children = relatives.filter(({ parent_id }) => parent_id === node.id);
                  return (
                    <li key={node.id}>
                      <Node node={node} current={node.id === sandbox.id} picked={picked.value.includes(node.id)} pick={() => pick(node.id)} fork={(one) => (forking.value = one)} promote={() => (winner.value = node.id)} />
                      {children.length > 0 && branch(children)}
                    </li>
                  );
                })}
              </ul>
            );
            return (
              <>
                {branch(roots)}
                {relatives.length < 2 && <Empty title="No forks yet">A fork copies the running sandbox, with its memory, in well under a second. Try several ways, compare them, and keep the best.</Empty>}
              </>
            );
          }}
        </Show>
      </Card>
      {compared.value && <Compare pair={compared.value} close={() => (compared.value = null)} />}
      {forking.value && <ForkDialog sandbox={forking.value} close={() => (forking.value = null)} />}
      {winner.value && <PromoteDialog close={() => (winner.value = null)} promote={(cleanup) => promote(winner.value!, cleanup)} />}
    </div>
  );
}

interface NodeProps {
  node: Relative;
  current: boolean;
  picked: boolean;
  pick: () => void;
  fork: (sandbox: Sandbox) => void;
  promote: () => void;
}

function Node({ node, current, picked, pick, fork, promote }: NodeProps) {
  const sandbox = sandboxes.value.get(node.id);
  const runs = sandbox?.status === "running";
  const metrics = useLoad(async () => (runs ? get<Metrics>(`/v1/sandboxes/${node.id}/metrics`) : null), [node.id, runs]);
  const purpose = sandbox?.metadata.purpose;
  return (
    <div class={current ? "node current" : "node"}>
      {sandbox && <input type="checkbox" aria-label={`Select ${nameOf(sandbox)} to compare`} checked={picked} onChange={pick} />}
      <span class="node-text">
        <span class="cut">
          {sandbox ? <a href={href(`/sandboxes/${node.id}/forks`)}>{purpose || nameOf(sandbox)}</a> : <span class="mono">{shortId(node.id)}</span>}
        </span>
        <small class="cut"><span class="mono">{shortId(node.id)}</span> · {node.parent_id ? "forked" : "created"} <Time at={node.created_at} />{metrics.value ? ` · ${bytes(metrics.value.disk_bytes)} written` : ""}</small>
      </span>
      <Badge status={sandbox?.status ?? "ended"} />
      {sandbox && allows("run") && (
        <span class="row">
          {runs && <Button class="button-small" onClick={() => fork(sandbox)}>Fork</Button>}
          {node.parent_id && <Button class="button-small" onClick={promote}>Promote</Button>}
          <Button class="button-small" kind="danger" onClick={() => attempt("The sandbox was not ended", () => del(`/v1/sandboxes/${node.id}`), "Ended").then(() => touch(node.id))}>End</Button>
        </span>
      )}
    </div>
  );
}

function PromoteDialog({ close, promote }: { close: () => void; promote: (cleanup: boolean) => Promise<boolean> }) {
  const cleanup = useSignal(true);
  return (
    <Dialog title="Promote this fork?" action="Promote" close={close} submit={() => promote(cleanup.value)}>
      <p>It becomes the result of its fork.</p>
      <label class="row">
        <input type="checkbox" checked={cleanup.value} onChange={(event) => (cleanup.value = event.currentTarget.checked)} />
        End its siblings
      </label>
    </Dialog>
  );
}

function Compare({ pair: [from, to], close }: { pair: [string, string]; close: () => void }) {
  const diff = useLoad(() => get<Schemas["DiffView"]>(`/v1/diff${query({ from, to })}`), [from, to]);
  const name = (id: string) => {
    const sandbox = sandboxes.value.get(id);
    return sandbox ? (sandbox.metadata.purpose ?? nameOf(sandbox)) : shortId(id);
  };
  return (
    <Card title={`From ${name(from)} to ${name(to)}`} actions={<Button onClick={close}>Close</Button>}>
      {diff.error ? <Problem error={diff.error} /> : diff.value ? <DiffFiles diff={diff.value} /> : <div class="loading">Comparing …</div>}
    </Card>
  );
}
