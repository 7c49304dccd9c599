import { useSignal } from "@preact/signals";
import { allows, del, get, post, put, segment, session, type Schemas } from "../api/client";
import { sandboxes } from "../state/sandboxes";
import { attempt } from "../state/toasts";
import { Button, Card, Field, Meter, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { mebibytes } from "../ui/format";

type Quota = Schemas["QuotaView"];
type Limits = Quota["limits"];

const FIELDS: [keyof Limits, string][] = [
  ["sandboxes", "Sandboxes"],
  ["cpu", "CPUs"],
  ["memory_mb", "Memory in MiB"],
  ["disk_mb", "Disk in MiB"],
  ["creates_per_minute", "Creates per minute"],
  ["requests_per_second", "Requests per second"],
  ["open_requests", "Open requests"],
];

export function Quotas() {
  const own = session.value!.user.workspace;
  const workspace = useSignal(own);
  const path = workspace.value === own && !allows("operator") ? "/v1/quota" : `/v1/workspaces/${segment(workspace.value)}/quota`;
  const quota = useLoad(() => get<Quota>(path), [path, sandboxes.value.size]);
  const workspaces = useLoad(async () => (allows("operator") ? get<Schemas["WorkspaceList"]>("/v1/workspaces") : { items: [] }), []);
  const dialog = useSignal<"limits" | "workspace" | "delete" | null>(null);
  const draft = useSignal<Record<string, string>>({});
  const name = useSignal("");
  const save = async () => {
    const body = Object.fromEntries(FIELDS.map(([key]) => [key, draft.value[key] ? Number(draft.value[key]) : null]));
    const done = await attempt("The quota was not changed", () => put(path, body), "The quota is in force");
    void quota.reload();
    return done;
  };
  const add = async () => {
    const done = await attempt("The workspace was not created", () => post("/v1/workspaces", { name: name.value }), "Created");
    void workspaces.reload();
    return done;
  };
  const remove = async () => {
    const done = await attempt("The workspace was not deleted", () => del(`/v1/workspaces/${segment(workspace.value)}`), "Deleted");
    if (done) workspace.value = own;
    void workspaces.reload();
    return done;
  };
  const edit = (limits: Limits) => {
    draft.value = Object.fromEntries(FIELDS.map(([key]) => [key, limits[key] ? String(limits[key]) : ""]));
    dialog.value = "limits";
  };
  const meter = (label: string, used: number, limit: number | null | undefined, text: (value: number) => string) => <Meter label={label} used={limit ? used : 0} total={limit || 1} text={limit ? `${text(used)} of ${text(limit)}` : `${text(used)}, no limit`} />;
  return (
    <Page title="Quotas" actions={allows("operator") && <Button kind="primary" onClick={() => { name.value = ""; dialog.value = "workspace"; }}>New workspace</Button>}>
      <div class="grid">
        <Card title={`Workspace ${workspace.value}`} actions={allows("operator") && quota.value && <Button onClick={() => edit(quota.value!.limits)}>Change limits</Button>}>
          <Show from={quota}>
            {({ used, limits }) => (
              <>
                {meter("Sandboxes", used.sandboxes, limits.sandboxes, String)}
                {meter("CPUs", used.cpu, limits.cpu, String)}
                {meter("Memory", used.memory_mb, limits.memory_mb, mebibytes)}
                {meter("Disk", used.disk_mb, limits.disk_mb, mebibytes)}
                <dl class="facts" style={{ marginTop: "14px" }}>
                  {FIELDS.slice(4).map(([key, label]) => (<><dt>{label}</dt><dd>{limits[key] ?? "no limit"}</dd></>))}
                </dl>
              </>
            )}
          </Show>
        </Card>
        {allows("operator") && (
          <Card title="Workspaces">
            <Show from={workspaces}>
              {({ items }) => (
                <div class="table-box">
                  <table>
                    <thead><tr><th>Name</th><th>Created</th><th><span class="sr">Actions</span></th></tr></thead>
                    <tbody>
                      {items.map((one) => (
                        <tr key={one.name}>
                          <td><strong>{one.name}</strong></td>
                          <td><Time at={one.created_at} /></td>
                          <td class="actions">
                            <Button class="button-small" onClick={() => (workspace.value = one.name)}>Show its quota</Button>{" "}
                            {one.name !== own && <Button class="button-small" kind="danger" onClick={() => { workspace.value = one.name; dialog.value = "delete"; }}>Delete</Button>}
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )}
            </Show>
          </Card>
        )}
      </div>
      {dialog.value === "limits" && (
        <Dialog title={`Limits of ${workspace.value}`} close={() => (dialog.value = null)} submit={save}>
          {FIELDS.map(([key, label]) => (
            <Field label={label} hint="Empty: no limit"><input type="number" min="1" value={draft.value[key]} onInput={(event) => (draft.value = { ...draft.value, [key]: event.currentTarget.value })} /></Field>
          ))}
        </Dialog>
      )}
      {dialog.value === "workspace" && (
        <Dialog title="New workspace" action="Create" close={() => (dialog.value = null)} submit={add}>
          <Field label="Name" hint="Tokens of one workspace see nothing of another."><input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
        </Dialog>
      )}
      {dialog.value === "delete" && (
        <Dialog title={`Delete ${workspace.value}?`} action="Delete" danger close={() => (dialog.value = null)} submit={remove}>
          <p>Its sandboxes end, its snapshots and volumes are deleted, and its tokens stop working.</p>
        </Dialog>
      )}
    </Page>
  );
}
