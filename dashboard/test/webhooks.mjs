// Webhooks: a receiver in this process gets signed requests.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { api, create, open, signedIn, test } from "./browser.mjs";

test("a webhook is created, its deliveries are listed, and one is replayed", async () => {
  const received = [];
  const receiver = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      received.push({ headers: request.headers, body });
      response.writeHead(204).end();
    });
  }).listen(0, "127.0.0.1");
  await new Promise((done) => receiver.once("listening", done));
  const page = await signedIn();
  await open(page, "/webhooks");
  await page.getByText("No webhooks yet").waitFor();
  await page.getByRole("button", { name: "New webhook" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("URL").fill(`http://127.0.0.1:${receiver.address().port}/hook`);
  await dialog.getByLabel("Events").fill("sandbox.created");
  await dialog.getByRole("button", { name: "Create" }).click();
  const key = await page.locator("dialog code").innerText();
  await page.getByRole("button", { name: "Done" }).click();
  const sandbox = await create();
  await page.getByRole("button", { name: "Deliveries" }).click();
  await page.getByRole("row").filter({ hasText: "sandbox.created" }).filter({ hasText: "status 204" }).waitFor();
  const [{ headers, body }] = received;
  const signed = createHmac("sha256", Buffer.from(key.replace("whsec_", ""), "base64")).update(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`).digest("base64");
  assert.equal(headers["webhook-signature"], `v1,${signed}`);
  assert.equal(JSON.parse(body).data.sandbox_id, sandbox.id);
  await page.getByRole("button", { name: "Replay" }).click();
  for (const start = Date.now(); received.length < 2; ) {
    assert.ok(Date.now() - start < 20_000, "the replay arrives");
    await page.waitForTimeout(100);
  }
  assert.equal(received[1].headers["webhook-id"], headers["webhook-id"]);
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("No webhooks yet").waitFor();
  receiver.close();
  await api("DELETE", `/v1/sandboxes/${sandbox.id}`);
});
