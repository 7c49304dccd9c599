/** Code in a live interpreter, and the results of code. */

import type { IncomingHttpHeaders } from "node:http";

import { ExecInterrupted, fromAnswer } from "./errors.js";
import { type Execution, type ExecResult, Result } from "./models.js";
import { fromWire, type Wire } from "./naming.js";
import type { Listeners } from "./options.js";
import type { SandboxRequests } from "./requests.js";

/**
 * Runs code in the default interpreter of a sandbox, and passes its output to listeners while it runs. If the caller
 * disconnects, the server interrupts the code.
 */
export async function runLive(requests: SandboxRequests, body: Wire, listeners: Listeners): Promise<Execution> {
  const { onStdout, onStderr } = listeners;
  const printed = { stdout: "", stderr: "" };
  let head: IncomingHttpHeaders = {};
  const onHead = (headers: IncomingHttpHeaders) => (head = headers);
  for await (const event of requests.events("POST", "/run-code/stream", { body, onHead })) {
    const data = JSON.parse(event.data) as Wire;
    if (event.name === "stdout" || event.name === "stderr") {
      const text = String(data["chunk"]);
      printed[event.name] += text;
      await (event.name === "stdout" ? onStdout : onStderr)?.(text);
    } else if (event.name === "result") return execution(data);
    else if (event.name === "error") {
      const { status, ...error } = data;
      throw fromAnswer(Number(status ?? 500), head, error);
    }
  }
  const facts = { code: "interrupted", requestId: String(head["x-request-id"] ?? "") || undefined };
  throw new ExecInterrupted("the code's output ended without a result", "", printed, facts);
}

/** How the code of a create ended, as the server says it. */
export interface FirstRun {
  result?: unknown;
  error?: Wire;
}

/** The result of code that ran when its sandbox was created. */
export function firstExecution(run: FirstRun): Execution {
  if (!run.error) return execution(run.result);
  const { status, ...error } = run.error;
  throw fromAnswer(Number(status ?? 500), {}, error);
}

/** The result of a script, which has no rich results. */
export function scriptExecution(result: ExecResult): Execution {
  const { stdout, stderr, exitCode, durationMs, droppedBytes, ok, reason } = result;
  const statuses = { exited: ok ? "ok" : "error", signalled: "died", timeout: "interrupted" } as const;
  const status = reason === "exited" || reason === "signalled" || reason === "timeout" ? statuses[reason] : reason;
  const error = ok ? null : stderr.trim() || `the script ended with exit code ${exitCode}`;
  const none = { results: [], executionCount: 0, restarted: false, text: undefined, png: undefined };
  return { stdout, stderr, error, exitCode, status, durationMs, droppedBytes, ok, ...none };
}

export function execution(data: unknown): Execution {
  const told = fromWire<Omit<Execution, "results"> & { results: Record<string, string>[] }>(data);
  const results = told.results.map((bundle) => new Result(bundle));
  return {
    ...told,
    results,
    error: told.error || null,
    ok: told.exitCode === 0,
    text: results.find((result) => result.text !== undefined)?.text,
    png: results.find((result) => result.png !== undefined)?.png,
  };
}
