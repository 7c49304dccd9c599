import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { allows, del, get, post, query, send, type Schemas } from "../api/client";
import { attempt, toast } from "../state/toasts";
import { Button, Card, Empty, Field, Problem } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes } from "../ui/format";
import { Editor } from "../ui/lazy";
import type { TabProps } from "./page";

type Entry = Schemas["EntryView"];

const MOST_EDITED = 2 * 1024 * 1024;
const PICTURES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml" };
const HOME = "/root";

const extension = (path: string) => path.slice(path.lastIndexOf("/") + 1).split(".").pop()!.toLowerCase();
const parent = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";
const join = (directory: string, name: string) => (directory === "/" ? `/${name}` : `${directory}/${name}`);

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function Files({ sandbox }: TabProps) {
  const base = `/v1/sandboxes/${sandbox.id}`;
  const directory = useSignal(HOME);
  const chosen = useSignal<Entry | null>(null);
  const listings = useSignal<Record<string, Entry[]>>({});
  const open = useSignal<Set<string>>(new Set([HOME]));
  const problem = useSignal<Error | null>(null);
  const dropping = useSignal(false);
  const dialog = useSignal<"directory" | "file" | "remove" | null>(null);
  const name = useSignal("");

  const list = async (path: string) => {
    try {
      const { entries } = await get<{ entries: Entry[] }>(`${base}/fs/dir${query({ path })}`);
      entries.sort((a, b) => Number(b.is_dir) - Number(a.is_dir) || (a.name < b.name ? -1 : 1));
      listings.value = { ...listings.value, [path]: entries };
      problem.value = null;
    } catch (error) {
      problem.value = error as Error;
    }
  };
  useEffect(() => {
    void list(directory.value);
  }, [sandbox.id, directory.value]);

  const toggle = (entry: Entry) => {
    const next = new Set(open.value);
    if (next.has(entry.path)) next.delete(entry.path);
    else {
      next.add(entry.path);
      void list(entry.path);
    }
    open.value = next;
  };
  /** Where uploads and new files go. */
  const place = () => (chosen.value ? (chosen.value.is_dir ? chosen.value.path : parent(chosen.value.path)) : directory.value);
  const upload = async (files: FileList | null | undefined) => {
    const target = place();
    for (const file of files ?? []) {
      const path = join(target, file.name);
      await attempt(`${file.name} was not uploaded`, () => send("PUT", `${base}/fs${query({ path })}`, file), `${file.name} uploaded to ${target}`);
    }
    void list(target);
  };
  const archive = () =>
    attempt("The directory was not downloaded", async () => {
      const path = place();
      const file = `/tmp/.download-${Date.now()}.tar.gz`;
      const made = await post<{ exit_code: number; stderr: string }>(`${base}/exec`, { args: ["tar", "-czf", file, "-C", path, "."] });
      if (made.exit_code !== 0) throw new Error(made.stderr.slice(0, 300));
      const content = await send("GET", `${base}/fs${query({ path: file })}`);
      save(await content.blob(), `${path.split("/").pop() || "root"}.tar.gz`);
      await del(`${base}/fs${query({ path: file })}`);
    });
  const make = async () => {
    const path = join(place(), name.value);
    const work = dialog.value === "directory" ? () => post(`${base}/fs/mkdir`, { path }) : () => send("PUT", `${base}/fs${query({ path, write: "create_new" })}`, "");
    const done = await attempt(`${name.value} was not created`, work);
    if (done) void list(place());
    return done;
  };
  const remove = async () => {
    const entry = chosen.value!;
    const done = await attempt(`${entry.name} was not removed`, () => del(`${base}/fs${query({ path: entry.path, recursive: entry.is_dir })}`), `${entry.name} removed`);
    if (done) {
      chosen.value = null;
      void list(parent(entry.path));
    }
    return done;
  };
  const branch = (path: string): preact.JSX.Element => (
    <ul>
      {(listings.value[path] ?? []).map((entry) => (
        <li key={entry.path}>
          <button
            aria-current={chosen.value?.path === entry.path}
            aria-expanded={entry.is_dir ? open.value.has(entry.path) : undefined}
            onClick={() => {
              chosen.value = entry;
              if (entry.is_dir) toggle(entry);
            }}
          >
            {entry.is_dir ? (open.value.has(entry.path) ? "▾ " : "▸ ") : "  "}
            {entry.name}
            {entry.target ? ` → ${entry.target}` : ""}
          </button>
          {entry.is_dir && open.value.has(entry.path) && branch(entry.path)}
        </li>
      ))}
    </ul>
  );
  return (
    <div class="files">
      <div
        class={`card ${dropping.value ? "drop" : ""}`}
        onDragOver={(event) => {
          event.preventDefault();
          dropping.value = true;
        }}
        onDragLeave={() => (dropping.value = false)}
        onDrop={(event) => {
          event.preventDefault();
          dropping.value = false;
          void upload(event.dataTransfer?.files);
        }}
      >
        <Field label="Directory">
          <input value={directory.value} spellcheck={false} class="mono" onChange={(event) => {
            directory.value = event.currentTarget.value || "/";
            chosen.value = null;
          }} />
        </Field>
        <div class="tree" style={{ margin: "8px 0" }} tabIndex={0} role="region" aria-label="Files">
          {problem.value ? <Problem error={problem.value} /> : branch(directory.value)}
          {listings.value[directory.value]?.length === 0 && <Empty title="This directory is empty">Drop files here to upload them.</Empty>}
        </div>
        {allows("run") && (
          <div class="row">
            <label class="button button-small">
              Upload
              <input type="file" multiple class="sr" onChange={(event) => void upload(event.currentTarget.files)} />
            </label>
            <Button class="button-small" onClick={() => { name.value = ""; dialog.value = "file"; }}>New file</Button>
            <Button class="button-small" onClick={() => { name.value = ""; dialog.value = "directory"; }}>New directory</Button>
            <Button class="button-small" onClick={archive}>Download as tar</Button>
            <Button class="button-small" onClick={() => Promise.all(Object.keys(listings.value).map(list))}>Refresh</Button>
          </div>
        )}
        <p class="muted" style={{ margin: "8px 0 0" }}><small>Drop files here to upload them to {place()}.</small></p>
      </div>
      <div class="viewer">
        {chosen.value && !chosen.value.is_dir ? (
          <Viewer key={chosen.value.path} base={base} entry={chosen.value} remove={() => (dialog.value = "remove")} />
        ) : (
          <Card>
            <Empty title={chosen.value ? chosen.value.name : "No file is selected"}>
              <p>Select a file to view or edit it.</p>
              {chosen.value && allows("run") && <Button kind="danger" onClick={() => (dialog.value = "remove")}>Remove this directory</Button>}
            </Empty>
          </Card>
        )}
      </div>
      {(dialog.value === "file" || dialog.value === "directory") && (
        <Dialog title={dialog.value === "file" ? "New file" : "New directory"} action="Create" close={() => (dialog.value = null)} submit={make}>
          <Field label="Name" hint={`In ${place()}`}>
            <input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
          </Field>
        </Dialog>
      )}
      {dialog.value === "remove" && chosen.value && (
        <Dialog title="Remove it?" action="Remove" danger close={() => (dialog.value = null)} submit={remove}>
          <p class="wrap"><code>{chosen.value.path}</code>{chosen.value.is_dir ? " and everything in it" : ""}</p>
        </Dialog>
      )}
    </div>
  );
}

