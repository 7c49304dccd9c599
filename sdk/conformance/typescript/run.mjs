/**
 * Runs the cases with the TypeScript SDK. `CASES` names the file, `SANDLING_API` and `SANDLING_TOKEN` the server.
 */

import { readFile } from "node:fs/promises";

import * as sandling from "sandling";

import { camel, difference, lookUp, resolve } from "./match.mjs";
import { shown, VERBS } from "./verbs.mjs";

const SHARED = { template: "base", ttlSeconds: 1800 };

class Unlike extends Error {}

const client = new sandling.Client();
const stranger = new sandling.Client({ apiKey: "sdl_nobody" });
let shared;

async function sandboxOf({ sandbox: own }) {
  if (!own) return (shared ??= await client.sandboxes.create(SHARED));
  return VERBS.create(client, own);
}

async function run(one) {
  const sandbox = await sandboxOf(one);
  const named = { sb: sandbox, client, stranger };
  try {
    for (const [index, step] of one.steps.entries()) {
      await carryOut(step, named).catch((error) => {
        throw new Unlike(`step ${index + 1} (${step.do}): ${error.name} ${error.message}`, { cause: error });
      });
    }
  } finally {
    if (one.sandbox) await sandbox.close();
  }
}

async function carryOut(step, named) {
  const target = lookUp(step.on ?? "sb", named);
  const wanted = resolve(step.raises, named);
  let given;
  try {
    given = await VERBS[step.do](target, resolve(step.with ?? {}, named));
  } catch (error) {
    if (!wanted || !(error instanceof sandling.SandlingError)) throw error;
    return compareError(wanted, error);
  }
  if (wanted) throw new Unlike(`nothing was thrown; it gave ${JSON.stringify(shown(given))}`);
  if (step.as) named[step.as] = given;
  if ("expect" in step) failOn(difference(resolve(step.expect, named), shown(given)));
}

function compareError({ kind, ...facts }, error) {
  if (!(error instanceof sandling[kind])) throw new Unlike(`${error.name} is not a ${kind}: ${error.message}`);
  const real = Object.fromEntries(Object.keys(facts).map((key) => [key, error[camel(key)]]));
  failOn(difference(facts, real, "the error"));
}

function failOn(problem) {
  if (problem) throw new Unlike(problem);
}

const cases = JSON.parse(await readFile(process.env.CASES, "utf8"));
const { paths } = await client.transport.request("GET", "/openapi.json");
const counts = { passed: 0, failed: 0, skipped: 0 };
for (const one of cases.filter(({ name }) => new RegExp(process.env.ONLY ?? "").test(name))) {
  const missing = (one.requires ?? []).find((path) => !(path in paths));
  const started = Date.now();
  if (missing) {
    counts.skipped += 1;
    console.log(`skipped  ${one.name} (the server has no ${missing})`);
    continue;
  }
  try {
    await run(one);
    counts.passed += 1;
    console.log(`passed   ${one.name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  } catch (error) {
    counts.failed += 1;
    console.log(`FAILED   ${one.name}: ${error.message}`);
  }
}
await shared?.close();
client.close();
console.log(`typescript: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed ? 1 : 0;
