/** Settings and results of a pool's runs. */

import type { Wire } from "./naming.js";
import { toWire } from "./naming.js";

/** The defaults of a config. */
export const DEFAULTS = { language: "python", timeoutSeconds: 30 };

/** How a pool runs code. */
export interface ExecutionConfig {
  /** `python` by default. */
  language?: string;
  /** 30 by default. */
  timeoutSeconds?: number;
  /** Memory of each machine; by default the template's. */
  memoryMb?: number;
  /** The output limit in bytes. */
  outputLimit?: number;
  /** Seconds of CPU time. */
  cpuSeconds?: number;
  /** How much the code may write to the disk. */
  diskLimitMb?: number;
  env?: Record<string, string>;
  /** A name or a number; root by default. */
  user?: string;
  /**
   * Top-level modules that may be imported. This is advice: other imports are reported and not prevented, because no
   * list of names could prevent them. The virtual machine is the boundary.
   */
  allowedImports?: readonly string[];
}

/** The result of one run of a pool. */
export interface RunReport {
  stdout: string;
  stderr: string;
  /** `undefined` if it reached its timeout. */
  exitCode: number | null;
  /** `exited`, `signalled`, `timeout`, `out_of_memory`, `output_limit`, `cpu_limit` or `disk_limit`. */
  reason: string;
  durationMs: number;
  sandboxId: string;
  advice: string[];
  ok: boolean;
  timedOut: boolean;
}

/** The state of a pool. */
export interface PoolStatus {
  /** How many machines should be ready. */
  size: number;
  ready: number;
  /** How many are being created. */
  warming: number;
  /** How many are in use. */
  busy: number;
  /** How many were handed out since the start. */
  served: number;
  /** Why the last create failed; `undefined` after a success. */
  lastError: string | null;
}

/** All settings, for a record. Only the names of the environment, because the values may be secrets. */
export function configRecord(config: ExecutionConfig): Wire {
  const { language = DEFAULTS.language, timeoutSeconds = DEFAULTS.timeoutSeconds, env = {}, allowedImports } = config;
  const welcome = allowedImports ? [...allowedImports].sort() : null;
  const others = { memoryMb: null, outputLimit: null, cpuSeconds: null, diskLimitMb: null, user: null, ...config };
  return toWire({ ...others, language, timeoutSeconds, env: Object.keys(env).sort(), allowedImports: welcome });
}

/** Remarks about the code, made before it runs. */
export function advice(code: string, config: ExecutionConfig): string[] {
  const { allowedImports, language = DEFAULTS.language } = config;
  if (!allowedImports || !["python", "py", "python3"].includes(language)) return [];
  const unwelcome = [...importedModules(code)].filter((name) => !allowedImports.includes(name)).sort();
  return unwelcome.map((name) => `imports ${name}, which is not among the allowed modules`);
}

const IMPORT = /^[ \t]*(?:from[ \t]+(\w[\w.]*)[ \t]+import\b|import[ \t]+([\w., \t]+))/gm;

/** The top-level modules that Python code imports. */
function importedModules(code: string): Set<string> {
  const named = [...code.matchAll(IMPORT)].flatMap(([, from, list]) => (from ? [from] : (list ?? "").split(",")));
  return new Set(named.map((name) => name.trim().split(/[.\s]/)[0] ?? "").filter((name) => name));
}
