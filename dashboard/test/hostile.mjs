// Strings from guests and tenants are shown as text: nowhere do they become elements or run as script.
import assert from "node:assert/strict";
import { api, complaints, create, hostile, inert, open, shown, signedIn, test } from "./browser.mjs";

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="top.hacked=4"><script>top.hacked=5</script></svg>`;

test("the check for hostile strings notices one that is not escaped", async () => {
  const page = await signedIn();
  await inert(page, "before");
  await page.evaluate((text) => (document.querySelector("h1").innerHTML = text), hostile("unescaped"));
  await assert.rejects(inert(page, "after"), /after/);
  await assert.rejects(shown(page, hostile("unescaped"), 300), /unescaped/);
  // The policy refuses to run it, even so.
  await page.waitForTimeout(300);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.ok(complaints.splice(0).some((text) => text.includes("Content Security Policy")));
});

test("hostile strings are text on every page", async () => {
  const sandbox = await create({
    metadata: { name: hostile("name"), purpose: hostile("purpose") },
    labels: { team: hostile("label"), [hostile("key")]: "x" },
    checkpoints: "every-exec",
    network: { mode: "allow", allow: ["pypi.org"] },
  });
  const base = `/v1/sandboxes/${sandbox.id}`;
  const put = (path, content) => api("PUT", `${base}/fs?path=${encodeURIComponent(path)}`, content);
  await put(`/root/${hostile("file").replaceAll("/", "|")}.svg`, SVG);
  await put("/root/page.html", hostile("content"));
  await api("POST", `${base}/exec`, { cmd: `printf '%s\\n' '${hostile("stdout")}'; printf '%s\\n' '${hostile("stderr")}' >&2; echo '${hostile("console")}' > /dev/console; echo '${hostile("changed")}' > /root/page.html; curl -m 2 -s http://x-evil.example/ || true` });
  const { token, prefix } = await api("POST", "/v1/me/tokens", { name: hostile("token"), scope: "run" });
  await api("POST", `${base}/pause`, undefined, token);
  await api("POST", `${base}/resume`, undefined, token);
  const child = (await api("POST", `${base}/fork`, { metadata: { purpose: hostile("fork") } })).children?.[0];

  const page = await signedIn();
  const visit = async (path, ...texts) => {
    await open(page, path);
    await page.getByRole("heading", { level: 1 }).waitFor();
    for (const text of texts) await shown(page, hostile(text));
    await inert(page, path);
  };
  const tab = (name, ...texts) => visit(`/sandboxes/${sandbox.id}/${name}`, ...texts);
  await visit("/");
  await visit("/sandboxes", "name", "label", "key");
  await visit("/tokens", "token");
  await visit("/audit", "token");
  await visit("/templates");
  await visit("/snapshots");
  await visit("/playground");
  await tab("summary", "name", "purpose", "label", "key");
  await tab("console", "console");
  await tab("network");
  await page.getByRole("cell", { name: "x-evil.example" }).first().waitFor();
  await tab("forks", "fork");
  await tab("ports");
  await tab("events");
  await tab("boundary");
  await tab("commands");
  await page.getByRole("button", { name: "Show the output" }).last().click();
  for (const text of ["stdout", "stderr"]) await shown(page, hostile(text));
  await inert(page, "the output of a command");
  await tab("timeline");
  await page.getByRole("button", { name: /x-evil/ }).last().click();
  await page.getByRole("button", { name: "What did this step change?" }).click();
  await page.locator(".diff .plus", { hasText: hostile("changed") }).waitFor({ timeout: 60_000 });
  await inert(page, "a diff");
  await tab("files");
  await page.getByRole("button", { name: /onerror/ }).click();
  await page.locator(".viewer img").waitFor();
  await inert(page, "a picture and the name of a file");
  await page.getByRole("button", { name: "page.html" }).click();
  await page.locator(".viewer .cm-content", { hasText: hostile("changed") }).waitFor();
  await inert(page, "the content of a file");
  await tab("terminal");
  await page.getByText("connected", { exact: true }).waitFor();
  await page.locator("[data-terminal]:not([hidden])").click();
  await page.keyboard.type(`printf '\\033]0;${hostile("title")}\\007'\n`);
  // On a line of its own, so that it is not wrapped in the middle.
  await page.keyboard.type(`echo '<x-evil>in the terminal'\n`);
  await page.waitForFunction(() => document.querySelector(".xterm-accessibility-tree, .xterm-rows")?.textContent.split("<x-evil>in the terminal").length > 2);
  await inert(page, "a terminal");
  await tab("notebook");
  await page.getByRole("button", { name: "New context" }).click();
  await page.getByLabel("Code", { exact: true }).first().click();
  await page.keyboard.insertText(`print('${hostile("cell")}')\nraise ValueError('${hostile("error")}')`);
  await page.keyboard.press("Control+Enter");
  for (const text of ["cell", "error"]) await shown(page, hostile(text), 60_000);
  await inert(page, "a notebook");

  // Files and output, opened as pages with the session's cookie.
  for (const path of [`${base}/fs?path=/root/page.html`, `${base}/logs`, `${base}`]) {
    const other = await page.context().newPage();
    await other.goto(new URL(path, page.url()).href).catch(() => {});
    await inert(other, path);
    await other.close();
  }
  await api("DELETE", `/v1/me/tokens/${prefix}`);
  for (const id of [child?.id, sandbox.id]) if (id) await api("DELETE", `/v1/sandboxes/${id}`);
});
