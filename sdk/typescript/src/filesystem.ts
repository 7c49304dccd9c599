/** The files of a sandbox. A relative path starts in the working directory. Contents are bytes and are never converted. */

import { randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { BadRequestError, NotFoundError, ServerError } from "./errors.js";
import type { FileChange, FileInfo } from "./models.js";
import { fromWire, toWire } from "./naming.js";
import type { SandboxRequests } from "./requests.js";
import { pack, unpack } from "./tar.js";
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

  /** The bytes of a file: all of them, or `length` bytes from `offset`. */
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

  /** The bytes of a file in pieces, for files that do not fit into memory. */
  stream(path: string): AsyncGenerator<Buffer, void, undefined> {
    return this.#requests.stream("GET", "/fs", { query: { path } });
  }

  /**
   * Writes a file and creates its parent directories. Without `append`, a write is atomic: a reader sees the old file
   * or the new one.
   */
  async write(path: string, content: string | Content, options: WriteOptions = {}): Promise<Written> {
    const { append, mode, user } = options;
    // `undefined` would become an empty file.
    if (!isContent(content)) throw new TypeError("a file's content is a string, a Uint8Array or an async iterable");
    // If a stream fails before it is read, reading it throws the error.
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

  /**
   * Copies a local file of any size, or the contents of a directory, into the sandbox. A directory is copied with its
   * links and permissions; files that are already there stay or are replaced.
   */
  async upload(localPath: string, remotePath: string, options: WriteOptions = {}): Promise<Written> {
    if ((await stat(localPath)).isDirectory()) {
      const headers = { "content-type": "application/x-tar" };
      const how = { content: pack(localPath), query: { path: remotePath }, headers, timeoutMs: null };
      return (await this.#requests.request("PUT", "/fs/tar", how)) as Written;
    }
    return this.write(remotePath, blocksOf(localPath), options);
  }

  /**
   * Copies a file of any size, or the contents of a directory, out of the sandbox. An existing local file is replaced
   * when the copy is complete.
   */
  async download(remotePath: string, localPath: string): Promise<void> {
    try {
      await this.#downloadFile(remotePath, localPath);
    } catch (error) {
      if (!(error instanceof BadRequestError) || error.code !== "is_a_directory") throw error;
      await unpack(this.#requests.stream("GET", "/fs/tar", { query: { path: remotePath } }), localPath);
    }
  }

  async #downloadFile(remotePath: string, localPath: string): Promise<void> {
    const unfinished = `${localPath}.${randomUUID()}.part`;
    try {
      await pipeline(Readable.from(this.stream(remotePath)), createWriteStream(unfinished));
      await rename(unfinished, localPath);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw error;
    }
  }

  /** The entries of a directory; with `depth`, also that many levels below. */
  async list(path = "/", options: { depth?: number } = {}): Promise<FileInfo[]> {
    const data = await this.#requests.request("GET", "/fs/dir", { query: { path, depth: options.depth } });
    return (data as { entries: unknown[] }).entries.map((entry) => fromWire<FileInfo>(entry));
  }

  /** The entry at a path; throws `NotFoundError` if it does not exist. */
  async stat(path: string): Promise<FileInfo> {
    return fromWire(await this.#requests.request("GET", "/fs/stat", { query: { path } }));
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      // A missing sandbox must not look like a missing file.
      const gone = error instanceof NotFoundError && error.code !== "sandbox_ended";
      if (gone && error.message !== "sandbox not found") return false;
      throw error;
    }
  }

  /** Every directory from `path` down, with its entries. Links are files. */
  async *walk(path = "/"): AsyncGenerator<{ path: string; directories: FileInfo[]; files: FileInfo[] }> {
    const entries = await this.list(path);
    const directories = entries.filter((entry) => entry.isDir);
    yield { path, directories, files: entries.filter((entry) => !entry.isDir) };
    for (const directory of directories) yield* this.walk(directory.path);
  }

  /** Creates a directory. With `parents` (the default) it creates missing parents, and the directory may exist. */
  async mkdir(path: string, options: { parents?: boolean; mode?: string } = {}): Promise<void> {
    await this.#requests.request("POST", "/fs/mkdir", { body: toWire({ path, parents: true, ...options }) });
  }

  /** Removes a file, or a directory with everything in it. */
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const recursive = options.recursive === false ? "false" : "true";
    await this.#requests.request("DELETE", "/fs", { query: { path, recursive } });
  }

  async move(source: string, target: string): Promise<void> {
    await this.#requests.request("POST", "/fs/move", { body: { from: source, to: target } });
  }

  /** Sets the permission bits, in octal. */
  async chmod(path: string, mode: string): Promise<void> {
    await this.#requests.request("POST", "/fs/chmod", { body: { path, mode } });
  }

  /** The changes under a path, as they happen. */
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

/** Opens the file when the first block is read. */
async function* blocksOf(localPath: string): AsyncGenerator<Uint8Array> {
  yield* createReadStream(localPath) as AsyncIterable<Uint8Array>;
}
