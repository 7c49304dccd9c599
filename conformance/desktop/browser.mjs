/** Playwright from npm, unmodified, controls the Chromium of a sandbox through the TypeScript client. */

import assert from "node:assert/strict";

import { chromium } from "playwright-core";
import { Sandbox } from "sandling";

/** Chromium is slow without KVM. */
const PATIENCE_MS = 300_000;

const sandbox = await Sandbox.create({ template: "desktop", ttlSeconds: 1200 });
try {
  const browser = await chromium.connectOverCDP(await sandbox.browser.cdpUrl(), { timeout: PATIENCE_MS });
  const page = browser.contexts()[0].pages()[0];
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto("data:text/html,<title>one</title>");
  assert.equal(await page.title(), "one");
  await browser.close();
} finally {
  await sandbox.kill();
}
console.log("browser: Playwright opened a page");
