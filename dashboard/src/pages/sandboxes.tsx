import { useSignal } from "@preact/signals";
import { allows, del, post, type Sandbox } from "../api/client";
import { href } from "../router";
import { loadError, loaded, refresh, sandboxes, touch } from "../state/sandboxes";
import { toast } from "../state/toasts";
import { Badge, Button, Empty, Page, Problem, Time } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { shortId } from "../ui/format";
import { VirtualRows } from "../ui/virtual";
import { CreateDialog } from "./create";

type Column = "name" | "status" | "template" | "created_at" | "expires_at";
const ROW = innerWidth <= 800 ? 52 : 42;

/** What people call a sandbox: its name in the metadata or labels, or its id. */
export function nameOf(sandbox: Sandbox): string {
  return sandbox.metadata.name || sandbox.labels.name || sandbox.metadata.purpose || shortId(sandbox.id);
}

function matches(sandbox: Sandbox, words: string[]): boolean {
  const pairs = Object.entries({ ...sandbox.metadata, ...sandbox.labels }).map(([key, value]) => `${key}=${value}`);
  const text = [sandbox.id, sandbox.template, sandbox.status, ...pairs].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

export function Sandboxes() {
  const search = useSignal("");
  const state = useSignal("");
  const template = useSignal("");
  const sort = useSignal<{ by: Column; down: boolean }>({ by: "created_at", down: true });
  const chosen = useSignal<Set<string>>(new Set());
  const dialog = useSignal<"create" | "end" | null>(null);

  const all = [...sandboxes.value.values()];
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((each) => (!state.value || each.status === state.value) && (!template.value || each.template === template.value) && matches(each, words));
  const key = (each: Sandbox) => (sort.value.by === "name" ? nameOf(each) : (each[sort.value.by] ?? "~"));
  shown.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (sort.value.down ? -1 : 1));
  const picked = shown.filter(({ id }) => chosen.value.has(id));

  const pick = (id: string, on: boolean) => {
    const next = new Set(chosen.value);
    if (on) next.add(id);
    else next.delete(id);
    chosen.value = next;
  };
  const each = async (what: string, done: string, work: (id: string) => Promise<unknown>) => {
    const ids = picked.map(({ id }) => id);
    const failures: string[] = [];
    // A few at a time, so that the server's rate limit is not reached.
    const next = async (): Promise<void> => {
      for (let id = ids.pop(); id; id = ids.pop()) {
        const sandbox = id;
        await work(sandbox).catch((error: Error) => failures.push(error.message));
        touch(sandbox);
      }
    };
    const count = ids.length;
    await Promise.all(Array.from({ length: 6 }, next));
    if (failures.length) toast(`${what}: ${failures.length} of ${count} failed, the first with: ${failures[0]}`, "error");
    else toast(`${count} ${done}`);
    chosen.value = new Set();
    return true;
  };
  const values = (field: "status" | "template") => [...new Set(all.map((one) => one[field]))].sort();
  const head = (by: Column, title: string, wide = true) => (
    <div role="columnheader" class={wide ? "wide" : ""} aria-sort={sort.value.by === by ? (sort.value.down ? "descending" : "ascending") : "none"}>
      <button onClick={() => (sort.value = { by, down: sort.value.by === by ? !sort.value.down : false })}>
        {title} {sort.value.by === by ? (sort.value.down ? "↓" : "↑") : ""}
      </button>
    </div>
  );
  const allPicked = shown.length > 0 && picked.length === shown.length;

  return (
    <Page title="Sandboxes" actions={allows("run") && <Button kind="primary" onClick={() => (dialog.value = "create")}>New sandbox</Button>}>
      {loadError.value && <Problem error={loadError.value} retry={refresh} />}
      <div class="filters">
        <input type="search" placeholder="Search ids, names and labels, e.g. team=search" aria-label="Search sandboxes" value={search.value} onInput={(event) => (search.value = event.currentTarget.value)} />
        <select aria-label="State" value={state.value} onChange={(event) => (state.value = event.currentTarget.value)}>
          <option value="">All states</option>
          {values("status").map((one) => <option>{one}</option>)}
        </select>
        <select aria-label="Template" value={template.value} onChange={(event) => (template.value = event.currentTarget.value)}>
          <option value="">All templates</option>
          {values("template").map((one) => <option>{one}</option>)}
        </select>
      </div>
      {!loaded.value ? (
        <div class="loading">Loading …</div>
      ) : all.length === 0 ? (
        <div class="card">
          <Empty title="No sandboxes yet">
            <p>Create one here, or with <code>sandling create</code>. It appears in this list at once.</p>
            {allows("run") && <Button kind="primary" onClick={() => (dialog.value = "create")}>New sandbox</Button>}
          </Empty>
        </div>
      ) : (
        <div class="list" role="table" aria-label="Sandboxes" aria-rowcount={shown.length}>
          {picked.length > 0 && (
            <div class="bulk" role="row">
              <strong role="cell">{picked.length} selected</strong>
              <span role="cell" class="row">
                <Button onClick={() => each("Pause", "paused", (id) => post(`/v1/sandboxes/${id}/pause`))}>Pause</Button>
                <Button onClick={() => each("Resume", "resumed", (id) => post(`/v1/sandboxes/${id}/resume`))}>Resume</Button>
                <Button onClick={() => each("Hibernate", "hibernated", (id) => post(`/v1/sandboxes/${id}/hibernate`))}>Hibernate</Button>
                <Button kind="danger" onClick={() => (dialog.value = "end")}>End</Button>
              </span>
            </div>
          )}
          <div role="rowgroup">
            <div class="list-row list-head" role="row">
              <div role="columnheader">
                {allows("run") && <input type="checkbox" aria-label="Select all" checked={allPicked} onChange={() => (chosen.value = allPicked ? new Set() : new Set(shown.map(({ id }) => id)))} />}
              </div>
              {head("name", "Name", false)}
              {head("status", "State", false)}
              {head("template", "Template")}
              <div role="columnheader" class="wide">Labels</div>
              {head("created_at", "Created")}
              {head("expires_at", "Ends")}
              <div role="columnheader"><span class="sr">Actions</span></div>
            </div>
          </div>
          {shown.length === 0 ? (
            <Empty title="No sandbox fits the filter"><Button onClick={() => { search.value = ""; state.value = ""; template.value = ""; }}>Clear the filter</Button></Empty>
          ) : (
            <VirtualRows class="list-body" label="Sandboxes" items={shown} rowHeight={ROW} row={(one) => <Row key={one.id} sandbox={one} picked={chosen.value.has(one.id)} pick={pick} end={() => { chosen.value = new Set([one.id]); dialog.value = "end"; }} />} />
          )}
        </div>
      )}
      <p class="muted" style={{ marginTop: "8px" }} role="status">{shown.length} of {all.length} shown</p>
      {dialog.value === "create" && <CreateDialog close={() => (dialog.value = null)} />}
      {dialog.value === "end" && (
        <Dialog title={`End ${picked.length} ${picked.length === 1 ? "sandbox" : "sandboxes"}?`} action="End" danger close={() => (dialog.value = null)} submit={() => each("End", "ended", (id) => del(`/v1/sandboxes/${id}`))}>
          <p>Their files and processes are deleted. This cannot be undone.</p>
        </Dialog>
      )}
    </Page>
  );
}

