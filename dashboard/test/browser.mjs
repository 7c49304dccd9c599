// What all tests share: the browser, the server's API, and a list of tests that run one after the other.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const binary = process.env.SANDLING_BINARY;
export const scratch = process.env.SANDLING_SCRATCH;
export const home = process.env.SANDLING_HOME;
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const sandling = (...words) => execFileSync(binary, words, { encoding: "utf8" }).trim();
export const token = () => readFileSync(join(home, "token"), "utf8").trim();
/** The server's address, or that of `npm run dev`. */
export const address = process.env.SANDLING_DASHBOARD_ADDRESS ?? new URL(sandling("dashboard", "--print")).origin;
/** A one-time link. */
export const link = () => sandling("dashboard", "--print").replace(/^https?:\/\/[^/]+/, address);

/** A request to the API, with a token. */
export async function api(method, path, body, as = token()) {
  const headers = { authorization: `Bearer ${as}` };
  if (body !== undefined && typeof body !== "string") headers["content-type"] = "application/json";
  const response = await fetch(address + path, { method, headers, body: typeof body === "string" ? body : body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export const exec = (id, cmd) => api("POST", `/v1/sandboxes/${id}/exec`, { cmd });
export const create = (body = {}) => api("POST", "/v1/sandboxes", { template: "base", ...body });

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** A scripted model, and the environment in which `sandling agent` uses it. */
export const scriptedModel = async (...words) => {
  const model = spawn("python3", [fileURLToPath(new URL("scripted_model.py", import.meta.url)), ...words], { stdio: ["pipe", "pipe", "inherit"] });
  const [url] = await once(model.stdout, "data");
  const environment = { ...process.env, ANTHROPIC_API_KEY: "k", ANTHROPIC_BASE_URL: String(url).trim(), ANTHROPIC_MODEL: "scripted" };
  return { model, environment };
};

/** Everything that pages complained about: script errors, and what the policy forbade. */
export const complaints = [];

export async function newPage(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(`${error.message}\n${error.stack}`));
  page.on("console", (message) => {
    if (/Content Security Policy/i.test(message.text())) complaints.push(message.text());
  });
  page.on("dialog", (dialog) => {
    complaints.push(`a dialog opened: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return page;
}

/** A page that is signed in with a one-time link. */
export async function signedIn(options) {
  const page = await newPage(options);
  await page.goto(link());
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  return page;
}

export async function signInWith(page, secret) {
  await page.goto(`${address}/dashboard/`);
  await page.getByLabel("Token").fill(secret);
  await page.getByRole("button", { name: "Sign in" }).click();
}

export const open = (page, path) => page.goto(`${address}/dashboard${path}`);

/** Serious violations that axe-core finds on the page, of all rules or of these. */
export async function violations(page, rules) {
  await page.evaluate(axeSource);
  const { violations: found } = await page.evaluate((only) => window.axe.run(document, { resultTypes: ["violations"], ...(only && { runOnly: only }) }), rules);
  const serious = found.filter(({ impact }) => impact === "serious" || impact === "critical");
  return serious.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, any }) => `${html.slice(0, 160)} ${any[0]?.message ?? ""}`).join(" | ")}`);
}

/** A string that becomes elements, and tries to run, if a page does not escape it. */
export const hostile = (place) => `<x-evil>${place}<img src=x onerror=top.hacked=1></x-evil>`;

/** Waits until a page shows this text exactly as it is. */
export const shown = (page, text, timeout = 30_000) =>
  page.waitForFunction((wanted) => document.body.innerText.includes(wanted), text, { timeout }).catch(() => {
    throw new Error(`${page.url()} does not show ${text}`);
  });

/** Fails if a hostile string has become elements of a page, or has run. */
export async function inert(page, where) {
  const found = await page.evaluate(() => [...document.querySelectorAll("x-evil, [onerror], [onload]")].map((element) => element.outerHTML.slice(0, 200)));
  assert.deepEqual(found, [], where);
  assert.equal(await page.evaluate(() => window.hacked), undefined, where);
}

const TEST_MS = 300_000;
const late = (limit) => new Promise((_, reject) => setTimeout(() => reject(new Error(`the test took more than ${limit} ms`)), limit).unref());

const tests = [];
export const test = (name, run, limit = TEST_MS) => tests.push([name, run, limit]);

export async function runAll(filters) {
  let failed = 0;
  for (const [name, run, limit] of tests.filter(([name]) => filters.length === 0 || filters.some((filter) => name.includes(filter)))) {
    const started = Date.now();
    try {
      await Promise.race([run(), late(limit)]);
      if (complaints.length) throw new Error(`pages complained: ${complaints.join("\n")}`);
      console.log(`ok   ${name} (${Date.now() - started} ms)`);
    } catch (error) {
      failed++;
      console.log(`FAIL ${name} (${Date.now() - started} ms)\n${error.stack}`);
      let number = 0;
      for (const context of browser.contexts()) for (const page of context.pages()) await page.screenshot({ path: `/tmp/dashboard-failure-${failed}-${number++}.png` }).catch(() => {});
    }
    complaints.length = 0;
    for (const context of browser.contexts()) await context.close();
  }
  await browser.close();
  return failed;
}
