/** The server's answers as plain data. */

/** How a command ended, and its output. */
export interface ExecResult {
  id: string;
  stdout: string;
  stderr: string;
  /** As in a shell: the exit code, or 128 + the number of the signal. */
  exitCode: number;
  signal: number | null;
  reason: "exited" | "signalled" | "timeout" | "out_of_memory" | "output_limit" | "cpu_limit" | "disk_limit";
  durationMs: number;
  /** Bytes of output that are missing in `stdout` and `stderr`. */
  droppedBytes: number;
  ok: boolean;
}

/** A piece of a command's output. */
export interface Chunk {
  stream: "stdout" | "stderr";
  text: string;
}

/** One rich output of a cell, in one or more MIME types. Binary ones are in base64. */
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
  /** The parsed JSON value, or `undefined`. */
  get json(): unknown {
    const text = this.data["application/json"];
    return text === undefined ? undefined : JSON.parse(text);
  }
}

/** The output, results and error of one cell. An exception in the cell is data and is not raised here. */
export interface Execution {
  results: Result[];
  stdout: string;
  stderr: string;
  /** The formatted traceback, or why the interpreter ended. */
  error: string | null;
  /** 0 if the cell succeeded, otherwise 1. For a script, its exit code. */
  exitCode: number;
  status: "ok" | "error" | "interrupted" | "out_of_memory" | "output_limit" | "cpu_limit" | "disk_limit" | "died";
  durationMs: number;
  executionCount: number;
  /** Whether the interpreter ended. The context then has a new one, without variables. */
  restarted: boolean;
  droppedBytes: number;
  ok: boolean;
  /** The text of the first result that has one. */
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
  /** `f` for a file, `d` for a directory, `l` for a link, `o` for anything else. */
  mode: string;
  /** Permission bits in octal, such as `0644`. */
  permissions: string;
  uid: number;
  gid: number;
  /** Seconds since 1970. */
  mtime: number;
  /** The target of a link. */
  target: string | null;
}

/** A change under a watched path. */
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

/** What a sandbox uses, measured on the host, and metrics that its guest reports. */
export interface Metrics {
  cpuMs: number;
  /** Its own memory, plus its share of memory that it shares with others (Pss). */
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

/** Access to a port of a sandbox. Anybody with the URL can use the port until it expires. */
export interface Preview {
  /** A separate host name, so that absolute paths in a page work. */
  url: string;
  /** The same under a path of the server, for clients that cannot resolve `*.localhost`. */
  pathUrl: string;
  token: string;
  id: string;
  port: number;
  expiresAt: string;
}

/** A command in a sandbox, running or ended. */
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

/** How long a sandbox may live. 0 means no limit. */
export interface Lifecycle {
  ttlSeconds: number;
  idleSeconds: number;
  persistent: boolean;
  expiresAt: string | null;
  idleForSeconds: number;
}

/** Which sibling won, and what happened to the others. */
export interface Promotion {
  winner: string;
  treeId: string;
  deleted: string[];
  failures: Record<string, string>;
}

/** A saved moment that a sandbox can go back to. */
export interface Checkpoint {
  number: number;
  /** A checkpoint with a name is kept until the name is removed. */
  name: string | null;
  at: string;
  /** Why it was made: before an `exec`, `cell`, `files` or `rewind`, or on `request`. */
  cause: string;
  /** What was about to run or change, shortened. */
  text: string;
  /** The checkpoint before it. */
  after: number | null;
  sizeBytes: number;
}

/** A sandbox's checkpoints. */
export interface Timeline {
  /** Oldest first. */
  checkpoints: Checkpoint[];
  /** The checkpoint that the sandbox came from. */
  current: number | null;
}

/** A file at one of two moments. */
export interface FileState {
  kind: "file" | "directory" | "symlink" | "other";
  size: number;
  /** Permission bits in octal, such as `0644`. */
  mode: string;
  uid: number;
  gid: number;
  /** The target of a link. */
  target: string | null;
}

/** A file that differs between two moments. */
export interface FileDiff {
  path: string;
  change: "added" | "changed" | "removed";
  before: FileState | null;
  after: FileState | null;
  /** The text diff, as in a patch. */
  patch: string | null;
  /** Why there is no text diff: `binary`, `too_large`, `special` or `unreadable`. */
  noPatch: string | null;
}

/** What changed between two moments. */
export interface Diff {
  added: number;
  changed: number;
  removed: number;
  /** Sorted by path. Paths are relative to the compared directory. */
  files: FileDiff[];
}

/** A saved machine. */
export interface SnapshotInfo {
  id: string;
  sandboxId?: string;
  template?: string;
  sizeBytes?: number;
  createdAt?: string;
  /** `durable` if the store of the server's fleet has it, so that it survives the loss of its node. */
  durability?: "local" | "durable";
}

/** A named disk that outlives sandboxes. */
export interface VolumeInfo {
  name: string;
  sizeMb: number;
  createdAt?: string;
}

/** An API token. `token` is the secret; only the answer to `create` has it. */
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

/** The build of a template. */
export interface TemplateBuild {
  id: string;
  name: string;
  /** `done` and `failed` are final. */
  status: string;
  error: string | null;
  startedAt: string;
  endedAt: string | null;
  bytes: number | null;
  /** In a list of a fleet: the node that has it. */
  node?: string;
}

/** A template: a root file system and a pre-warmed snapshot of it. */
export interface TemplateInfo {
  name: string;
  label: string;
  description: string;
  category: string;
  cpu: number;
  memoryMb: number;
  diskMb: number;
  sizeBytes: number;
  /** Whether every workspace has it. */
  isGlobal: boolean;
  workspace: string | null;
  /** Its packages. */
  tools: string[];
  /**
   * What is installed in a built-in template, with versions: Debian's packages by name, others as `npm:NAME` and
   * `pip:NAME`. Absent in lists.
   */
  versions?: Record<string, string>;
  /** Whether it can be used now; otherwise build it first. */
  ready: boolean;
  meta: Record<string, unknown>;
}

/** The data of a sandbox. */
export interface SandboxInfo {
  id: string;
  /** Unique in its workspace; `Sandbox.get` takes it, too. */
  name?: string;
  template: string;
  cpu: number;
  memoryMb: number;
  diskMb: number;
  /** `creating`, `running`, `paused`, `hibernated`, `failed` or `deleted`. */
  status: string;
  createdAt: string;
  metadata: Record<string, string>;
  labels: Record<string, string>;
  /** Where commands and relative paths start. With `null`, commands start at home and paths must be absolute. */
  workdir: string | null;
  bootMs: number;
  /** How it was started, such as `standby`, `snapshot` or `fork`. */
  bootMode: string;
  persistent: boolean;
  ttlSeconds: number | null;
  idleSeconds: number | null;
  expiresAt: string | null;
  workspace: string;
  /** What happens if its node of the fleet is lost, and the moment that it would go back to. Without it, it is lost, too. */
  failover?: { mode: "snapshot"; point_at?: string; problem?: string; last?: { from: string; point_at: string } };
  /** The accelerator, and the layers of the jail that are in force. */
  boundary: Record<string, unknown>;
}
