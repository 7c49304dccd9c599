/** The files of a sandbox. Paths are absolute; contents are bytes and never changed on the way. */

import { randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { NotFoundError, ServerError } from "./errors.js";
import type { FileChange, FileInfo } from "./models.js";
import { fromWire, toWire } from "./naming.js";
import type { SandboxRequests } from "./requests.js";
import type { Content } from "./transport.js";

export interface WriteOptions {
  append?: boolean;
  /** Permission bits in octal, such as `0755`. */
  mode?: string;
  /** The owner of a new file. */
  user?: string;
}

export interface Written {
  path: string;
  bytes: number;
}

/** The files of a sandbox. */
export class Filesystem {
  readonly #requests: SandboxRequests;

  constructor(requests: SandboxRequests) {
    this.#requests = requests;
  }

  /** A file's bytes: all of them, or `length` from `offset` on. */
  async read(path: string, range: { offset?: number; length?: number } = {}): Promise<Buffer> {
    const { offset = 0, length } = range;
    if (length === 0) {
      await this.stat(path);
      return Buffer.alloc(0);
    }
    const headers: Record<string, string> = {};
    if (offset > 0 || length !== undefined) {
      headers["range"] = `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`;
    }
    return this.#requests.fetch("GET", "/fs", { query: { path }, headers, timeoutMs: null });
  }

  async readText(path: string): Promise<string> {
    return (await this.read(path)).toString("utf8");
  }

  /** A file's bytes, piece by piece, for those that do not fit into memory. */
  stream(path: string): AsyncGenerator<Buffer, void, undefined> {
    return this.#requests.stream("GET", "/fs", { query: { path } });
  }

  /**
   * Writes a file; directories above it are made. Without `append`, a reader sees the old file or the new one, and
   * nothing between.
   */
  async write(path: string, content: string | Content, options: WriteOptions = {}): Promise<Written> {
    const { append, mode, user } = options;
    // Nothing at all would be taken for an empty file.
    if (!isContent(content)) throw new TypeError("a file's content is a string, a Uint8Array or an async iterable");
    // A stream that fails before it is read says so when it is.
    if (content instanceof Readable) content.on("error", () => {});
    const answer = await this.#requests.request("PUT", "/fs", {
      content: typeof content === "string" ? Buffer.from(content) : content,
      query: { path, write: append ? "append" : undefined, mode, user },
      headers: { "content-type": "application/octet-stream" },
      timeoutMs: null,
    });
    return answer as Written;
  }

  append(path: string, content: string | Content): Promise<Written> {
    return this.write(path, content, { append: true });
  }

  /** Copies a file of this machine into the sandbox, of any size. */
  upload(localPath: string, remotePath: string, options: WriteOptions = {}): Promise<Written> {
    return this.write(remotePath, blocksOf(localPath), options);
  }

  /** Copies a file of the sandbox to this machine, of any size. A file that was there is replaced at the end. */
  async download(remotePath: string, localPath: string): Promise<void> {
    const unfinished = `${localPath}.${randomUUID()}.part`;
    try {
      await pipeline(Readable.from(this.stream(remotePath)), createWriteStream(unfinished));
      await rename(unfinished, localPath);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw error;
    }
  }

  /** What is in a directory; with a `depth`, also that many levels down. */
  async list(path = "/", options: { depth?: number } = {}): Promise<FileInfo[]> {
    const data = await this.#requests.request("GET", "/fs/dir", { query: { path, depth: options.depth } });
    return (data as { entries: unknown[] }).entries.map((entry) => fromWire<FileInfo>(entry));
  }

  /** What is at a path; `NotFoundError` if nothing is. */
  async stat(path: string): Promise<FileInfo> {
    return fromWire(await this.#requests.request("GET", "/fs/stat", { query: { path } }));
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      // A sandbox that is gone is not a file that is missing.
      const gone = error instanceof NotFoundError && error.code !== "sandbox_ended";
      if (gone && error.message !== "sandbox not found") return false;
      throw error;
    }
  }

  /** Every directory from `path` down, with what is in it. Links are files. */
  async *walk(path = "/"): AsyncGenerator<{ path: string; directories: FileInfo[]; files: FileInfo[] }> {
    const entries = await this.list(path);
    const directories = entries.filter((entry) => entry.isDir);
    yield { path, directories, files: entries.filter((entry) => !entry.isDir) };
    for (const directory of directories) yield* this.walk(directory.path);
  }

  /** Makes a directory. With `parents` (the default) also what is missing above it, and it may be there already. */
  async mkdir(path: string, options: { parents?: boolean; mode?: string } = {}): Promise<void> {
    await this.#requests.request("POST", "/fs/mkdir", { body: toWire({ path, parents: true, ...options }) });
  }

  /** Removes a file, or a directory and all that is in it. */
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const recursive = options.recursive === false ? "false" : "true";
    await this.#requests.request("DELETE", "/fs", { query: { path, recursive } });
  }

  async move(source: string, target: string): Promise<void> {
    await this.#requests.request("POST", "/fs/move", { body: { from: source, to: target } });
  }

  /** Sets permission bits, in octal. */
  async chmod(path: string, mode: string): Promise<void> {
    await this.#requests.request("POST", "/fs/chmod", { body: { path, mode } });
  }

  /** Changes under a path, as they happen. */
  async *watch(path: string, options: { recursive?: boolean } = {}): AsyncGenerator<FileChange, void, undefined> {
    const query = { path, recursive: options.recursive ? "true" : "false" };
    for await (const event of this.#requests.events("GET", "/fs/watch", { query })) {
      const data = JSON.parse(event.data) as FileChange & { error: string; code?: string };
      if (event.name === "error") throw new ServerError(data.error, { code: data.code });
      yield { path: data.path, kind: data.kind };
    }
  }
}

function isContent(content: unknown): content is string | Content {
  if (typeof content === "string" || content instanceof Uint8Array) return true;
  return typeof content === "object" && content !== null && Symbol.asyncIterator in content;
}

/** The file is opened when the first block is wanted. */
async function* blocksOf(localPath: string): AsyncGenerator<Uint8Array> {
  yield* createReadStream(localPath) as AsyncIterable<Uint8Array>;
}
