import { useSignal } from "@preact/signals";
import { allows, del, get, put, segment, type Schemas } from "../api/client";
import { attempt } from "../state/toasts";
import { Button, Card, Empty, Field, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { list } from "./create";

export function Secrets() {
  const secrets = useLoad(() => get<Schemas["SecretList"]>("/v1/secrets"), []);
  const adding = useSignal(false);
  const removing = useSignal<string | null>(null);
  const name = useSignal("");
  const value = useSignal("");
  const hosts = useSignal("");
  const add = async () => {
    const done = await attempt("The secret was not stored", () => put(`/v1/secrets/${segment(name.value)}`, { value: value.value, hosts: list(hosts.value) }), `${name.value} stored`);
    value.value = "";
    void secrets.reload();
    return done;
  };
  const remove = async () => {
    const done = await attempt("The secret was not removed", () => del(`/v1/secrets/${segment(removing.value!)}`), "Removed");
    void secrets.reload();
    return done;
  };
  return (
    <Page title="Secrets" actions={allows("admin") && <Button kind="primary" onClick={() => { name.value = ""; hosts.value = ""; adding.value = true; }}>New secret</Button>}>
      <Card>
        <p class="muted">A sandbox only ever sees a placeholder. The gateway replaces it with the value, and only in requests to the listed hosts. No page and no route shows a value.</p>
        <Show from={secrets}>
          {({ secrets: all }) =>
            all.length === 0 ? (
              <Empty title="No secrets yet">Store an API key here, and give sandboxes its name instead of its value.</Empty>
            ) : (
              <div class="table-box">
                <table>
                  <thead><tr><th>Name</th><th>Hosts</th><th>Where in a request</th><th>Created</th><th><span class="sr">Actions</span></th></tr></thead>
                  <tbody>
                    {all.map((one) => (
                      <tr key={one.name}>
                        <td><strong>{one.name}</strong></td>
                        <td class="mono">{one.hosts.join(", ")}</td>
                        <td>{one.placements.join(", ")}</td>
                        <td><Time at={one.created_at} /></td>
                        <td class="actions">{allows("admin") && <Button class="button-small" kind="danger" onClick={() => (removing.value = one.name)}>Remove</Button>}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )
          }
        </Show>
      </Card>
      {adding.value && (
        <Dialog title="New secret" action="Store" close={() => (adding.value = false)} submit={add}>
          <Field label="Name"><input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
          <Field label="Value" hint="It is stored encrypted and never shown again."><input type="password" required autocomplete="off" value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} /></Field>
          <Field label="Hosts" hint="For example: api.openai.com"><input required value={hosts.value} onInput={(event) => (hosts.value = event.currentTarget.value)} /></Field>
        </Dialog>
      )}
      {removing.value && (
        <Dialog title={`Remove ${removing.value}?`} action="Remove" danger close={() => (removing.value = null)} submit={remove}>
          <p>Sandboxes that use it lose it at once.</p>
        </Dialog>
      )}
    </Page>
  );
}
