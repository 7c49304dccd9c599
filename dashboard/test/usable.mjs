// Accessibility, phones and the keyboard.
import assert from "node:assert/strict";
import { api, create, exec, newPage, open, signedIn, test, violations } from "./browser.mjs";

const PAGES = ["/", "/sandboxes", "/templates", "/snapshots", "/volumes", "/secrets", "/webhooks", "/tokens", "/quotas", "/audit", "/agents", "/playground"];
const TABS = ["summary", "terminal", "commands", "notebook", "files", "network", "timeline", "forks", "ports", "events", "console", "boundary"];

async function prepared() {
  const sandbox = await create({ metadata: { name: "accessible" }, checkpoints: "every-exec", network: { mode: "allow", allow: ["pypi.org"] } });
  await exec(sandbox.id, "echo hello; curl -m 2 -s https://example.com || true");
  await api("POST", `/v1/sandboxes/${sandbox.id}/repl/sessions`, { language: "python" });
  return [sandbox, [...PAGES, ...TABS.map((tab) => `/sandboxes/${sandbox.id}/${tab}`)]];
}

test("axe-core finds nothing serious, light and dark, and every page fits a phone", async () => {
  const [sandbox, paths] = await prepared();
  const signIn = await newPage({ colorScheme: "light" });
  await open(signIn, "/");
  await signIn.getByLabel("Token").waitFor();
  const found = (await violations(signIn)).map((text) => `sign-in: ${text}`);
  // With transitions, colors of both schemes mix until the next frames, which a busy host draws late.
  const page = await signedIn({ colorScheme: "light", reducedMotion: "reduce" });
  for (const path of paths) {
    await open(page, path);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForTimeout(500);
    found.push(...(await violations(page)).map((text) => `${path}: ${text}`));
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForTimeout(300);
    found.push(...(await violations(page, ["color-contrast"])).map((text) => `${path}, dark: ${text}`));
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 800 });
    await page.waitForTimeout(150);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) found.push(`${path} is ${wide} pixels too wide for a phone`);
    await page.setViewportSize({ width: 1360, height: 860 });
  }
  assert.deepEqual(found, []);
  await page.setViewportSize({ width: 390, height: 800 });
  await open(page, "/");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("link", { name: "Templates", exact: true }).click();
  await page.getByRole("heading", { name: "Templates", level: 1 }).waitFor();
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});

test("the keyboard reaches pages and dialogs", async () => {
  const page = await signedIn();
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.getByRole("heading", { name: "Sandboxes", level: 1 }).waitFor();
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.type), "search");
  await page.getByRole("button", { name: "New sandbox" }).first().focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
});
