/** Directories as tar archives, for copies of whole directories. */

import { createReadStream } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, readlink, rename, rm, symlink } from "node:fs/promises";
import { join } from "node:path";

import { DockerIgnore } from "./dockerignore.js";

const BLOCK = 512;
/** Permission bits that are accepted from a sandbox: no write access for others, no setuid. */
const ALLOWED_MODE = 0o755;

/** Everything below a directory as an archive, except what `ignore` names. Sockets, devices and pipes are left out. */
export async function* pack(directory: string, ignore = new DockerIgnore()): AsyncGenerator<Buffer, void, undefined> {
  yield* entries(directory, ".", ignore);
  yield Buffer.alloc(2 * BLOCK);
}

async function* entries(path: string, name: string, ignore: DockerIgnore): AsyncGenerator<Buffer, void, undefined> {
  const about = await lstat(path);
  const mode = about.mode & 0o7777;
  const isIgnored = name !== "." && ignore.ignores(name.slice(2));
  if (isIgnored && !(about.isDirectory() && ignore.hasExceptions)) return;
  if (about.isDirectory()) {
    if (!isIgnored) yield* header({ name: `${name}/`, mode, size: 0, type: "5" });
    for (const child of (await readdir(path)).sort()) yield* entries(join(path, child), `${name}/${child}`, ignore);
  } else if (about.isSymbolicLink()) {
    yield* header({ name, mode, size: 0, type: "2", target: await readlink(path) });
  } else if (about.isFile()) {
    yield* header({ name, mode, size: about.size, type: "0" });
    yield* content(path, about.size);
  }
}

/** Exactly `size` bytes, even if the file changes meanwhile. */
async function* content(path: string, size: number): AsyncGenerator<Buffer, void, undefined> {
  let left = size;
  if (size > 0) {
    for await (const block of createReadStream(path, { highWaterMark: 1 << 18, end: size - 1 })) {
      left -= (block as Buffer).length;
      yield block as Buffer;
    }
  }
  if (left > 0) throw new Error(`${path} became shorter while it was copied`);
  yield padding(size);
}

interface Header {
  name: string;
  mode: number;
  size: number;
  type: string;
  target?: string;
}

function* header({ name, mode, size, type, target = "" }: Header): Generator<Buffer, void, undefined> {
  // Names that do not fit are entries of their own, as GNU tar writes them.
  for (const [long, kind] of [
    [target, "K"],
    [name, "L"],
  ] as const) {
    if (Buffer.byteLength(long) <= 100) continue;
    const bytes = Buffer.from(`${long}\0`);
    yield block({ name: "././@LongLink", mode: 0, size: bytes.length, type: kind });
    yield Buffer.concat([bytes, padding(bytes.length)]);
  }
  yield block({ name, mode, size, type, target });
}

function block({ name, mode, size, type, target = "" }: Header): Buffer {
  const bytes = Buffer.alloc(BLOCK);
  Buffer.from(name).copy(bytes, 0, 0, 100);
  number(bytes, 100, 8, mode);
  number(bytes, 108, 8, 0);
  number(bytes, 116, 8, 0);
  number(bytes, 124, 12, size);
  number(bytes, 136, 12, Math.floor(Date.now() / 1000));
  bytes.write("        ", 148);
  bytes.write(type, 156);
  Buffer.from(target).copy(bytes, 157, 0, 100);
  bytes.write("ustar  \0", 257, "latin1");
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}

function number(bytes: Buffer, at: number, length: number, value: number): void {
  const digits = value.toString(8);
  if (digits.length < length) bytes.write(`${digits.padStart(length - 1, "0")}\0`, at, "latin1");
  else {
    // Larger numbers are binary.
    bytes.writeBigUInt64BE(BigInt(value), at + length - 8);
    bytes[at] = 0x80;
  }
}