type Content = { kind: "text"; text: string } | { kind: "picture"; url: string } | { kind: "other"; why: string };

function Viewer({ base, entry, remove }: { base: string; entry: Entry; remove: () => void }) {
  const content = useSignal<Content | null>(null);
  const problem = useSignal<Error | null>(null);
  const edited = useSignal<string | null>(null);
  const path = `${base}/fs${query({ path: entry.path })}`;
  useEffect(() => {
    let url = "";
    const load = async (): Promise<Content> => {
      if (entry.size > MOST_EDITED) return { kind: "other", why: `The file has ${bytes(entry.size)}; download it to view it.` };
      const data = await (await send("GET", path)).arrayBuffer();
      const picture = PICTURES[extension(entry.path)];
      if (picture) {
        url = URL.createObjectURL(new Blob([data], { type: picture }));
        return { kind: "picture", url };
      }
      try {
        return { kind: "text", text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data) };
      } catch {
        return { kind: "other", why: "The file is not text." };
      }
    };
    load().then(
      (found) => (content.value = found),
      (error: Error) => (problem.value = error),
    );
    return () => URL.revokeObjectURL(url);
  }, [path]);
  const write = async () => {
    if (edited.value === null) return;
    const text = edited.value;
    if (await attempt("The file was not saved", () => send("PUT", path, text))) {
      edited.value = null;
      toast(`${entry.name} saved`);
    }
  };
  const download = () => attempt("The file was not downloaded", async () => save(await (await send("GET", path)).blob(), entry.name));
  const shown = content.value;
  const language = /^dockerfile/i.test(entry.name) ? "dockerfile" : extension(entry.path);
  const actions = (
    <>
      {edited.value !== null && <Button kind="primary" onClick={write}>Save</Button>}
      <Button onClick={download}>Download</Button>
      {allows("run") && <Button kind="danger" onClick={remove}>Remove</Button>}
    </>
  );
  return (
    <Card title={entry.path} actions={actions}>
      <p class="muted">{bytes(entry.size)} · {entry.permissions} · user {entry.uid}:{entry.gid}</p>
      {problem.value && <Problem error={problem.value} />}
      {!shown && !problem.value && <div class="loading">Loading …</div>}
      {shown?.kind === "text" && <Editor value={edited.value ?? shown.text} language={language} label={`Content of ${entry.name}`} change={(text) => (edited.value = text)} save={() => void write()} />}
      {shown?.kind === "picture" && <img src={shown.url} alt={entry.name} />}
      {shown?.kind === "other" && <Empty title={shown.why} />}
    </Card>
  );
}
