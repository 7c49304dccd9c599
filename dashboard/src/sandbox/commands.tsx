import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { del, events, get, post, query, send, type Schemas } from "../api/client";
import { attempt } from "../state/toasts";
import { Badge, Button, Empty, Problem, Time } from "../ui/basics";
import { bytes, duration, plain } from "../ui/format";
import type { TabProps } from "./page";

type Exec = Schemas["ExecView"];

/** Older output is cut from the page, but not from the server's record. */
const MOST_SHOWN = 200_000;

export function Commands({ sandbox }: TabProps) {
  const base = `/v1/sandboxes/${sandbox.id}`;
  const line = useSignal("");
  const execs = useSignal<Exec[] | null>(null);
  const problem = useSignal<Error | null>(null);
  const open = useSignal<string | null>(null);
  const load = async () => {
    try {
      const { execs: list } = await get<{ execs: Exec[] }>(`${base}/execs`);
      execs.value = list.sort((a, b) => (a.started_at < b.started_at ? 1 : -1));
      problem.value = null;
    } catch (error) {
      problem.value = error as Error;
    }
  };
  useEffect(() => void load(), [sandbox.id]);
  const run = async (event: Event) => {
    event.preventDefault();
    const cmd = line.value.trim();
    if (!cmd) return;
    await attempt("The command did not start", async () => {
      const { id } = await post<{ id: string }>(`${base}/exec`, { cmd, detached: true });
      line.value = "";
      open.value = id;
      await load();
    });
  };
  return (
    <div class="stack">
      <form class="prompt" onSubmit={(event) => void run(event)}>
        <input aria-label="Command" placeholder="Run a command, e.g. python3 -V" value={line.value} onInput={(event) => (line.value = event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        <button class="button button-primary" type="submit">Run</button>
      </form>
      {problem.value && <Problem error={problem.value} retry={() => void load()} />}
      {execs.value?.length === 0 && <Empty title="No commands yet">Run one above. Commands of the CLI and the SDKs appear here too.</Empty>}
      {execs.value?.map((exec) => (
        <Command key={exec.id} base={base} exec={exec} open={open.value === exec.id} toggle={() => (open.value = open.value === exec.id ? null : exec.id)} changed={load} />
      ))}
    </div>
  );
}

interface CommandProps {
  base: string;
  exec: Exec;
  open: boolean;
  toggle: () => void;
  changed: () => Promise<void>;
}

function Command({ base, exec, open, toggle, changed }: CommandProps) {
  const path = `${base}/execs/${exec.id}`;
  const running = exec.status === "running";
  const signal = (name: string) => attempt("The signal was not sent", () => post(`${path}/signal`, { signal: name }));
  return (
    <article class="command" data-exec={exec.id}>
      <header>
        <button class="icon-button" aria-expanded={open} aria-label={open ? "Hide the output" : "Show the output"} onClick={toggle}>{open ? "▾" : "▸"}</button>
        <code class="grow cut" title={exec.command}>{exec.command}</code>
        {running ? <Badge status="running" /> : <Badge status={exec.exit_code === 0 ? "ok" : "failed"} />}
        {!running && <span class="muted">exit {exec.exit_code}{exec.reason && exec.reason !== "exited" ? `, ${exec.reason}` : ""} · {duration(exec.duration_ms ?? 0)}</span>}
        <span class="muted">{bytes(exec.output_bytes)} · <Time at={exec.started_at} /></span>
        {running ? (
          <>
            <Button class="button-small" onClick={() => signal("INT")}>Interrupt</Button>
            <Button class="button-small" kind="danger" onClick={() => signal("KILL")}>Kill</Button>
          </>
        ) : (
          <Button class="button-small" kind="quiet" onClick={() => attempt("The record was not removed", () => del(path)).then(changed)}>Forget</Button>
        )}
      </header>
      {open && <Output path={path} ended={() => running && void changed()} />}
    </article>
  );
}

/** The output from its first byte, and then as it comes. */
function Output({ path, ended }: { path: string; ended: () => void }) {
  const parts = useSignal<{ kind: string; text: string }[]>([]);
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const response = await send("GET", `${path}/output${query({ from: 0 })}`, undefined, { signal: abort.signal, headers: { accept: "text/event-stream" } });
      for await (const { event, data } of events(response)) {
        if (event === "stdout" || event === "stderr") {
          const last = parts.value.at(-1);
          const text = String(data.chunk);
          parts.value = last?.kind === event ? [...parts.value.slice(0, -1), { kind: event, text: (last.text + text).slice(-MOST_SHOWN) }] : [...parts.value, { kind: event, text }];
        }
        if (event === "exit") ended();
      }
    };
    read().catch((error: Error) => {
      if (error.name !== "AbortError") parts.value = [...parts.value, { kind: "stderr", text: `\n[${error.message}]` }];
    });
    return () => abort.abort();
  }, [path]);
  useEffect(() => {
    box.current?.scrollTo(0, box.current.scrollHeight);
  }, [parts.value]);
  return (
    <pre ref={box} tabIndex={0} aria-label="Output">
      {parts.value.length === 0 && <span class="muted">No output yet</span>}
      {parts.value.map(({ kind, text }) => <span class={kind}>{plain(text)}</span>)}
    </pre>
  );
}
