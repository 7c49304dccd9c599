import { useSignal } from "@preact/signals";
import { allows, del, get, post, segment, type Schemas } from "../api/client";
import { href } from "../router";
import { attempt } from "../state/toasts";
import { Button, Card, Empty, Field, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes, mebibytes, shortId } from "../ui/format";

type Volume = Schemas["VolumeView"];
type Action = { kind: "create" } | { kind: "clone" | "snapshots" | "delete"; volume: Volume };

export function Volumes() {
  const volumes = useLoad(() => get<Volume[]>("/v1/volumes"), []);
  const action = useSignal<Action | null>(null);
  const name = useSignal("");
  const size = useSignal("1024");
  const open = (next: Action) => {
    name.value = "";
    action.value = next;
  };
  const submit = async () => {
    const now = action.value!;
    const work = () => {
      if (now.kind === "create") return post("/v1/volumes", { name: name.value, size_mb: Number(size.value) });
      const path = `/v1/volumes/${segment(now.volume.name)}`;
      return now.kind === "delete" ? del(path) : post(`${path}/${now.kind}`, { name: name.value });
    };
    const done = await attempt("This did not work", work, "Done");
    void volumes.reload();
    return done;
  };
  const titles = { create: "New volume", clone: "Copy a volume", snapshots: "Keep a moment of a volume", delete: "Delete the volume?" };
  const now = action.value;
  return (
    <Page title="Volumes" actions={allows("run") && <Button kind="primary" onClick={() => open({ kind: "create" })}>New volume</Button>}>
      <Card>
        <Show from={volumes}>
          {(all) =>
            all.length === 0 ? (
              <Empty title="No volumes yet">A volume is a disk that outlives its sandboxes. Mount it with <code>sandling create --volume NAME:/data</code>.</Empty>
            ) : (
              <div class="table-box">
                <table>
                  <thead><tr><th>Name</th><th>Kind</th><th>Size</th><th>On disk</th><th>Used by</th><th>Created</th><th><span class="sr">Actions</span></th></tr></thead>
                  <tbody>
                    {all.map((one) => (
                      <tr key={one.name}>
                        <td><strong>{one.name}</strong></td>
                        <td>{one.kind}{one.from ? ` of ${one.from}` : ""}</td>
                        <td class="nowrap">{mebibytes(one.size_mb)}</td>
                        <td class="nowrap">{bytes(one.used_bytes)}</td>
                        <td>{one.attached_to.map((user) => <a class="mono inline" href={href(`/sandboxes/${user.sandbox_id}`)}>{shortId(user.sandbox_id)}{user.read_only ? " (read-only)" : ""} </a>)}</td>
                        <td class="nowrap"><Time at={one.created_at} /></td>
                        <td class="actions">
                          {allows("run") && (
                            <>
                              <Button class="button-small" onClick={() => open({ kind: "clone", volume: one })}>Copy</Button>{" "}
                              <Button class="button-small" onClick={() => open({ kind: "snapshots", volume: one })}>Keep a moment</Button>{" "}
                              <Button class="button-small" kind="danger" onClick={() => open({ kind: "delete", volume: one })}>Delete</Button>
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
      {now && (
        <Dialog title={titles[now.kind]} action={now.kind === "delete" ? "Delete" : "Create"} danger={now.kind === "delete"} close={() => (action.value = null)} submit={submit}>
          {now.kind === "delete" ? (
            <p>All files of {now.volume.name} are deleted. This cannot be undone.</p>
          ) : (
            <Field label="Name"><input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
          )}
          {now.kind === "create" && <Field label="Size in MiB"><input type="number" min="16" required value={size.value} onInput={(event) => (size.value = event.currentTarget.value)} /></Field>}
        </Dialog>
      )}
    </Page>
  );
}
