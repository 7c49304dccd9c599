// Compresses the built files with gzip and brotli, and checks that the first load stays small.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const FIRST_LOAD = 250 * 1024;
const dist = new URL("dist/", import.meta.url).pathname;

function files(directory) {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

function brotli(bytes) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
  return brotliCompressSync(bytes, { params });
}

const html = readFileSync(join(dist, "index.html"), "utf8");
const sizes = new Map();
for (const path of files(dist)) {
  if (path.endsWith(".gitignore")) continue;
  const bytes = readFileSync(path);
  const gzip = gzipSync(bytes, { level: 9 });
  writeFileSync(`${path}.gz`, gzip);
  writeFileSync(`${path}.br`, brotli(bytes));
  sizes.set(path.slice(dist.length), gzip.length);
  rmSync(path);
}

const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
for (const [path, size] of sizes) console.log(`${path.padEnd(48)} ${kib(size).padStart(10)}`);
// The index names everything that a browser loads first.
const first = [...sizes].filter(([path]) => path === "index.html" || html.includes(path)).reduce((sum, [, size]) => sum + size, 0);
console.log(`first load: ${kib(first)} of ${kib(FIRST_LOAD)}, compressed with gzip`);
if (first > FIRST_LOAD) {
  console.error("the first load is too large");
  process.exit(1);
}
