// The list of sandboxes.
import assert from "node:assert/strict";
import { api, create, open, signedIn, test } from "./browser.mjs";

/** How many sandboxes are created, and how many of them run at the same time. */
const CREATES = Number(process.env.SANDLING_DASHBOARD_CREATES ?? 200);
const ALIVE = Math.min(12, CREATES);
const AT_ONCE = 2;

test("the list follows creates and ends without a reload", async () => {
  const page = await signedIn();
  await open(page, "/sandboxes");
  await page.getByRole("status").filter({ hasText: "Live" }).waitFor();
  const rows = page.getByRole("row").filter({ hasText: "burst=yes" });
  let lists = 0;
  page.on("request", (request) => (lists += request.url().endsWith("/v1/sandboxes") ? 1 : 0));
  await page.getByRole("searchbox").fill("burst=yes");
  // The longest time between two frames says whether the page stays usable.
  await page.evaluate(() => {
    window.longest = 0;
    let before = performance.now();
    const frame = (now) => {
      window.longest = Math.max(window.longest, now - before);
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  const made = [];
  let [started, ended] = [0, 0];
  const createSome = async () => {
    while (started < CREATES) {
      const n = String(started++);
      made.push(await create({ labels: { burst: "yes", n } }));
      if (made.length - ended > ALIVE) await api("DELETE", `/v1/sandboxes/${made[ended++].id}`);
    }
  };
  const began = Date.now();
  await Promise.all(Array.from({ length: AT_ONCE }, createSome));
  console.log(`     ${made.length} creates took ${Date.now() - began} ms`);
  await page.getByText(new RegExp(`^${ALIVE} of `)).waitFor();
  assert.equal(await rows.count(), ALIVE);
  for (const { id } of made.slice(-ALIVE)) await rows.filter({ hasText: id.slice(0, 8) }).waitFor();
  const longest = await page.evaluate(() => window.longest);
  assert.ok(longest < 2_000, `the page stood still for ${longest} ms`);
  const quiet = lists;
  await page.waitForTimeout(1500);
  assert.equal(lists, quiet, "the page does not poll");
  // One row's own button asks before it ends anything.
  await rows.first().getByRole("button", { name: /^End/ }).click();
  await page.getByRole("dialog", { name: "End 1 sandbox?" }).getByRole("button", { name: "Cancel" }).click();
  assert.equal((await api("GET", "/v1/sandboxes")).filter(({ labels }) => labels.burst).length, ALIVE);
  // Select all and end them.
  await page.getByLabel("Select all").check();
  await page.getByText(`${ALIVE} selected`).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText(`${ALIVE} paused`).first().waitFor();
  await page.getByLabel("Select all").check();
  await page.locator(".bulk").getByRole("button", { name: "End" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
  await page.getByText(/^0 of /).waitFor();
  const left = await api("GET", "/v1/sandboxes");
  assert.equal(left.filter(({ labels }) => labels.burst).length, 0);
});

test("2000 rows stay smooth", async () => {
  const page = await signedIn();
  const sample = await create();
  const { length } = await api("GET", "/v1/sandboxes");
  assert.ok(length > 0);
  await page.route("**/v1/sandboxes", (route) => {
    // The sample is one of the rows: an event that arrives late loads it again.
    const rows = Array.from({ length: 2000 }, (_, n) => ({ ...sample, id: n ? `${String(n).padStart(8, "0")}${sample.id.slice(8)}` : sample.id, metadata: { name: `row ${n}` }, status: n % 3 ? "running" : "paused" }));
    return route.fulfill({ json: rows });
  });
  await open(page, "/sandboxes");
  await page.getByText("2000 of 2000 shown").waitFor();
  assert.ok((await page.getByRole("row").count()) < 80, "only visible rows exist");
  const usual = await page.evaluate(async () => {
    const box = document.querySelector(".list-body");
    const times = [];
    for (let step = 0; step < 60; step++) {
      const before = performance.now();
      box.scrollTop += 1300;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      times.push(performance.now() - before);
    }
    box.scrollTop = box.scrollHeight;
    return times.sort((a, b) => a - b)[30];
  });
  assert.ok(usual < 120, `two frames took ${usual} ms`);
  await page.getByText("row 1999", { exact: true }).waitFor();
  await page.getByRole("searchbox").fill("row 1234");
  await page.getByText("1 of 2000 shown").waitFor();
  await api("DELETE", `/v1/sandboxes/${sample.id}`);
});
