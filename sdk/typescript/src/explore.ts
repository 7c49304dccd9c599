/** Best of N: tries every candidate in its own fork, keeps the best and ends the others. */

import { ExploreError, SandboxTimeout, SandlingError } from "./errors.js";
import type { Sandbox } from "./sandbox.js";

const MAX_BRANCHES = 16;
const TAIL_BYTES = 4096;
const MOST_FILES = 200;
const MARKER = "/tmp/.sandling-explore-marker";
/** Directories in which to look for changed files. Missing ones are skipped. */
const ROOTS = "/app /work /workspace /root /home";

/** One candidate: a command line, or a function that takes the fork. */
export interface Candidate {
  label: string;
  cmd?: string;
  fn?: (sandbox: Sandbox) => unknown;
  timeoutSeconds?: number;
  env?: Record<string, string>;
  /** A score that is known in advance. */
  score?: number;
}

/** The outcome of one candidate. */
export interface BranchOutcome {
  label: string;
  sandboxId: string;
  readonly sandbox: Sandbox;
  ok: boolean;
  score: number;
  exitCode: number | null;
  /** The last 4 KiB. */
  stdoutTail: string;
  stderrTail: string;
  filesChanged: string[];
  durationMs: number;
  /** The return value of the candidate's function. */
  value: unknown;
  error: string | null;
  timedOut: boolean;
}

export interface ExploreOptions {
  /** Takes the fork and its outcome. By default a branch that succeeded has 1 and the others 0. */
  scoreFn?: (sandbox: Sandbox, outcome: BranchOutcome) => number | Promise<number>;
  select?: "max" | "min" | ((viable: BranchOutcome[]) => BranchOutcome);
  /** Whether only a branch that succeeded can win; true by default. */
  requireSuccess?: boolean;
  /** How many branches run in parallel, 4 by default. */
  maxConcurrency?: number;
  cleanupLosers?: boolean;
  promoteWinner?: boolean;
  /** Lists the files that each branch changed; a string says where to look. */
  captureFiles?: boolean | string;
  /** How long forks live if this process dies. */
  ttlSeconds?: number;
  onOutcome?: (outcome: BranchOutcome) => unknown;
}

export interface ExploreResult {
  /** The sandbox of the winner. It still runs; end it when you are done. */
  winner: Sandbox;
  winnerOutcome: BranchOutcome;
  /** All branches, the best first. */
  outcomes: BranchOutcome[];
  treeId: string;
  /** The sandboxes that were ended. */
  reaped: string[];
  reapFailures: Record<string, string>;
  errors: string[];
}

export async function explore(
  sandbox: Sandbox,
  work: ReadonlyArray<Candidate | string>,
  options: ExploreOptions = {},
): Promise<ExploreResult> {
  const candidates = checked(work);
  checkSelect(options.select);
  const metadata = { explore: "1", explore_ttl: String(Math.trunc(options.ttlSeconds ?? 600)) };
  const forks = await sandbox.forkTree({ count: candidates.length, metadata });
  try {
    const pairs = forks.map((fork, index) => ({ fork, candidate: candidates[index] as Candidate }));
    const run = ({ fork, candidate }: (typeof pairs)[number]) => branch(fork, candidate, options);
    const outcomes = ranked(await inTurns(pairs, options.maxConcurrency ?? 4, run), options.select);
    const winner = pick(outcomes, options);
    if (!winner) throw new ExploreError(noWinner(outcomes), outcomes);
    const result = blank(winner, outcomes);
    if (forks.length < candidates.length) {
      result.errors.push(`${candidates.length} forks were asked for and ${forks.length} made`);
    }
    await settle(result, forks, options);
    return result;
  } catch (error) {
    await end(forks);
    throw error;
  }
}

function checked(work: ReadonlyArray<Candidate | string>): Candidate[] {
  if (work.length < 1 || work.length > MAX_BRANCHES) {
    throw new ExploreError(`an exploration has 1 to ${MAX_BRANCHES} candidates, not ${work.length}`);
  }
  const candidates = work.map((item) => (typeof item === "string" ? { label: item, cmd: item } : item));
  const bad = candidates.find(({ cmd, fn }: Candidate) => (cmd === undefined) === (fn === undefined));
  if (bad) throw new ExploreError(`candidate ${bad.label} needs a command or a function, and not both`);
  return candidates;
}

function checkSelect(select: unknown = "max"): void {
  if (typeof select !== "function" && select !== "max" && select !== "min") {
    throw new TypeError(`select must be "max", "min" or a function, not ${JSON.stringify(select)}`);
  }
}

