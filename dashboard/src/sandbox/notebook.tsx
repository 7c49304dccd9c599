import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { del, get, post, stream, type Schemas } from "../api/client";
import { attempt } from "../state/toasts";
import { Badge, Button, Empty, Problem } from "../ui/basics";
import { duration, plain } from "../ui/format";
import { Editor } from "../ui/lazy";
import type { TabProps } from "./page";
import { Result, type Rich } from "./result";

type Context = Schemas["SessionView"];
type CellResult = Omit<Schemas["CellResult"], "results"> & { results: Rich[] };

interface Cell {
  key: number;
  code: string;
  stdout: string;
  stderr: string;
  running: boolean;
  result?: CellResult;
  problem?: string;
}

const EXAMPLE: Record<string, string> = {
  python: "import sys\nprint(sys.version)\n",
  node: "console.log(process.version)\n",
  bash: "uname -a\n",
};
const TIMEOUT_MS = 600_000;

let nextKey = 1;
const blank = (code: string): Cell => ({ key: nextKey++, code, stdout: "", stderr: "", running: false });

export function Notebook({ sandbox }: TabProps) {
  const base = `/v1/sandboxes/${sandbox.id}/repl/sessions`;
  const contexts = useSignal<Context[] | null>(null);
  const problem = useSignal<Error | null>(null);
  const current = useSignal("");
  const language = useSignal("python");
  const cells = useSignal<Record<string, Cell[]>>({});
  const load = async () => {
    try {
      contexts.value = await get<Context[]>(base);
      if (!contexts.value.some(({ id }) => id === current.value)) current.value = contexts.value[0]?.id ?? "";
      problem.value = null;
    } catch (error) {
      problem.value = error as Error;
    }
  };
  useEffect(() => void load(), [sandbox.id]);
  const context = contexts.value?.find(({ id }) => id === current.value);
  const own = context ? (cells.value[context.id] ?? [blank(EXAMPLE[context.language] ?? "")]) : [];
  const set = (next: Cell[]) => context && (cells.value = { ...cells.value, [context.id]: next });
  if (context && !cells.value[context.id]) set(own);

  const start = () =>
    attempt("The context did not start", async () => {
      const made = await post<Context>(base, { language: language.value });
      await load();
      current.value = made.id;
    });
  const update = (id: string, key: number, change: Partial<Cell> | ((cell: Cell) => Partial<Cell>)) => {
    const list = cells.value[id] ?? [];
    cells.value = { ...cells.value, [id]: list.map((cell) => (cell.key === key ? { ...cell, ...(typeof change === "function" ? change(cell) : change) } : cell)) };
  };
  const run = async (key: number) => {
    if (!context) return;
    const { id, language: of } = context;
    const cell = (cells.value[id] ?? []).find((one) => one.key === key);
    if (!cell || cell.running) return;
    update(id, key, { running: true, stdout: "", stderr: "", result: undefined, problem: undefined });
    try {
      for await (const { event, data } of stream(`${base}/${id}/run/stream`, { code: cell.code, timeout_ms: TIMEOUT_MS })) {
        if (event === "stdout" || event === "stderr") update(id, key, (old) => ({ [event]: old[event] + String(data.chunk) }));
        else if (event === "result") update(id, key, { result: data as unknown as CellResult });
        else if (event === "error") update(id, key, { problem: String(data.error ?? data.message ?? "the cell failed") });
      }
    } catch (error) {
      update(id, key, { problem: (error as Error).message });
    }
    update(id, key, { running: false });
    const list = cells.value[id];
    if (list.at(-1)?.key === key) cells.value = { ...cells.value, [id]: [...list, blank(of === "python" ? "" : "")] };
    void load();
  };

  return (
    <div class="stack">
      <div class="row">
        {contexts.value && contexts.value.length > 0 && (
          <select aria-label="Context" value={current.value} onChange={(event) => (current.value = event.currentTarget.value)}>
            {contexts.value.map((one) => <option value={one.id}>{one.language} · {one.id.slice(0, 8)} · {one.cells} cells</option>)}
          </select>
        )}
        {context && (
          <>
            {context.busy && <Badge status="busy" />}
            <Button onClick={() => attempt("The cell was not interrupted", () => post(`${base}/${context.id}/interrupt`))}>Interrupt</Button>
            <Button onClick={() => attempt("The context was not restarted", () => post(`${base}/${context.id}/restart`), "Restarted").then(load)}>Restart</Button>
            <Button kind="danger" onClick={() => attempt("The context was not ended", () => del(`${base}/${context.id}`)).then(load)}>End context</Button>
          </>
        )}
        <span class="grow" />
        <select aria-label="Language" value={language.value} onChange={(event) => (language.value = event.currentTarget.value)}>
          <option value="python">Python</option>
          <option value="node">Node</option>
          <option value="bash">Bash</option>
        </select>
        <Button kind={context ? undefined : "primary"} onClick={start}>New context</Button>
      </div>
      {problem.value && <Problem error={problem.value} retry={() => void load()} />}
      {contexts.value?.length === 0 && <Empty title="No context yet">A context is a live interpreter. It keeps its variables between cells.</Empty>}
      {own.map((cell) => context && <CellView key={cell.key} cell={cell} language={context.language} change={(code) => update(context.id, cell.key, { code })} run={() => void run(cell.key)} />)}
      {context && <div><Button onClick={() => set([...own, blank("")])}>Add a cell</Button></div>}
    </div>
  );
}

interface CellProps {
  cell: Cell;
  language: string;
  change: (code: string) => void;
  run: () => void;
}

function CellView({ cell, language, change, run }: CellProps) {
  const { result } = cell;
  return (
    <article class="cell" aria-busy={cell.running}>
      <Editor value={cell.code} language={language} label="Code" change={change} run={run} />
      <div class="row">
        <Button kind="primary" class="button-small" disabled={cell.running} onClick={run}>{cell.running ? "Running …" : "Run"}</Button>
        <small>Ctrl-Enter runs the cell</small>
        <span class="grow" />
        {result && <small>[{result.execution_count}] {result.status} · {duration(result.duration_ms)}{result.restarted ? " · the interpreter restarted" : ""}</small>}
      </div>
      {cell.stdout && <pre tabIndex={0} aria-label="Output">{plain(cell.stdout)}</pre>}
      {cell.stderr && <pre class="stderr" tabIndex={0} aria-label="Errors">{plain(cell.stderr)}</pre>}
      {result?.results.map((rich) => <Result rich={rich} />)}
      {result?.traceback && <pre class="stderr" tabIndex={0} aria-label="Traceback">{plain(result.traceback.text || `${result.traceback.name}: ${result.traceback.value}`)}</pre>}
      {cell.problem && <div class="problem" role="alert">{cell.problem}</div>}
    </article>
  );
}
