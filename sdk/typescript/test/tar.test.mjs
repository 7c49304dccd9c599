/** Archives of directories: what goes in comes out, and nothing is written outside. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { DockerIgnore } from "../dist/dockerignore.js";
import { pack, unpack } from "../dist/tar.js";

function scratch(work) {
  return async () => {
    const directory = mkdtempSync(join(tmpdir(), "tar-"));
    try {
      await work(directory);
    } finally {
      rmSync(directory, { recursive: true });
    }
  };
}

async function bytesOf(source) {
  const pieces = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function* inPieces(bytes, size) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

function tree(directory) {
  const long = "long".repeat(30);
  mkdirSync(join(directory, "deep", long), { recursive: true });
  writeFileSync(join(directory, "deep", long, "file"), Buffer.alloc(2000, 7));
  writeFileSync(join(directory, "run"), "run", { mode: 0o755 });
  symlinkSync("run", join(directory, "link"));
  return join("deep", long, "file");
}

test(
  "tar reads what is packed, and what tar packs is read",
  scratch(async (directory) => {
    const [source, middle, target] = ["source", "middle", "target"].map((name) => join(directory, name));
    const deep = tree(source);
    mkdirSync(middle);
    execFileSync("tar", ["-xpf", "-", "-C", middle], { input: await bytesOf(pack(source)) });
    const packed = execFileSync("tar", ["-cf", "-", "-C", middle, "."]);
    for (const size of [1, 511, 100_000]) {
      await unpack(inPieces(packed, size), target);
      assert.equal(readFileSync(join(target, deep)).equals(Buffer.alloc(2000, 7)), true);
      assert.equal(statSync(join(target, "run")).mode & 0o777, 0o755);
      assert.equal(readlinkSync(join(target, "link")), "run");
      assert.deepEqual(readdirSync(target).sort(), ["deep", "link", "run"]);
    }
    await assert.rejects(unpack(inPieces(packed.subarray(0, packed.length / 2), 4096), target), /too early/);
  }),
);

test(
  "nothing is written outside the directory",
  scratch(async (directory) => {
    const [inside, outside] = ["inside", "outside"].map((name) => join(directory, name));
    mkdirSync(inside);
    mkdirSync(outside);
    writeFileSync(join(directory, "file"), "x");
    const leading = execFileSync("tar", ["-cPf", "-", "-C", inside, "../file"]);
    await assert.rejects(unpack(inPieces(leading, 4096), join(directory, "new")), /leads out/);
    symlinkSync(outside, join(inside, "dir"));
    mkdirSync(join(directory, "honest", "dir"), { recursive: true });
    writeFileSync(join(directory, "honest", "dir", "file"), "x");
    await assert.rejects(unpack(pack(join(directory, "honest")), inside), /in the way/);
    assert.deepEqual(readdirSync(outside), []);
  }),
);

test("patterns of .dockerignore work as in Docker", () => {
  const text = "# comment\n*.log\n/build\n**/cache\n!keep.log\ndocs/*.md\n!docs/README.md\n./tmp/\n[^a]?x\n\\*\n";
  const ignore = new DockerIgnore(text);
  for (const path of ["x.log", "build/a/b", "cache", "a/b/cache", "a/cache/x", "docs/a.md", "tmp/x", "bbx", "*"]) {
    assert(ignore.ignores(path), path);
  }
  for (const path of ["a/x.log", "keep.log", "builder", "docs/README.md", "docs/deep/a.md", "abx", "b/x", "y"]) {
    assert(!ignore.ignores(path), path);
  }
  assert(ignore.hasExceptions && !new DockerIgnore("*.log").hasExceptions);
});

test("the line of .dockerignore that is no pattern is named", () => {
  assert.throws(() => new DockerIgnore("*.log\n[z-a]\n"), /"\[z-a\]" of .dockerignore is no pattern/);
});

test(
  "an archive leaves out what is ignored, but not its exceptions",
  scratch(async (directory) => {
    mkdirSync(join(directory, "deep", "kept"), { recursive: true });
    for (const name of ["a.txt", "b.log", "deep/c.log", "deep/kept/d.txt"]) writeFileSync(join(directory, name), name);
    writeFileSync(join(directory, ".dockerignore"), "*.log\ndeep\n!deep/kept\n");
    const archive = await bytesOf(pack(directory, await DockerIgnore.of(directory)));
    const names = execFileSync("tar", ["-t"], { input: archive, encoding: "utf8" }).trim().split("\n");
    assert.deepEqual(names, ["./", "./.dockerignore", "./a.txt", "./deep/kept/", "./deep/kept/d.txt"]);
  }),
);
