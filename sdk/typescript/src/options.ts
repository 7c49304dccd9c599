/** What can be asked for, and the request bodies it becomes. No I/O. */

import { toWire, type Wire } from "./naming.js";
import { networkBody, type NetworkOptions } from "./network.js";

/** What is made when nobody says otherwise. */
export const DEFAULT_TEMPLATE = "code-interpreter";

/** What a copy of a sandbox does with its volumes: have none, read what was on them, or have clones of its own. */
export type OnVolumes = "detach" | "read_only" | "clone";

/** What copies of a sandbox are to be. */
export interface ForkOptions {
  metadata?: Record<string, string>;
  /** To be said if the sandbox has volumes. */
  volumes?: OnVolumes;
  /** They have its network policy in any case, and its secrets only with this. */
  inheritSecrets?: boolean;
}

/** A volume, where a sandbox is to see it. */
export interface VolumeMount {
  name: string;
  mount?: string;
  readOnly?: boolean;
}

/** What sandbox is wanted. What is absent comes from the template and the server. */
export interface CreateOptions {
  template?: string;
  cpu?: number;
  memoryMb?: number;
  diskMb?: number;
  /** Processes and threads, all together. */
  pids?: number;
  /** Your own notes on it, which `Sandbox.list` gives back. */
  metadata?: Record<string, string>;
  labels?: Record<string, string>;
  /** The environment of every command in it. */
  env?: Record<string, string>;
  /** How long it lives, whatever becomes of this process. */
  ttlSeconds?: number;
  /** How long it may be unused. */
  idleSeconds?: number;
  /** Its time to live does not apply, and `close` does not end it. */
  persistent?: boolean;
  fromSnapshot?: string;
  /** `every-exec` makes a checkpoint before each command, cell and change of files; see `rewind`. */
  checkpoints?: "every-exec" | "never";
  /** How many checkpoints without a name are kept; 20 if absent. */
  checkpointsKept?: number;
  /** What it may reach, such as `{ allow: ["pypi"], secrets: ["API_KEY"] }`; the
   * template's or the workspace's default if absent, else nothing. */
  network?: NetworkOptions;
  volumes?: VolumeMount[];
  /** Stops waiting for capacity when it is aborted. */
  signal?: AbortSignal;
}

/** How a command is run. */
export interface ExecOptions {
  timeoutSeconds?: number;
  cwd?: string;
  env?: Record<string, string>;
  /** A name or a number; root if absent. */
  user?: string;
  /** Given to the command, then closed. */
  stdin?: string;
  /** A command of the same id is never started twice. */
  id?: string;
  /** Bytes it may print. */
  outputLimit?: number;
  /** At the limit: `kill` it, or `keep_tail`, i.e. drop the oldest output. */
  onLimit?: "kill" | "keep_tail";
}

/** Called with output while it comes. */
export interface Listeners {
  onStdout?: (text: string) => unknown;
  onStderr?: (text: string) => unknown;
}

export function createBody(options: CreateOptions): Wire {
  const { signal: _, volumes, template, network, ...rest } = options;
  const body = toWire({ template: template ?? DEFAULT_TEMPLATE, ...rest });
  if (volumes) body["volumes"] = volumes.map((volume) => toWire({ readOnly: false, ...volume }));
  if (network) body["network"] = networkBody(network);
  return body;
}

/** A string is a line for the shell; a list is a program and its arguments, without a shell. */
export function execBody(command: string | readonly string[], options: ExecOptions): Wire {
  const program = typeof command === "string" ? { cmd: command } : { args: command };
  return { ...program, ...runOptions(options) };
}

export function codeBody(code: string, language: string, options: ExecOptions): Wire {
  return { code, language, ...runOptions(options) };
}

function runOptions(options: ExecOptions): Wire {
  const { timeoutSeconds, cwd, env, user, stdin, id, outputLimit, onLimit } = options;
  return toWire({ timeoutSeconds, cwd, env, user, stdin, id, outputLimit, onLimit });
}
