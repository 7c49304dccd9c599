/** Options of requests, and the JSON bodies made from them. No I/O. */

import { toWire, type Wire } from "./naming.js";
import { networkBody, type NetworkOptions } from "./network.js";

/** The default template. */
export const DEFAULT_TEMPLATE = "code-interpreter";

/** What a copy of a sandbox gets of its volumes: nothing, a read-only view, or its own copies. */
export type OnVolumes = "detach" | "read_only" | "clone";

/** Options of a snapshot. */
export interface SnapshotOptions {
  /** Unique in the workspace, and usable instead of the ID. */
  name?: string;
  /** Required if the sandbox has volumes. */
  volumes?: OnVolumes;
  /** If false, only the disk is saved. */
  keepMemory?: boolean;
  /** Whether to wait until the store of the server's fleet has it. */
  durable?: boolean;
}

/** Options of copies of a sandbox. */
export interface ForkOptions {
  /** The number or name of a checkpoint. The copies start there, and the sandbox itself does not change. */
  at?: number | string;
  metadata?: Record<string, string>;
  /** Required if the sandbox has volumes. */
  volumes?: OnVolumes;
  /** Whether they get its secrets. They always have its network policy. */
  inheritSecrets?: boolean;
}

/** A volume and its mount point. */
export interface VolumeMount {
  name: string;
  mount?: string;
  readOnly?: boolean;
}

/** Options of a new sandbox. Missing ones come from the template and the server. */
export interface CreateOptions {
  template?: string;
  /** An OCI image instead of a template, such as `python:3.12-slim`. The first create from it pulls the image. */
  image?: string;
  /** A name that is unique in the workspace. */
  name?: string;
  cpu?: number;
  memoryMb?: number;
  diskMb?: number;
  /** The maximum number of processes and threads. */
  pids?: number;
  /** Your own labels. `Sandbox.list` can filter by them. */
  metadata?: Record<string, string>;
  labels?: Record<string, string>;
  /** Environment variables for every command in it. */
  env?: Record<string, string>;
  /** The TTL: how long it lives, even if this process dies. */
  ttlSeconds?: number;
  /** The idle timeout. */
  idleSeconds?: number;
  /** It has no TTL, and `close` does not end it. */
  persistent?: boolean;
  /** The ID or the name of a snapshot. */
  fromSnapshot?: string;
  /** `every-exec` makes a checkpoint before each command, cell and change of files; see `rewind`. */
  checkpoints?: "every-exec" | "never";
  /** How many checkpoints without a name to keep; 20 by default. */
  checkpointsKept?: number;
  /** If its node of the fleet is lost, it wakes on another one, where its last point was made. */
  failover?: "snapshot";
  /** What it may reach, such as `{ allow: ["pypi"], secrets: ["API_KEY"] }`. By default the template's or the
   * workspace's default applies, otherwise it reaches nothing. */
  network?: NetworkOptions;
  volumes?: VolumeMount[];
  /** Code to run at once, in the same request. `firstRun` returns its result. */
  run?: string | FirstCode;
  /** Abort it to stop waiting for capacity. */
  signal?: AbortSignal;
}

/** Code that runs when its sandbox is created. */
export interface FirstCode {
  code: string;
  /** `python` (the default) or `node`. */
  language?: string;
  timeoutSeconds?: number;
  /** The output limit in bytes. */
  outputLimit?: number;
  env?: Record<string, string>;
}

/** Options of a command. */
export interface ExecOptions {
  timeoutSeconds?: number;
  cwd?: string;
  env?: Record<string, string>;
  /** A name or a number; root by default. */
  user?: string;
  /** The standard input. */
  stdin?: string;
  /** A command with the same ID never starts twice. */
  id?: string;
  /** The output limit in bytes. */
  outputLimit?: number;
  /** Seconds of CPU time that the sandbox may use while the command runs. */
  cpuSeconds?: number;
  /** How much more of its disk the sandbox may use while the command runs. */
  diskLimitMb?: number;
  /** At the limit: `kill` the command, or `keep_tail`, which drops the oldest output. */
  onLimit?: "kill" | "keep_tail";
}

/** Options of `runCode`. `cwd`, `user`, `stdin`, `id`, `onLimit`, `cpuSeconds` and `diskLimitMb` need `fresh`. */
export interface RunCodeOptions extends ExecOptions, Listeners {
  /** `python` (the default), `node` or `bash`. */
  language?: string;
  /** Run the code as a script in a new process, without the variables of earlier calls. */
  fresh?: boolean;
}

/** Is called with output while the command runs. */
export interface Listeners {
  onStdout?: (text: string) => unknown;
  onStderr?: (text: string) => unknown;
}

export function createBody(options: CreateOptions): Wire {
  const { signal: _, volumes, template, network, run, ...rest } = options;
  if (template !== undefined && rest.image !== undefined) {
    throw new TypeError(`a sandbox comes from a template or an image, not from both: ${template}, ${rest.image}`);
  }
  const source = rest.image === undefined ? { template: template ?? DEFAULT_TEMPLATE } : {};
  const body = toWire({ ...source, ...rest });
  if (volumes) body["volumes"] = volumes.map((volume) => toWire({ readOnly: false, ...volume }));
  if (network) body["network"] = networkBody(network);
  if (run !== undefined) body["run"] = toWire(typeof run === "string" ? { code: run } : run);
  return body;
}

/** A string runs in the shell. A list is a program and its arguments, without a shell. */
export function execBody(command: string | readonly string[], options: ExecOptions): Wire {
  const program = typeof command === "string" ? { cmd: command } : { args: command };
  return { ...program, ...runOptions(options) };
}

export function codeBody(code: string, language: string, options: ExecOptions): Wire {
  return { code, language, ...runOptions(options) };
}

/** Options that only a process of its own can have. */
const OF_A_SCRIPT = ["cwd", "user", "stdin", "id", "onLimit", "cpuSeconds", "diskLimitMb"] as const;
const SHELLS = ["bash", "shell", "sh"];

/** Whether code runs in a process of its own. A shell has no live interpreter. */
export function isScript(language: string, fresh = false): boolean {
  return fresh || SHELLS.includes(language);
}

/** Code for the default interpreter, which keeps its variables. */
export function liveCodeBody(code: string, language: string, options: ExecOptions): Wire {
  const wrong = OF_A_SCRIPT.find((name) => options[name] !== undefined);
  if (wrong) {
    const why = "because code that keeps its variables runs in an interpreter that is already there";
    throw new TypeError(`runCode takes ${wrong} only with { fresh: true }, ${why}`);
  }
  return codeBody(code, language, options);
}

function runOptions(options: ExecOptions): Wire {
  const { timeoutSeconds, cwd, env, user, stdin, id, outputLimit, onLimit, cpuSeconds, diskLimitMb } = options;
  return toWire({ timeoutSeconds, cwd, env, user, stdin, id, outputLimit, onLimit, cpuSeconds, diskLimitMb });
}