interface RowProps {
  sandbox: Sandbox;
  picked: boolean;
  pick: (id: string, on: boolean) => void;
  end: () => void;
}

function Row({ sandbox, picked, pick, end }: RowProps) {
  const labels = Object.entries({ ...sandbox.labels }).filter(([key]) => key !== "name");
  return (
    <div class="list-row" role="row" style={{ height: `${ROW}px` }}>
      <div role="cell">
        {allows("run") && <input type="checkbox" aria-label={`Select ${nameOf(sandbox)}`} checked={picked} onChange={(event) => pick(sandbox.id, event.currentTarget.checked)} />}
      </div>
      <div role="cell" class="list-name">
        <a class="cut" href={href(`/sandboxes/${sandbox.id}`)}>{nameOf(sandbox)}</a>
        {nameOf(sandbox) !== shortId(sandbox.id) && <small class="mono cut">{shortId(sandbox.id)}</small>}
      </div>
      <div role="cell"><Badge status={sandbox.status} /></div>
      <div role="cell" class="wide cut">{sandbox.template}</div>
      <div role="cell" class="wide cut">{labels.map(([key, value]) => <><span class="label" title={`${key}=${value}`}>{key}={value}</span>{" "}</>)}</div>
      <div role="cell" class="wide muted"><Time at={sandbox.created_at} /></div>
      <div role="cell" class="wide muted">{sandbox.expires_at ? <Time at={sandbox.expires_at} /> : "never"}</div>
      <div role="cell">{allows("run") && <button class="icon-button" aria-label={`End ${nameOf(sandbox)}`} title="End" onClick={end}>✕</button>}</div>
    </div>
  );
}