function padding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** Writes an archive of a sandbox to a directory. Its names are untrusted: nothing is written outside. */
export async function unpack(archive: AsyncIterable<Uint8Array>, directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  const reader = new Reader(archive);
  const links: [string[], string][] = [];
  let [longName, longTarget] = ["", ""];
  for (;;) {
    const head = await reader.take(BLOCK);
    if (!head || head.every((byte) => byte === 0)) break;
    const size = sizeOf(head);
    const type = String.fromCharCode(head[156] ?? 0);
    if (type === "L" || type === "K") {
      const text = (await reader.padded(size)).toString("utf8").replace(/\0.*$/s, "");
      if (type === "L") longName = text;
      else longTarget = text;
      continue;
    }
    const parts = partsOf(longName || text(head, 0, 100));
    const target = longTarget || text(head, 157, 100);
    [longName, longTarget] = ["", ""];
    if (type === "5") await makeDirectories(directory, parts);
    else if (type === "0" || type === "\0" || type === "7") await write(directory, parts, reader, size, modeOf(head));
    else if (type === "1") await copy(directory, partsOf(target), parts, modeOf(head));
    else if (type === "2") links.push([parts, target]);
    else await reader.padded(size);
  }
  // Last, so that nothing is written through a link of the sandbox.
  for (const [parts, target] of links) {
    await makeDirectories(directory, parts.slice(0, -1));
    const path = join(directory, ...parts);
    await rm(path, { force: true });
    await symlink(target, path);
  }
}

/** Reads exact numbers of bytes from a stream. */
class Reader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Up to `most` bytes; nothing at the end. */
  async some(most: number): Promise<Buffer | undefined> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#source.next();
      if (done) return undefined;
      this.#rest = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    }
    const taken = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(taken.length);
    return taken;
  }

  async take(count: number): Promise<Buffer | undefined> {
    const pieces: Buffer[] = [];
    for (let left = count; left > 0;) {
      const piece = await this.some(left);
      if (!piece) {
        if (pieces.length === 0) return undefined;
        throw new Error("the archive ended too early");
      }
      pieces.push(piece);
      left -= piece.length;
    }
    return Buffer.concat(pieces);
  }

  /** The content of an entry that fits into memory. */
  async padded(size: number): Promise<Buffer> {
    const all = await this.take(size + padding(size).length);
    return (all ?? Buffer.alloc(0)).subarray(0, size);
  }
}

function text(head: Buffer, at: number, length: number): string {
  const bytes = head.subarray(at, at + length);
  const end = bytes.indexOf(0);
  return bytes.subarray(0, end < 0 ? length : end).toString("utf8");
}

function sizeOf(head: Buffer): number {
  if ((head[124] ?? 0) & 0x80) return Number(head.readBigUInt64BE(128));
  return Number.parseInt(text(head, 124, 12).trim() || "0", 8);
}

function modeOf(head: Buffer): number {
  return Number.parseInt(text(head, 100, 8).trim() || "0", 8);
}

function partsOf(name: string): string[] {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (name.startsWith("/") || parts.includes("..")) {
    throw new Error(`the sandbox sent a name that leads out of the directory: ${JSON.stringify(name)}`);
  }
  return parts;
}

async function makeDirectories(directory: string, parts: string[]): Promise<void> {
  let path = directory;
  for (const part of parts) {
    path = join(path, part);
    const there = await lstat(path).catch(() => undefined);
    if (there && !there.isDirectory()) throw new Error(`${path} is in the way: it is not a directory`);
    if (!there) await mkdir(path);
  }
}

async function write(directory: string, parts: string[], reader: Reader, size: number, mode: number): Promise<void> {
  await makeDirectories(directory, parts.slice(0, -1));
  const path = join(directory, ...parts);
  const unfinished = `${path}.${process.pid}.part`;
  try {
    const file = await open(unfinished, "w");
    try {
      for (let left = size; left > 0;) {
        const piece = await reader.some(left);
        if (!piece) throw new Error("the archive ended too early");
        await file.writeFile(piece);
        left -= piece.length;
      }
    } finally {
      await file.close();
    }
    await reader.take(padding(size).length);
    await chmod(unfinished, (mode & ALLOWED_MODE) | 0o600);
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}

/** A hard link to a file earlier in the archive becomes a copy. */
async function copy(directory: string, from: string[], to: string[], mode: number): Promise<void> {
  const path = join(directory, ...from);
  const there = await lstat(path).catch(() => undefined);
  if (!there?.isFile()) return;
  const stream = createReadStream(path) as AsyncIterable<Uint8Array>;
  const padded = async function* () {
    yield* stream;
    yield padding(there.size);
  };
  await write(directory, to, new Reader(padded()), there.size, mode);
}
