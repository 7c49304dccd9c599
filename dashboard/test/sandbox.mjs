// One sandbox: its terminals, commands, notebook and files.
import assert from "node:assert/strict";
import { api, create, exec, open, signedIn, test } from "./browser.mjs";

async function shows(page, text) {
  await page.waitForFunction((wanted) => [...document.querySelectorAll("[data-terminal]:not([hidden]) .xterm-rows, [data-terminal]:not([hidden]) .xterm-accessibility-tree")].some((rows) => rows.textContent.includes(wanted)), text);
}

test("a terminal takes keys, follows the window's size, and returns after a reload", async () => {
  const sandbox = await create();
  const page = await signedIn();
  await open(page, `/sandboxes/${sandbox.id}/terminal`);
  await page.getByText("connected", { exact: true }).waitFor();
  await shows(page, "#");
  await page.locator("[data-terminal]:not([hidden])").click();
  await page.keyboard.type("echo answer-$((6*7))\n");
  await shows(page, "answer-42");
  await page.keyboard.type("clear; stty size > /root/before; echo on\"\"ce\n");
  await shows(page, "once");
  await page.setViewportSize({ width: 900, height: 600 });
  await page.waitForTimeout(800);
  await page.keyboard.type("stty size > /root/after; echo meas\"\"ured\n");
  await shows(page, "measured");
  await page.waitForTimeout(500);
  const { stdout } = await exec(sandbox.id, "cat /root/before /root/after");
  const [before, after] = stdout.trim().split("\n");
  assert.notEqual(before, after, "the terminal was resized");
  await page.keyboard.type("export KEPT=yes-it-is\n");
  await page.waitForTimeout(500);
  await page.reload();
  await page.getByText("connected", { exact: true }).waitFor();
  await shows(page, "measured");
  await page.locator("[data-terminal]:not([hidden])").click();
  await page.keyboard.type("echo kept-$KEPT\n");
  await shows(page, "kept-yes-it-is");
  await page.getByRole("button", { name: "New terminal" }).click();
  assert.equal(await page.getByRole("tab").count(), 2);
  await open(page, `/sandboxes/${sandbox.id}/summary`);
  await page.locator(".chart canvas").nth(3).waitFor();
  await page.getByLabel("Range").selectOption("Last 24 hours");
  await page.locator(".chart canvas").nth(3).waitFor();
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});

test("a command shows its output live, and can be killed", async () => {
  const sandbox = await create();
  const page = await signedIn();
  await open(page, `/sandboxes/${sandbox.id}/commands`);
  await page.getByLabel("Command", { exact: true }).fill("echo first; sleep 300; echo never");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByLabel("Output", { exact: true }).filter({ hasText: "first" }).waitFor();
  await page.getByRole("button", { name: "Kill" }).click();
  await page.locator(".badge-failed").waitFor();
  await page.getByLabel("Command", { exact: true }).fill("echo fine >&2; exit 3");
  await page.keyboard.press("Enter");
  await page.getByText(/^exit 3 · /).waitFor();
  await page.locator("pre .stderr", { hasText: "fine" }).waitFor();
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});

test("a notebook keeps variables and draws a plot", async () => {
  const sandbox = await create({ template: "code-interpreter" });
  const page = await signedIn();
  await open(page, `/sandboxes/${sandbox.id}/notebook`);
  await page.getByRole("button", { name: "New context" }).click();
  const cell = async (index, code) => {
    const editor = page.getByLabel("Code", { exact: true }).nth(index);
    await editor.click();
    await page.keyboard.press("Control+A");
    await page.keyboard.insertText(code);
    await page.keyboard.press("Control+Enter");
  };
  await cell(0, "x = 21\nprint('x is', x * 2)");
  await page.getByLabel("Output", { exact: true }).filter({ hasText: "x is 42" }).waitFor();
  await cell(1, "import matplotlib.pyplot as plt\nplt.plot([1, 2, x])\nplt.show()");
  const plot = page.locator(".cell img");
  await plot.waitFor({ timeout: 90_000 });
  assert.ok(await plot.evaluate(async (img) => (await img.decode(), img.naturalWidth > 100)));
  await cell(2, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['<script>parent.hacked=1</script>', 'y']})");
  const frame = page.locator(".cell iframe");
  await frame.waitFor({ timeout: 90_000 });
  assert.equal(await frame.getAttribute("sandbox"), "", "the frame may do nothing");
  await page.frameLocator(".cell iframe").locator("table").waitFor();
  await cell(3, "1/0");
  await page.getByLabel("Traceback").filter({ hasText: "ZeroDivisionError" }).waitFor();
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});

test("a file goes up, is edited, and comes down", async () => {
  const sandbox = await create();
  const page = await signedIn();
  await open(page, `/sandboxes/${sandbox.id}/files`);
  await page.locator("input[type=file]").setInputFiles({ name: "notes.py", mimeType: "text/plain", buffer: Buffer.from("a = 1\n") });
  await page.getByRole("button", { name: "notes.py" }).click();
  const editor = page.getByLabel("Content of notes.py");
  await editor.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("b = 2");
  await page.keyboard.press("Control+S");
  await page.getByText("notes.py saved").waitFor();
  assert.equal((await exec(sandbox.id, "cat /root/notes.py")).stdout, "a = 1\nb = 2");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download", exact: true }).click()]);
  const chunks = [];
  for await (const chunk of await file.createReadStream()) chunks.push(chunk);
  assert.equal(Buffer.concat(chunks).toString(), "a = 1\nb = 2");
  const [tar] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download as tar" }).click()]);
  assert.equal(tar.suggestedFilename(), "root.tar.gz");
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("notes.py removed").waitFor();
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});

test("a refused name can be allowed with one click", async () => {
  const sandbox = await create({ network: { mode: "allow", allow: ["pypi.org"] } });
  const page = await signedIn();
  await open(page, `/sandboxes/${sandbox.id}/network`);
  await page.getByText("No decisions yet").waitFor();
  await exec(sandbox.id, "curl -m 3 -s https://files.example.org || true");
  await page.getByRole("cell", { name: "files.example.org" }).first().waitFor();
  await page.getByRole("button", { name: "Allow this name" }).first().click();
  await page.getByText("allowed now").first().waitFor();
  const policy = await api("GET", `/v1/sandboxes/${sandbox.id}/network`);
  assert.deepEqual([policy.mode, policy.allow], ["allow", ["pypi.org", "files.example.org"]]);
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});
