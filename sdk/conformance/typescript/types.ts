/** Uses the declarations in a project without other packages; install.sh compiles it. */

import { type Client, ExecInterrupted, Sandbox, SandboxPool } from "sandling";

export async function use(client: Client): Promise<string> {
  await using sandbox = await Sandbox.create({ ttlSeconds: 60 }, client);
  const bytes: Uint8Array = await sandbox.files.read("/etc/hostname");
  const text: string = (await sandbox.files.read("/etc/hostname")).toString("utf8");
  await using context = await sandbox.contexts.create();
  await using terminal = await sandbox.terminal({ rows: 24 });
  for await (const shown of terminal) console.log(shown.toString("base64"));
  await using pool = new SandboxPool({ size: 1 }, client).start();
  await using lease = await pool.lease();
  try {
    await lease.sandbox.exec("true");
  } catch (error) {
    if (error instanceof ExecInterrupted) return error.id;
    throw error;
  }
  // @ts-expect-error: a wrong type is an error, so the declarations are not just `any`.
  const wrong: number = await sandbox.files.read("/etc/hostname");
  return `${bytes.length + wrong} ${text} ${(await context.runCode("1")).stdout}`;
}
