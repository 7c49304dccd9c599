import { useSignal } from "@preact/signals";
import { get, type Template } from "../api/client";
import { Button, Card, Copy, Field, Page, useLoad } from "../ui/basics";

const LANGUAGES = ["Python", "TypeScript", "curl", "CLI"] as const;
const CALLS: Record<string, string> = { run: "Run code", command: "Run a command", file: "Write and read a file", fork: "Fork and compare", network: "Allow one host" };

interface Choices {
  address: string;
  template: string;
}

type Texts = Record<(typeof LANGUAGES)[number], string>;

function texts(call: string, { address, template }: Choices): Texts {
  const curl = (path: string, body: object, method = "POST") => `curl -s -X ${method} ${address}/v1/${path} \\\n  -H "Authorization: Bearer $SANDLING_TOKEN" -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(body)}'`;
  const start = `id=$(${curl("sandboxes", { template })} | jq -r .id)`;
  const shell = `export SANDLING_API=${address}\nexport SANDLING_TOKEN=…  # sandling token create NAME\n`;
  const python = (body: string, options = "") => `# pip install sandling\n# SANDLING_API=${address} SANDLING_TOKEN=…\nfrom sandling import Sandbox\n\nwith Sandbox.create(template="${template}"${options}) as sandbox:\n${body.replace(/^/gm, "    ")}\n`;
  const typescript = (body: string, options = "") => `// npm install sandling\n// SANDLING_API=${address} SANDLING_TOKEN=…\nimport { Sandbox } from "sandling";\n\nconst sandbox = await Sandbox.create({ template: "${template}"${options} });\n${body}\nawait sandbox.kill();\n`;
  switch (call) {
    case "command":
      return {
        Python: python('result = sandbox.exec("ls -la /")\nprint(result.stdout, result.exit_code)'),
        TypeScript: typescript('const result = await sandbox.exec("ls -la /");\nconsole.log(result.stdout, result.exitCode);'),
        curl: `${shell}${start}\n${curl("sandboxes/$id/exec", { cmd: "ls -la /" })}`,
        CLI: `${shell}id=$(sandling create --template ${template})\nsandling exec -c 'ls -la /' $id\nsandling rm $id`,
      };
    case "file":
      return {
        Python: python('sandbox.files.write("/root/hello.txt", "hello")\nprint(sandbox.files.read_text("/root/hello.txt"))'),
        TypeScript: typescript('await sandbox.files.write("/root/hello.txt", "hello");\nconsole.log(await sandbox.files.readText("/root/hello.txt"));'),
        curl: `${shell}${start}\ncurl -s -X PUT "${address}/v1/sandboxes/$id/fs?path=/root/hello.txt" -H "Authorization: Bearer $SANDLING_TOKEN" --data-binary hello\ncurl -s "${address}/v1/sandboxes/$id/fs?path=/root/hello.txt" -H "Authorization: Bearer $SANDLING_TOKEN"`,
        CLI: `${shell}id=$(sandling create --template ${template})\nsandling cp hello.txt $id:/root/\nsandling exec -c 'cat /root/hello.txt' $id\nsandling rm $id`,
      };
    case "fork":
      return {
        Python: python('for child in sandbox.fork(2):\n    child.exec("date > /root/when")\n    print(child.id)'),
        TypeScript: typescript('for (const child of await sandbox.fork(2)) {\n  await child.exec("date > /root/when");\n  console.log(child.id);\n}'),
        curl: `${shell}${start}\n${curl("sandboxes/$id/fork-tree", { count: 2 })}`,
        CLI: `${shell}id=$(sandling create --template ${template})\nsandling fork -n 2 $id`,
      };
    case "network":
      return {
        Python: python('print(sandbox.exec("curl -sI https://pypi.org | head -1").stdout)', ', network={"allow": ["pypi.org"]}'),
        TypeScript: typescript('const result = await sandbox.exec("curl -sI https://pypi.org | head -1");\nconsole.log(result.stdout);', ', network: { allow: ["pypi.org"] }'),
        curl: `${shell}${curl("sandboxes", { template, network: { mode: "allow", allow: ["pypi.org"] } })}`,
        CLI: `${shell}id=$(sandling create --template ${template} --allow pypi.org)\nsandling exec -c 'curl -sI https://pypi.org | head -1' $id`,
      };
    default:
      return {
        Python: python('print(sandbox.run_code("print(sum(range(101)))").stdout)'),
        TypeScript: typescript('const result = await sandbox.runCode("print(sum(range(101)))");\nconsole.log(result.stdout);'),
        curl: `${shell}${start}\n${curl("sandboxes/$id/exec", { language: "python", code: "print(sum(range(101)))" })}`,
        CLI: `${shell}sandling run --template ${template} -c 'print(sum(range(101)))'`,
      };
  }
}

export function Playground() {
  const templates = useLoad(() => get<Template[]>("/v1/templates"), []);
  const call = useSignal("run");
  const template = useSignal("base");
  const language = useSignal<(typeof LANGUAGES)[number]>("Python");
  const text = texts(call.value, { address: location.origin, template: template.value })[language.value];
  return (
    <Page title="Playground">
      <Card>
        <p class="muted">The same call in four languages, with the address of this server. Create a token, set the two variables, and paste.</p>
        <div class="row" style={{ marginBottom: "12px" }}>
          <Field label="Call">
            <select value={call.value} onChange={(event) => (call.value = event.currentTarget.value)}>
              {Object.entries(CALLS).map(([key, title]) => <option value={key}>{title}</option>)}
            </select>
          </Field>
          <Field label="Template">
            <select value={template.value} onChange={(event) => (template.value = event.currentTarget.value)}>
              {(templates.value ?? [{ name: "base" } as Template]).map((one) => <option>{one.name}</option>)}
            </select>
          </Field>
        </div>
        <div class="tabs" role="tablist" aria-label="Language">
          {LANGUAGES.map((one) => (
            <button role="tab" aria-selected={one === language.value} onClick={() => (language.value = one)}>{one}</button>
          ))}
        </div>
        <pre class="code" tabIndex={0} aria-label={`${language.value} code`}>{text}</pre>
        <div class="row" style={{ marginTop: "10px" }}>
          <Copy text={text} />
          <Button kind="quiet" onClick={() => window.open("/openapi.json", "_blank", "noopener")}>OpenAPI document</Button>
        </div>
      </Card>
    </Page>
  );
}
