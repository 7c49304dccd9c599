// Runs of `sandling agent` with a scripted model.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { api, binary, hostile, inert, open, shown, signedIn, signInWith, newPage, scriptedModel, test, violations } from "./browser.mjs";

test("an agent is watched while it works, and its transcript stays", async () => {
  const { model, environment } = await scriptedModel();
  const page = await signedIn();
  await open(page, "/agents");
  await page.getByText("No runs yet").waitFor();
  const agent = spawn(binary, ["agent", "--api", "anthropic", "--template", "base", `count ${hostile("task")}`], { env: environment, stdio: "ignore" });
  const ended = once(agent, "exit");
  await page.getByRole("link", { name: /x-evil/ }).click();
  await page.locator(".badge-running").waitFor();
  for (const place of ["task", "argument"]) await shown(page, hostile(place));
  assert.deepEqual(await ended, [0, null]);
  await page.locator(".badge-ended").waitFor();
  await shown(page, hostile("answer"));
  await page.getByLabel("Result").filter({ hasText: "step-two-is-done" }).waitFor();
  await page.getByText(/^exit 3 · /).waitFor();
  await page.getByText(/of \d+ steps/).waitFor();
  await inert(page, "a transcript");
  model.stdin.end();
  // Others see nothing of it.
  const { token } = await api("POST", "/v1/me/tokens", { name: "admin", scope: "admin" });
  const other = await newPage();
  await signInWith(other, token);
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  await open(other, "/agents");
  await other.getByText("needs the scope operator").waitFor();
});

test("attempts stand side by side, each with its score and its changes", async () => {
  const { model, environment } = await scriptedModel("race");
  const check = "python3 -c 'from answer import answer; print(answer); exit(answer != 42)'";
  const agent = spawn(binary, ["agent", "--api", "anthropic", "--template", "base", "--best-of", "3", "--check", check, "write the answer"], { env: environment, stdio: ["ignore", "ignore", "inherit"] });
  const [code] = await once(agent, "exit");
  model.stdin.end();
  assert.equal(code, 0);
  const page = await signedIn();
  await open(page, "/agents");
  await page.getByRole("link", { name: "write the answer" }).click();
  for (const [number, answer, result] of [[1, 21, "failed"], [2, 42, "passed"], [3, 63, "failed"]]) {
    const attempt = page.locator("section.card").filter({ has: page.getByRole("heading", { name: `Attempt ${number}`, exact: true }) });
    await attempt.getByText(`score ${answer}`).waitFor();
    await attempt.locator(`.badge-${result}`).waitFor();
    await attempt.getByText("/workspace/answer.py").waitFor();
    await attempt.locator(".diff .plus", { hasText: `answer = ${answer}` }).waitFor();
    await attempt.getByText(`Attempt ${number} wrote its answer.`).first().waitFor();
    assert.equal(await attempt.locator(".badge-best").count(), number === 2 ? 1 : 0);
  }
  const tops = await page.locator(".attempts > *").evaluateAll((cards) => cards.map((card) => Math.round(card.getBoundingClientRect().top)));
  assert.equal(tops[0], tops[1], "the first two are side by side");
  await shown(page, hostile("file"));
  await inert(page, "a diff of an attempt");
  assert.deepEqual(await violations(page), []);
});
