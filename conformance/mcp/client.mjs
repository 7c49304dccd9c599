// The official MCP client from npm against `sandling mcp`, over stdio and over HTTP.
//
//   node client.mjs SANDLING URL

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [sandling, url] = process.argv.slice(2);
const args = ["mcp", "--template", "base", "--timeout", "60s"];
const authorization = { Authorization: `Bearer ${process.env.SANDLING_TOKEN}` };
const transports = {
  stdio: () => new StdioClientTransport({ command: sandling, args, env: process.env }),
  http: () => new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: authorization } }),
};

const said = async (client, name, args = {}, options) => {
  const { content } = await client.callTool({ name, arguments: args }, undefined, options);
  return content.map((block) => block.text ?? "").join("");
};

const until = async (client, command, wanted) => {
  const deadline = Date.now() + 30_000;
  for (;;) {
    const text = await said(client, "run_command", { command });
    if (text.includes(`stdout:\n${wanted}\n`)) return;
    assert(Date.now() < deadline, text);
    await new Promise((go) => setTimeout(go, 200));
  }
};

const cases = {
  async "tools are listed"(client) {
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    for (const name of ["run_code", "run_command", "fork", "preview"]) assert(names.includes(name), name);
  },
  async "code runs and keeps its variables"(client) {
    await said(client, "run_code", { code: "x = 6" });
    assert.match(await said(client, "run_code", { code: "x * 7" }), /exit code: 0\nresult:\n42/);
    assert.match(await said(client, "run_command", { command: "exit 7" }), /^exit code: 7/);
  },
  async "files go both ways and are resources"(client) {
    await said(client, "write_file", { path: "/workspace/note.md", content: "# Note\n" });
    assert.equal(await said(client, "read_file", { path: "/workspace/note.md" }), "# Note\n");
    const { resources } = await client.listResources();
    assert(resources.some((resource) => resource.uri === "sandbox:///workspace/note.md"));
    const { contents } = await client.readResource({ uri: "sandbox:///workspace/note.md" });
    assert.equal(contents[0].text, "# Note\n");
    assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 1);
  },
  async "forks are of their own"(client) {
    assert.equal(await said(client, "fork"), "forked: fork-1");
    await said(client, "run_command", { command: "rm note.md", sandbox: "fork-1" });
    assert.equal(await said(client, "read_file", { path: "/workspace/note.md" }), "# Note\n");
    assert.match(await said(client, "drop_fork", { fork: "fork-1" }), /was ended/);
  },
  async "long calls show progress"(client) {
    const heard = [];
    const onprogress = ({ message }) => heard.push(message);
    await said(client, "run_command", { command: "for i in 1 2 3; do echo line $i; sleep 1; done" }, { onprogress });
    assert(heard.some((message) => message?.startsWith("line")), JSON.stringify(heard));
  },
  async "cancelling kills the command"(client) {
    const abort = new AbortController();
    const call = said(client, "run_command", { command: "exec sleep 4321" }, { signal: abort.signal });
    const running = "pgrep -x sleep -a | grep -c 4321";
    call.catch(() => {});
    await until(client, running, "1");
    abort.abort();
    await assert.rejects(call);
    await until(client, running, "0");
  },
};

let failed = 0;
for (const [name, transport] of Object.entries(transports)) {
  const client = new Client({ name: "conformance", version: "1.0.0" });
  const connection = transport();
  await client.connect(connection);
  for (const [title, run] of Object.entries(cases)) {
    try {
      await run(client);
      console.log(`passed   ${name}: ${title}`);
    } catch (error) {
      failed = 1;
      console.log(`FAILED   ${name}: ${title}\n${error.stack}`);
    }
  }
  await connection.terminateSession?.();
  await client.close();
}
process.exit(failed);
