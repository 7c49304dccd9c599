import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, query, segment, type Schemas } from "../api/client";
import { href } from "../router";
import { DiffFiles } from "../sandbox/diff";
import { sandboxes } from "../state/sandboxes";
import { Badge, Card, Empty, Page, Problem, Show, Time, useLoad } from "../ui/basics";
import { duration, plain, shortId } from "../ui/format";

type Part = Schemas["AgentTranscript"];
const EVERY_MS = 1_000;

/** A line of a transcript. All of it comes from the model or the sandbox. */
interface Line {
  time: string;
  type: string;
  attempt?: number;
  [name: string]: unknown;
}

export function Agents() {
  const runs = useLoad(() => get<Schemas["AgentRunList"]>("/v1/agent/runs"), []);
  useEffect(() => {
    const timer = setInterval(() => void runs.reload(), 5_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <Page title="Agents">
      <Card>
        <Show from={runs}>
          {({ runs: all }) =>
            all.length === 0 ? (
              <Empty title="No runs yet">
                <p>Start one with <code>sandling agent "fix the failing test" --files .</code> on this host. It appears here at once, and its transcript stays.</p>
              </Empty>
            ) : (
              <div class="table-box">
                <table>
                  <thead><tr><th>Task</th><th>State</th><th>Model</th><th>Started</th><th>Last activity</th></tr></thead>
                  <tbody>
                    {all.map((run) => (
                      <tr key={run.id}>
                        <td><a class="clamp" href={href(`/agents/${run.id}`)}>{run.task ?? run.id}</a></td>
                        <td><Badge status={run.state} /></td>
                        <td class="muted">{run.model}</td>
                        <td class="nowrap">{run.started_at && <Time at={run.started_at} />}</td>
                        <td class="nowrap muted"><Time at={run.changed_at} /></td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )
          }
        </Show>
      </Card>
    </Page>
  );
}

export function AgentRun({ id }: { id: string }) {
  const lines = useSignal<Line[]>([]);
  const state = useSignal("");
  const problem = useSignal<Error | null>(null);
  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout>;
    let from = 0;
    const read = async () => {
      try {
        const part = await get<Part>(`/v1/agent/runs/${segment(id)}${query({ from })}`);
        if (stopped) return;
        from = part.next;
        state.value = part.state;
        if (part.lines.length) lines.value = [...lines.value, ...(part.lines as Line[])];
        if (part.lines.length) return void read();
      } catch (error) {
        problem.value = error as Error;
        return;
      }
      if (!stopped && state.value === "running") timer = setTimeout(() => void read(), EVERY_MS);
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [id]);
  if (problem.value) return <Page title="Agent"><Problem error={problem.value} /></Page>;
  // Lines about all attempts.
  const shared = ["forks", "winner"];
  const attempts = [...new Set(lines.value.flatMap(({ attempt, type }) => (shared.includes(type) ? [] : [attempt])))].sort((a, b) => (a ?? 0) - (b ?? 0));
  const winner = lines.value.find(({ type }) => type === "winner")?.attempt;
  const start = lines.value.find(({ type }) => type === "start");
  const task = String(start?.task ?? id).split("\n\n(This is attempt")[0];
  return (
    <Page title={<span class="row"><span class="wrap">Agent</span> {state.value && <Badge status={state.value} />}</span>} actions={<a class="button" href={href("/agents")}>All runs</a>}>
      <div class="stack">
        <Card title="Task"><p class="wrap" style={{ whiteSpace: "pre-wrap" }}>{task}</p></Card>
        {lines.value.length === 0 && <Empty title="Nothing is written yet">The first step appears here.</Empty>}
        <div class={attempts.length > 1 ? "attempts" : ""}>
          {attempts.map((attempt) => <Attempt key={attempt ?? 0} number={attempts.length > 1 ? attempt : undefined} best={attempt !== undefined && attempt === winner} lines={lines.value.filter((line) => line.attempt === attempt && !shared.includes(line.type))} />)}
        </div>
      </div>
    </Page>
  );
}

const number = (value: unknown) => (typeof value === "number" ? value : 0);
const text = (value: unknown) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value, null, 2));

function Attempt({ number: attempt, best, lines }: { number?: number; best: boolean; lines: Line[] }) {
  const start = lines.find(({ type }) => type === "start");
  const end = lines.filter(({ type }) => type === "end").at(-1);
  const check = lines.filter(({ type }) => type === "check").at(-1);
  const replies = lines.filter(({ type }) => type === "reply");
  const steps = end ? number(end.steps) : replies.length;
  const tokens = (name: string) => (end ? number(end[name]) : replies.reduce((sum, line) => sum + number(line[name]), 0));
  const budget = (start?.budget ?? {}) as { steps?: number; seconds?: number; tokens?: number | null };
  const sandbox = text(start?.sandbox);
  const passed = check?.exit_code === 0;
  const changes = lines.find(({ type, files }) => type === "changes" && Array.isArray(files)) as unknown as Schemas["DiffView"] | undefined;
  return (
    <Card title={attempt === undefined ? "Steps" : `Attempt ${attempt}`} actions={<>{best && <Badge status="best" />}{check && <Badge status={passed ? "passed" : "failed"} />}</>}>
      <dl class="facts">
        <dt>Model</dt>
        <dd>{text(start?.model)}{start?.engine ? ` in ${text(start.engine)}` : ""}</dd>
        <dt>Sandbox</dt>
        <dd>{sandboxes.value.has(sandbox) ? <a class="inline" href={href(`/sandboxes/${sandbox}/timeline`)}>{shortId(sandbox)}</a> : <span class="mono muted">{shortId(sandbox)}</span>}</dd>
        <dt>Used</dt>
        <dd>
          {steps}{budget.steps ? ` of ${budget.steps}` : ""} steps, {tokens("input_tokens") + tokens("output_tokens")}{budget.tokens ? ` of ${budget.tokens}` : ""} tokens
          {end && `, ${duration(number(end.seconds) * 1000)}`}{budget.seconds ? ` of ${duration(budget.seconds * 1000)}` : ""}
          {end && typeof end.cost === "number" && `, $${end.cost.toFixed(4)}`}
        </dd>
        {end && (<><dt>Ended</dt><dd>{text(end.why)}</dd></>)}
        {check && (<><dt>Check</dt><dd>{check.error ? text(check.error) : `exit ${text(check.exit_code)}`}{typeof check.score === "number" ? `, score ${check.score}` : ""}</dd></>)}
      </dl>
      {changes && (
        <details class="changes" open>
          <summary>Changes in <code>{text(changes.path)}</code></summary>
          <DiffFiles diff={changes} />
        </details>
      )}
      <ol class="steps">
        {lines.map((line) => <Step line={line} />)}
      </ol>
    </Card>
  );
}

function Step({ line }: { line: Line }) {
  switch (line.type) {
    case "reply":
      return line.text ? <li class="said">{plain(text(line.text))}</li> : null;
    case "call":
      return (
        <li class="called">
          <strong>{text(line.name)}</strong>
          <pre tabIndex={0} aria-label="Arguments">{plain(argumentsOf(line.arguments))}</pre>
        </li>
      );
    case "result":
      return (
        <li class={line.is_error ? "result failed" : "result"}>
          <small class="muted">{line.exit_code === null || line.exit_code === undefined ? "result" : `exit ${text(line.exit_code)}`}{line.seconds === undefined ? "" : ` · ${duration(number(line.seconds) * 1000)}`}</small>
          <pre tabIndex={0} aria-label="Result">{plain(text(line.text)) || "no output"}</pre>
        </li>
      );
    case "output":
      return <li class="result"><pre tabIndex={0} aria-label="Output">{plain(text(line.text))}</pre></li>;
    case "retry":
      return <li class="muted">Retried after {duration(number(line.after_seconds) * 1000)}: {text(line.why)}</li>;
    case "end":
      return line.answer ? <li class="said answer">{plain(text(line.answer))}</li> : null;
    default:
      return null;
  }
}

/** Text is shown as it is, so that commands and code are readable. Long texts come last. */
function argumentsOf(value: unknown): string {
  const fields = value && typeof value === "object" ? Object.entries(value) : [];
  if (fields.length === 0) return text(value);
  if (fields.length === 1 && typeof fields[0]![1] === "string") return fields[0]![1];
  const isLong = ([, one]: [string, unknown]) => typeof one === "string" && one.includes("\n");
  const short = fields.filter((field) => !isLong(field)).map(([name, one]) => `${name}: ${text(one)}`);
  const long = fields.filter(isLong).map(([name, one]) => `${name}:\n${text(one).trimEnd()}`);
  return [...short, ...long].join("\n");
}
