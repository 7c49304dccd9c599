/** What the server tells: plain data. */

/** How a command ended, and all that it printed. */
export interface ExecResult {
  id: string;
  stdout: string;
  stderr: string;
  /** As a shell would say it: the exit code, or 128 + the signal's number. */
  exitCode: number;
  signal: number | null;
  reason: "exited" | "signalled" | "timeout" | "out_of_memory" | "output_limit";
  durationMs: number;
  /** Bytes that were printed and are not in `stdout` or `stderr`. */
  droppedBytes: number;
  ok: boolean;
}

/** A piece of a command's output. */
export interface Chunk {
  stream: "stdout" | "stderr";
  text: string;
}

/** One rich output of a cell: the same thing in one or more MIME types, binary ones in base64. */
export class Result {
  constructor(readonly data: Record<string, string>) {}

  get text(): string | undefined {
    return this.data["text/plain"];
  }
  get png(): string | undefined {
    return this.data["image/png"];
  }
  get jpeg(): string | undefined {
    return this.data["image/jpeg"];
  }
  get svg(): string | undefined {
    return this.data["image/svg+xml"];
  }
  get html(): string | undefined {
    return this.data["text/html"];
  }
  get markdown(): string | undefined {
    return this.data["text/markdown"];
  }
  /** The parsed JSON value, if there is one. */
  get json(): unknown {
    const text = this.data["application/json"];
    return text === undefined ? undefined : JSON.parse(text);
  }
}

/** What one cell of a context printed, showed and raised. What it raised is data, not an exception here. */
export interface Execution {
  results: Result[];
  stdout: string;
  stderr: string;
  /** The formatted traceback, or why the interpreter was ended. */
  error: string | null;
  /** 0 if the cell ran through, 1 if not. */
  exitCode: number;
  status: "ok" | "error" | "interrupted" | "out_of_memory" | "output_limit" | "died";
  durationMs: number;
  executionCount: number;
  /** The interpreter did not survive; the context has a new one, without variables. */
  restarted: boolean;
  droppedBytes: number;
  ok: boolean;
  /** The first result that has a text. */
  text: string | undefined;
  /** The first PNG, in base64. */
  png: string | undefined;
}

/** A file, directory or link in a sandbox. */
export interface FileInfo {
  name: string;
  path: string;
  isDir: boolean;
  size: number;
  /** What it is, in one letter: `f`ile, `d`irectory, `l`ink or `o`ther. */
  mode: string;
  /** Permission bits in octal, such as `0644`. */
  permissions: string;
  uid: number;
  gid: number;
  /** Seconds since 1970. */
  mtime: number;
  /** Where a link points. */
  target: string | null;
}

/** A change that was seen under a watched path. */
export interface FileChange {
  path: string;
  kind: "created" | "modified" | "removed" | "renamed" | "attributes" | "overflow";
}

/** Something that happened to a sandbox. */
export interface Event {
  number: number;
  time: string;
  sandboxId: string;
  type: string;
  payload: Record<string, unknown>;
}

/** What a sandbox uses, as the host sees it, and what its guest says about itself. */
export interface Metrics {
  cpuMs: number;
  /** Its own memory, and its share of what it has in common with others (Pss). */
  memoryBytes: number;
  hostRssBytes: number;
  diskBytes: number;
  networkReceivedBytes: number;
  networkSentBytes: number;
  uptimeSeconds: number;
  hostCpuPercent: number;
  guest: GuestMetrics | null;
}

export interface GuestMetrics {
  memoryTotalBytes: number;
  memoryAvailableBytes: number;
  diskTotalBytes: number;
  diskAvailableBytes: number;
  processes: number;
  cpuMs: number;
  uptimeMs: number;
}

/** A way to a port of a sandbox. Whoever has the URL has the port, until it expires. */
export interface Preview {
  /** A host of its own, so that a page works as it does at home. */
  url: string;
  /** The same under a path of the server's own address, for clients that cannot resolve `*.localhost`. */
  pathUrl: string;
  token: string;
  id: string;
  port: number;
  expiresAt: string;
}

