// Signing in and out, and what other tenants see.
import assert from "node:assert/strict";
import { address, api, create, link, newPage, open, signInWith, signedIn, test } from "./browser.mjs";

async function personal(scope, workspace) {
  if (workspace) await api("POST", "/v1/workspaces", { name: workspace }).catch(() => {});
  return api("POST", workspace ? `/v1/workspaces/${workspace}/tokens` : "/v1/me/tokens", { name: "person", scope });
}

test("a one-time link signs in once", async () => {
  const once = link();
  const page = await newPage();
  await page.goto(once);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(page.url(), `${address}/dashboard/`, "the code is not left in the address");
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  const other = await newPage();
  await other.goto(once);
  await other.getByRole("alert").filter({ hasText: "was used already" }).waitFor();
});

test("a token signs in, and a wrong one is explained", async () => {
  const page = await newPage();
  await signInWith(page, "nonsense");
  await page.getByRole("alert").filter({ hasText: "this is not a token" }).waitFor();
  const { token } = await personal("read");
  await signInWith(page, token);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await open(page, "/sandboxes");
  await page.getByRole("heading", { name: "Sandboxes" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "New sandbox" }).count(), 0, "a reader cannot create");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  await page.reload();
  await page.getByLabel("Token").waitFor();
});

test("revoking the token signs the user out", async () => {
  const { token, prefix } = await personal("run");
  const page = await newPage();
  await signInWith(page, token);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByRole("status").filter({ hasText: "Live" }).waitFor();
  await api("DELETE", `/v1/me/tokens/${prefix}`);
  await page.getByRole("alert").filter({ hasText: "was revoked or has expired" }).waitFor({ timeout: 15_000 });
});

test("a second tenant sees nothing", async () => {
  const mine = await create({ metadata: { name: "only-mine" } });
  const { token } = await personal("admin", "second");
  const page = await newPage();
  await signInWith(page, token);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByText("0 sandboxes").waitFor();
  for (const path of ["/", "/sandboxes", "/snapshots", "/volumes", "/secrets", "/audit"]) {
    await open(page, path);
    await page.getByRole("heading", { level: 1 }).waitFor();
    const text = await page.locator("body").innerText();
    assert.ok(!text.includes("only-mine") && !text.includes(mine.id.slice(0, 8)), path);
  }
  for (const tab of ["", "/files", "/network", "/events"]) {
    await open(page, `/sandboxes/${mine.id}${tab}`);
    await page.getByText("This sandbox does not exist").waitFor();
  }
  await api("DELETE", `/v1/sandboxes/${mine.id}`);
});

test("another origin cannot use the session", async () => {
  const page = await signedIn();
  const outcome = await page.evaluate(async () => {
    const without = await fetch("/v1/volumes", { method: "POST", headers: { "content-type": "application/json" }, body: '{"name":"x"}' });
    return [without.status, (await without.json()).code];
  });
  assert.deepEqual(outcome, [403, "csrf"]);
});