/** Tries one candidate. Errors of the caller's functions belong to this branch; the others continue. */
async function branch(fork: Sandbox, candidate: Candidate, options: ExploreOptions): Promise<BranchOutcome> {
  const outcome = unknown(fork, candidate.label);
  const capture = options.captureFiles ?? true;
  const started = Date.now();
  try {
    if (capture) await fork.exec(["touch", MARKER], { timeoutSeconds: 30 });
    await attempt(fork, candidate, outcome);
    outcome.durationMs = Date.now() - started;
    if (capture) outcome.filesChanged = await changedFiles(fork, capture === true ? ROOTS : capture);
    outcome.score = candidate.score ?? (await options.scoreFn?.(fork, outcome)) ?? (outcome.ok ? 1 : 0);
  } catch (error) {
    outcome.durationMs = Date.now() - started;
    outcome.ok = false;
    outcome.error = error instanceof Error ? error.message : String(error);
    if (error instanceof SandboxTimeout) {
      outcome.timedOut = true;
      outcome.stdoutTail = tail(error.stdout);
      outcome.stderrTail = tail(error.stderr);
    }
  }
  await options.onOutcome?.(outcome);
  return outcome;
}

async function attempt(fork: Sandbox, candidate: Candidate, outcome: BranchOutcome): Promise<void> {
  if (candidate.fn) {
    outcome.value = await candidate.fn(fork);
    outcome.ok = true;
    return;
  }
  const options = { timeoutSeconds: candidate.timeoutSeconds ?? 60, env: candidate.env };
  const result = await fork.exec(candidate.cmd as string, options);
  outcome.ok = result.ok;
  outcome.exitCode = result.exitCode;
  outcome.stdoutTail = tail(result.stdout);
  outcome.stderrTail = tail(result.stderr);
}

async function changedFiles(fork: Sandbox, roots: string): Promise<string[]> {
  const line = `find ${roots} -type f -newer ${MARKER} 2>/dev/null | head -n ${MOST_FILES}`;
  return (await fork.exec(line, { timeoutSeconds: 60 })).stdout.split("\n").filter(Boolean);
}

function unknown(sandbox: Sandbox, label: string): BranchOutcome {
  const printed = { stdoutTail: "", stderrTail: "", filesChanged: [], durationMs: 0 };
  const verdict = { ok: false, score: 0, exitCode: null, value: undefined, error: null, timedOut: false };
  return { label, sandboxId: sandbox.id, sandbox, ...printed, ...verdict };
}

function blank(winner: BranchOutcome, outcomes: BranchOutcome[]): ExploreResult {
  const treeId = winner.sandbox.metadata["fork_tree_id"] ?? "";
  const rest = { treeId, reaped: [], reapFailures: {}, errors: [] };
  return { winner: winner.sandbox, winnerOutcome: winner, outcomes, ...rest };
}

/** Sorts outcomes: the best first, then the faster. */
export function ranked(outcomes: BranchOutcome[], select: ExploreOptions["select"]): BranchOutcome[] {
  const sign = select === "min" ? 1 : -1;
  return [...outcomes].sort((a, b) => sign * (a.score - b.score) || a.durationMs - b.durationMs);
}

function pick(outcomes: BranchOutcome[], options: ExploreOptions): BranchOutcome | undefined {
  const viable = outcomes.filter((outcome) => outcome.ok || options.requireSuccess === false);
  return typeof options.select === "function" && viable.length > 0 ? options.select(viable) : viable[0];
}

function noWinner(outcomes: BranchOutcome[]): string {
  const ends = outcomes.map(({ label, error, exitCode }) => `${label}: ${error ?? `exit ${exitCode}`}`);
  return `no branch can be the winner (${ends.join(", ")})`;
}

async function settle(result: ExploreResult, forks: Sandbox[], options: ExploreOptions): Promise<void> {
  const cleanupSiblings = options.cleanupLosers ?? true;
  if (options.promoteWinner ?? true) {
    try {
      const told = await result.winner.promote({ cleanupSiblings, treeId: result.treeId || undefined });
      result.reaped.push(...told.deleted);
      result.reapFailures = told.failures ?? {};
    } catch (error) {
      if (!(error instanceof SandlingError)) throw error;
      result.errors.push(`the winner could not be promoted: ${error.message}`);
    }
  }
  if (cleanupSiblings) {
    const left = forks.filter(({ id }) => id !== result.winner.id && !result.reaped.includes(id));
    result.reaped.push(...(await end(left)));
  }
}

/** Ends forks. If one cannot be ended now, its TTL ends it. */
async function end(forks: Sandbox[]): Promise<string[]> {
  const ended = forks.map((fork) =>
    fork.close().then(
      () => [fork.id],
      () => [],
    ),
  );
  return (await Promise.all(ended)).flat();
}

/** Runs everything, at most `limit` in parallel, and returns the results in order. Starts nothing after a failure. */
async function inTurns<T, R>(items: T[], limit: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const index = next++;
      try {
        results[index] = await work(items[index] as T);
      } catch (error) {
        next = items.length;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(limit, items.length)) }, worker));
  return results;
}

function tail(text: string): string {
  return Buffer.from(text).subarray(-TAIL_BYTES).toString("utf8");
}