/** A command of a sandbox, running or ended. */
export interface ExecInfo {
  id: string;
  pid: number;
  command: string;
  startedAt: string;
  outputBytes: number;
  status: "running" | "exited";
  exitCode?: number;
  reason?: string;
}

/** How long a sandbox may live. 0 stands for "without limit". */
export interface Lifecycle {
  ttlSeconds: number;
  idleSeconds: number;
  persistent: boolean;
  expiresAt: string | null;
  idleForSeconds: number;
}

/** Which sibling won, and what became of the others. */
export interface Promotion {
  winner: string;
  treeId: string;
  deleted: string[];
  failures: Record<string, string>;
}

/** Where a sandbox was at one moment, and can go back to. */
export interface Checkpoint {
  number: number;
  /** One with a name is kept until the name is taken away. */
  name: string | null;
  at: string;
  /** What was about to happen: `exec`, `cell`, `files`, `rewind` or `request`. */
  cause: string;
  /** What was about to be run or changed, cut off. */
  text: string;
  /** The checkpoint that the sandbox had come from. */
  after: number | null;
  sizeBytes: number;
}

/** A sandbox's checkpoints. */
export interface Timeline {
  /** Oldest first. */
  checkpoints: Checkpoint[];
  /** The checkpoint that the sandbox has come from. */
  current: number | null;
}

/** What a file is at one of two moments. */
export interface FileState {
  kind: "file" | "directory" | "symlink" | "other";
  size: number;
  /** Permission bits in octal, such as `0644`. */
  mode: string;
  uid: number;
  gid: number;
  /** Where a link points. */
  target: string | null;
}

/** A file that is not the same at two moments. */
export interface FileDiff {
  path: string;
  change: "added" | "changed" | "removed";
  before: FileState | null;
  after: FileState | null;
  /** The text diff, as it stands in a patch. */
  patch: string | null;
  /** Why there is none: `binary`, `too_large`, `special` or `unreadable`. */
  noPatch: string | null;
}

/** What changed between two moments. */
export interface Diff {
  added: number;
  changed: number;
  removed: number;
  /** In the order of their paths, which are relative to the directory that was compared. */
  files: FileDiff[];
}

/** A saved machine. */
export interface SnapshotInfo {
  id: string;
  sandboxId?: string;
  template?: string;
  sizeBytes?: number;
  createdAt?: string;
}

/** A named disk that outlives sandboxes. */
export interface VolumeInfo {
  name: string;
  sizeMb: number;
  createdAt?: string;
}

/** An API token. `token` is the secret; it is there only in the answer that made it. */
export interface Token {
  prefix: string;
  name: string;
  scope: string;
  workspace: string;
  createdAt: string;
  expiresAt: string | null;
  lastUsedAt: string | null;
  token?: string;
}

/** A template being built. */
export interface TemplateBuild {
  id: string;
  name: string;
  /** `done` and `failed` are final. */
  status: string;
  error: string | null;
  startedAt: string;
  endedAt: string | null;
  bytes: number | null;
}

/** A template: a root file system with a warm snapshot of it. */
export interface TemplateInfo {
  name: string;
  label: string;
  description: string;
  category: string;
  cpu: number;
  memoryMb: number;
  diskMb: number;
  sizeBytes: number;
  /** Every workspace has it. */
  isGlobal: boolean;
  workspace: string | null;
  /** The packages it is made of. */
  tools: string[];
  /** It can be used now; otherwise it must be built first. */
  ready: boolean;
  meta: Record<string, unknown>;
}

/** What is known about a sandbox. */
export interface SandboxInfo {
  id: string;
  template: string;
  cpu: number;
  memoryMb: number;
  diskMb: number;
  /** `creating`, `running`, `paused`, `hibernated`, `failed` or `deleted`. */
  status: string;
  createdAt: string;
  metadata: Record<string, string>;
  labels: Record<string, string>;
  bootMs: number;
  /** How it came to be, such as `standby`, `snapshot` or `fork`. */
  bootMode: string;
  persistent: boolean;
  ttlSeconds: number | null;
  idleSeconds: number | null;
  expiresAt: string | null;
  workspace: string;
  /** Which accelerator runs it, and which layers of the jail are in force. */
  boundary: Record<string, unknown>;
}
