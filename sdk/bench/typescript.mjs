/**
 * Measures the TypeScript SDK: its import, and an exec compared with the same exec over a bare HTTP connection.
 *
 *     node sdk/bench/typescript.mjs [ROUNDS]
 *
 * Needs `npm install && npm run build` in sdk/typescript, and a server (`SANDLING_API`, `SANDLING_TOKEN`) or a
 * `sandling` that can be started. Both take turns within one run, so that a busy moment affects both. The result is the
 * median of the differences.
 */

import { Agent, request } from "node:http";
import { performance } from "node:perf_hooks";

const IMPORT_AIM_MS = 150;
const OVERHEAD_AIM_MS = 1;
const rounds = Number(process.argv[2] ?? 300);

const began = performance.now();
const { Client } = await import("../typescript/dist/index.js");
const imported = performance.now() - began;
console.log(
  `import: ${imported.toFixed(0)} ms, ${(imported / IMPORT_AIM_MS).toFixed(2)} of the aim (${IMPORT_AIM_MS} ms)`,
);

const client = new Client();
const { url, token } = await client.transport.endpoint();
const sandbox = await client.sandboxes.create({ template: "base", ttlSeconds: 900 });
const agent = new Agent({ keepAlive: true });

function bare() {
  const body = JSON.stringify({ cmd: "/bin/true" });
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    "content-length": body.length,
  };
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v1/sandboxes/${sandbox.id}/exec`, { method: "POST", headers, agent }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (piece) => (text += piece));
      answer.on("end", () => resolve(JSON.parse(text)));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

async function took(work) {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

const own = () => sandbox.exec("/bin/true");
const raw = [];
const over = [];
for (let number = 0; number < rounds + 20; number++) {
  // The second one finds warm caches in the guest, so the order alternates.
  const first = number % 2 ? await took(bare) : await took(own);
  const second = number % 2 ? await took(own) : await took(bare);
  if (number < 20) continue;
  raw.push(number % 2 ? first : second);
  over.push(number % 2 ? second - first : first - second);
}
await sandbox.close();
agent.destroy();
client.close();
const [base, more] = [median(raw), median(over)];
console.log(
  `exec: bare ${base.toFixed(2)} ms, SDK +${more.toFixed(2)} ms (${((base + more) / base).toFixed(3)} x); ` +
    `${(more / OVERHEAD_AIM_MS).toFixed(2)} of the aim (p50, +${OVERHEAD_AIM_MS} ms)`,
);
process.exitCode = imported <= IMPORT_AIM_MS && more <= OVERHEAD_AIM_MS ? 0 : 1;
