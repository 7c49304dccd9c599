import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { allows, del, events, get, post, send, type Schemas, type Template } from "../api/client";
import { attempt } from "../state/toasts";
import { Badge, Button, Card, Empty, Field, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes, mebibytes, plain } from "../ui/format";
import { Editor } from "../ui/lazy";
import { CreateDialog, list } from "./create";

type Build = Schemas["BuildView"];

export function Templates() {
  const templates = useLoad(() => get<Template[]>("/v1/templates"), []);
  const builds = useLoad(() => get<Build[]>("/v1/templates/builds"), []);
  const building = useSignal(false);
  const watched = useSignal<Build | null>(null);
  const starting = useSignal<string | null>(null);
  const removing = useSignal<string | null>(null);
  const remove = async () => {
    const done = await attempt("The template was not deleted", () => del(`/v1/templates/${encodeURIComponent(removing.value!)}`), "Deleted");
    void templates.reload();
    return done;
  };
  return (
    <Page title="Templates" actions={allows("run") && <Button kind="primary" onClick={() => (building.value = true)}>Build a template</Button>}>
      <div class="stack">
        <Card>
          <Show from={templates}>
            {(all) =>
              all.length === 0 ? (
                <Empty title="No templates yet"><code>sandling template build code-interpreter</code> on the server builds the first one.</Empty>
              ) : (
                <div class="table-box">
                  <table>
                    <thead><tr><th>Name</th><th>Description</th><th>Default size</th><th>Image</th><th>Owner</th><th><span class="sr">Actions</span></th></tr></thead>
                    <tbody>
                      {all.map((one) => (
                        <tr key={one.name}>
                          <td class="name"><strong>{one.name}</strong> {!one.ready && <Badge status="building" />}</td>
                          <td class="muted" title={one.tools.join(", ")}>{one.description}</td>
                          <td class="nowrap">{one.cpu} CPU · {mebibytes(one.memory_mb)}</td>
                          <td class="nowrap">{bytes(one.size_bytes)}</td>
                          <td class={one.is_global ? "nowrap" : ""}>{one.is_global ? "built-in" : one.workspace}</td>
                          <td class="actions">
                            {allows("run") && <Button class="button-small" onClick={() => (starting.value = one.name)}>Start a sandbox</Button>}{" "}
                            {!one.is_global && allows("run") && <Button class="button-small" kind="danger" onClick={() => (removing.value = one.name)}>Delete</Button>}
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )
            }
          </Show>
        </Card>
        {watched.value && <BuildLog build={watched.value} close={() => (watched.value = null)} ended={() => { void templates.reload(); void builds.reload(); }} />}
        <Card title="Builds" actions={<Button onClick={builds.reload}>Refresh</Button>}>
          <Show from={builds}>
            {(all) =>
              all.length === 0 ? (
                <Empty title="No builds yet">Build a template from packages or from a Dockerfile.</Empty>
              ) : (
                <div class="table-box">
                  <table>
                    <thead><tr><th>Template</th><th>Status</th><th>Started</th><th>Size</th><th><span class="sr">Actions</span></th></tr></thead>
                    <tbody>
                      {all.map((one) => (
                        <tr key={one.id}>
                          <td>{one.name}</td>
                          <td><Badge status={one.status} /> <span class="muted">{one.error ?? ""}</span></td>
                          <td><Time at={one.started_at} /></td>
                          <td>{bytes(one.bytes)}</td>
                          <td class="actions"><Button class="button-small" onClick={() => (watched.value = one)}>Log</Button></td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )
            }
          </Show>
        </Card>
      </div>
      {building.value && <BuildDialog templates={templates.value ?? []} close={() => (building.value = false)} started={(build) => { watched.value = build; void builds.reload(); }} />}
      {starting.value && <CreateDialog template={starting.value} close={() => (starting.value = null)} />}
      {removing.value && (
        <Dialog title={`Delete ${removing.value}?`} action="Delete" danger close={() => (removing.value = null)} submit={remove}>
          <p>Sandboxes that were made from it continue.</p>
        </Dialog>
      )}
    </Page>
  );
}

function BuildLog({ build, close, ended }: { build: Build; close: () => void; ended: () => void }) {
  const text = useSignal("");
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const abort = new AbortController();
    text.value = "";
    const read = async () => {
      const response = await send("GET", `/v1/templates/builds/${build.id}/logs?follow=true`, undefined, { signal: abort.signal, headers: { accept: "text/event-stream" } });
      for await (const { event, text: line } of events(response)) {
        if (event !== "done") text.value += `${line}\n`;
      }
      ended();
    };
    read().catch((error: Error) => {
      if (error.name !== "AbortError") text.value += `[${error.message}]\n`;
    });
    return () => abort.abort();
  }, [build.id]);
  useEffect(() => box.current?.scrollTo(0, box.current.scrollHeight), [text.value]);
  return (
    <Card title={`Log of ${build.name}`} actions={<Button onClick={close}>Close</Button>}>
      <pre class="code" ref={box} tabIndex={0} aria-label="Build log">{plain(text.value) || "Waiting for the first line …"}</pre>
    </Card>
  );
}

interface BuildProps {
  templates: Template[];
  close: () => void;
  started: (build: Build) => void;
}

function BuildDialog({ templates, close, started }: BuildProps) {
  const name = useSignal("");
  const how = useSignal("packages");
  const from = useSignal("base");
  const packages = useSignal("");
  const npm = useSignal("");
  const pip = useSignal("");
  const dockerfile = useSignal("FROM base\nRUN apt-get update && apt-get install -y ffmpeg\n");
  const submit = () =>
    attempt("The build did not start", async () => {
      const body =
        how.value === "packages"
          ? { name: name.value, from: from.value, packages: list(packages.value), npm: list(npm.value), pip: list(pip.value) }
          : { name: name.value, dockerfile: dockerfile.value };
      started(await post<Build>("/v1/templates/build", body));
    });
  return (
    <Dialog title="Build a template" action="Build" wide close={close} submit={submit}>
      <Field label="Name"><input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
      <Field label="From">
        <select value={how.value} onChange={(event) => (how.value = event.currentTarget.value)}>
          <option value="packages">Packages on top of a template</option>
          <option value="dockerfile">A Dockerfile</option>
        </select>
      </Field>
      {how.value === "packages" ? (
        <>
          <Field label="Base"><select value={from.value} onChange={(event) => (from.value = event.currentTarget.value)}>{templates.filter((one) => one.is_global).map((one) => <option>{one.name}</option>)}</select></Field>
          <Field label="Debian packages" hint="For example: ffmpeg graphviz"><input value={packages.value} onInput={(event) => (packages.value = event.currentTarget.value)} /></Field>
          <Field label="Python packages" hint="From PyPI, for example: polars six==1.16.0"><input value={pip.value} onInput={(event) => (pip.value = event.currentTarget.value)} /></Field>
          <Field label="npm packages"><input value={npm.value} onInput={(event) => (npm.value = event.currentTarget.value)} /></Field>
        </>
      ) : (
        <Editor value={dockerfile.value} language="dockerfile" label="Dockerfile" change={(text) => (dockerfile.value = text)} />
      )}
    </Dialog>
  );
}
