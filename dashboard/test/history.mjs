// Forks and checkpoints.
import assert from "node:assert/strict";
import { api, create, exec, hostile, inert, open, shown, signedIn, test } from "./browser.mjs";

test("forks are compared, and one is promoted", async () => {
  const parent = await create({ metadata: { name: "parent" } });
  await exec(parent.id, "echo common > /root/plan");
  const page = await signedIn();
  await open(page, `/sandboxes/${parent.id}/forks`);
  await page.getByRole("button", { name: "Fork from here" }).click();
  await page.getByLabel("Copies").fill("2");
  await page.getByLabel("Purpose").fill("try both ways");
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await page.getByRole("link", { name: "try both ways" }).nth(1).waitFor();
  const family = await api("GET", `/v1/sandboxes/${parent.id}/family`);
  const [one, two] = family.filter(({ parent_id }) => parent_id).map(({ id }) => id);
  await exec(one, "echo first way > /root/plan");
  await exec(two, "echo second way > /root/plan");
  const boxes = page.getByLabel("Select try both ways to compare").or(page.getByRole("checkbox"));
  await boxes.nth(1).check();
  await boxes.nth(2).check();
  await page.getByRole("button", { name: "Compare the two selected" }).click();
  await page.locator(".diff .plus", { hasText: "way" }).waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Promote" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Promote" }).click();
  await page.getByText("Promoted; its siblings have ended").waitFor();
  const left = (await api("GET", "/v1/sandboxes")).map(({ id }) => id);
  assert.equal([one, two].filter((id) => left.includes(id)).length, 1);
  for (const id of left.filter((id) => [parent.id, one, two].includes(id))) await api("DELETE", `/v1/sandboxes/${id}`);
});

test("a step shows what it changed, and can be undone", async () => {
  const sandbox = await create({ checkpoints: "every-exec" });
  await exec(sandbox.id, "echo good > /root/state");
  await exec(sandbox.id, "echo bad > /root/state; rm /root/.profile");
  const page = await signedIn();
  await open(page, `/sandboxes/${sandbox.id}/timeline`);
  await page.getByRole("button", { name: /echo bad/ }).click();
  await page.getByRole("button", { name: "What did this step change?" }).click();
  await page.locator(".diff .plus", { hasText: "bad" }).waitFor({ timeout: 60_000 });
  await page.locator("summary", { hasText: "/root/.profile" }).waitFor();
  // A fork of that moment is another sandbox; this one keeps its state.
  await page.getByRole("button", { name: "Fork from here" }).click();
  await page.getByRole("dialog", { name: "Fork from checkpoint 2" }).getByRole("button", { name: "Fork" }).click();
  await page.getByRole("link", { name: "From checkpoint 2" }).waitFor({ timeout: 60_000 });
  const child = (await api("GET", `/v1/sandboxes/${sandbox.id}/family`)).find(({ parent_id }) => parent_id === sandbox.id);
  assert.equal((await exec(child.id, "cat /root/state")).stdout, "good\n");
  assert.equal(await api("GET", `/v1/sandboxes/${sandbox.id}/fs?path=/root/state`), "bad\n");
  await api("DELETE", `/v1/sandboxes/${child.id}`);
  await open(page, `/sandboxes/${sandbox.id}/timeline`);
  await page.getByRole("button", { name: /echo bad/ }).first().click();
  await page.getByRole("button", { name: "Go back to here" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Go back" }).click();
  await page.getByText("Back at checkpoint 2").waitFor({ timeout: 60_000 });
  const { stdout } = await exec(sandbox.id, "cat /root/state; ls -a /root");
  assert.match(stdout, /^good/);
  assert.match(stdout, /\.profile/);
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});

test("a template is built from a Dockerfile, and a sandbox starts from it", async () => {
  const page = await signedIn();
  await open(page, "/templates");
  await page.getByRole("button", { name: "Build a template" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("greeter");
  await dialog.getByRole("combobox").first().selectOption("dockerfile");
  await dialog.getByLabel("Dockerfile", { exact: true }).click();
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText(`FROM base\nRUN echo hello > /root/greeting\nRUN echo '${hostile("build")}'\n`);
  await dialog.getByRole("button", { name: "Build" }).click();
  await page.getByLabel("Build log").filter({ hasText: "saved as greeter" }).waitFor({ timeout: 90_000 });
  await shown(page, hostile("build"));
  await inert(page, "the log of a build");
  const row = page.getByRole("row").filter({ hasText: "greeter" }).filter({ hasText: "Start a sandbox" });
  await row.getByRole("button", { name: "Start a sandbox" }).click();
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("navigation", { name: "Parts of the sandbox" }).waitFor();
  const id = page.url().split("/").pop();
  assert.equal((await exec(id, "cat /root/greeting")).stdout, "hello\n");
  await api("DELETE", `/v1/sandboxes/${id}`);
});
