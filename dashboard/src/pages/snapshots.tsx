import { useSignal } from "@preact/signals";
import { allows, del, get, post, type Schemas } from "../api/client";
import { attempt } from "../state/toasts";
import { Button, Card, Empty, Field, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes, shortId } from "../ui/format";
import { CreateDialog } from "./create";

type Snapshot = Schemas["SnapshotView"];

export function Snapshots() {
  const snapshots = useLoad(() => get<Schemas["SnapshotList"]>("/v1/snapshots"), []);
  const starting = useSignal<string | null>(null);
  const removing = useSignal<Snapshot | null>(null);
  const naming = useSignal<Snapshot | null>(null);
  const name = useSignal("");
  const remove = async () => {
    const done = await attempt("The snapshot was not deleted", () => del(`/v1/snapshots/${removing.value!.id}`), "Deleted");
    void snapshots.reload();
    return done;
  };
  const template = () => attempt("The template was not created", () => post(`/v1/snapshots/${naming.value!.id}/template`, { name: name.value }), `Template ${name.value} created`);
  return (
    <Page title="Snapshots">
      <Card>
        <Show from={snapshots}>
          {({ snapshots: all }) =>
            all.length === 0 ? (
              <Empty title="No snapshots yet">Open a running sandbox and select Snapshot. A snapshot holds memory and disk; new sandboxes continue from it.</Empty>
            ) : (
              <div class="table-box">
                <table>
                  <thead><tr><th>Name</th><th>Sandbox</th><th>Template</th><th>Created</th><th>Size</th><th><span class="sr">Actions</span></th></tr></thead>
                  <tbody>
                    {all.map((one) => (
                      <tr key={one.id}>
                        <td><strong>{one.name ?? shortId(one.id)}</strong> {one.name && <small class="mono">{shortId(one.id)}</small>}</td>
                        <td class="mono">{shortId(one.sandbox_id)}</td>
                        <td>{one.template}</td>
                        <td><Time at={one.created_at} /></td>
                        <td class="nowrap" title={`${bytes(one.memory_bytes)} memory, ${bytes(one.disk_bytes)} disk`}>{bytes(one.size_bytes)}</td>
                        <td class="actions">
                          {allows("run") && (
                            <>
                              <Button class="button-small" onClick={() => (starting.value = one.id)}>Start a sandbox</Button>{" "}
                              <Button class="button-small" onClick={() => { name.value = ""; naming.value = one; }}>Make a template</Button>{" "}
                              <a class="button button-small" href={`/v1/snapshots/${one.id}/export`} download>Export</a>{" "}
                              <Button class="button-small" kind="danger" onClick={() => (removing.value = one)}>Delete</Button>
                            </>
                          )}
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
      {starting.value && <CreateDialog snapshot={starting.value} close={() => (starting.value = null)} />}
      {removing.value && (
        <Dialog title={`Delete ${removing.value.name ?? shortId(removing.value.id)}?`} action="Delete" danger close={() => (removing.value = null)} submit={remove}>
          <p>Sandboxes that were made from it continue.</p>
        </Dialog>
      )}
      {naming.value && (
        <Dialog title="Template from a snapshot" action="Create" close={() => (naming.value = null)} submit={template}>
          <Field label="Name of the template"><input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
        </Dialog>
      )}
    </Page>
  );
}
