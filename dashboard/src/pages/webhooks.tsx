import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { allows, del, get, post, segment, type Schemas } from "../api/client";
import { attempt } from "../state/toasts";
import { Badge, Button, Card, Copy, Empty, Field, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { list } from "./create";

type Webhook = Schemas["WebhookView"];
const EVERY_MS = 3_000;

export function Webhooks() {
  const webhooks = useLoad(() => get<Schemas["WebhookList"]>("/v1/webhooks"), []);
  const adding = useSignal(false);
  const made = useSignal<Schemas["CreatedWebhookView"] | null>(null);
  const removing = useSignal<Webhook | null>(null);
  const watched = useSignal<Webhook | null>(null);
  const url = useSignal("");
  const events = useSignal("");
  const description = useSignal("");
  const begin = () => {
    url.value = "";
    events.value = "sandbox.created sandbox.ended";
    description.value = "";
    adding.value = true;
  };
  const add = () =>
    attempt("The webhook was not created", async () => {
      made.value = await post<Schemas["CreatedWebhookView"]>("/v1/webhooks", { url: url.value.trim(), events: list(events.value), description: description.value });
      void webhooks.reload();
    });
  const remove = async () => {
    const done = await attempt("The webhook was not removed", () => del(`/v1/webhooks/${segment(removing.value!.id)}`), "Removed");
    if (watched.value?.id === removing.value!.id) watched.value = null;
    void webhooks.reload();
    return done;
  };
  return (
    <Page title="Webhooks" actions={allows("admin") && <Button kind="primary" onClick={begin}>New webhook</Button>}>
      <div class="stack">
        <Card>
          <p class="muted">A webhook sends the events of this workspace to your server, as signed requests. A request that fails is sent again for about 7 hours.</p>
          <Show from={webhooks}>
            {({ webhooks: all }) =>
              all.length === 0 ? (
                <Empty title="No webhooks yet">Create one here, or with <code>sandling webhook create URL --event sandbox.ended</code>.</Empty>
              ) : (
                <div class="table-box">
                  <table>
                    <thead><tr><th>URL</th><th>Events</th><th>Description</th><th>Created</th><th><span class="sr">Actions</span></th></tr></thead>
                    <tbody>
                      {all.map((one) => (
                        <tr key={one.id}>
                          <td class="mono wrap">{one.url}</td>
                          <td>{one.events.map((type) => <><span class="label">{type}</span>{" "}</>)}</td>
                          <td class="muted">{one.description}</td>
                          <td class="nowrap"><Time at={one.created_at} /></td>
                          <td class="actions">
                            <Button class="button-small" onClick={() => (watched.value = one)}>Deliveries</Button>{" "}
                            <Button class="button-small" kind="danger" onClick={() => (removing.value = one)}>Remove</Button>
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
        {watched.value && <Deliveries key={watched.value.id} webhook={watched.value} close={() => (watched.value = null)} />}
      </div>
      {adding.value && (
        <Dialog title="New webhook" action="Create" close={() => (adding.value = false)} submit={add}>
          <Field label="URL" hint="It must be at a public address, unless the operator allows others."><input type="url" required placeholder="https://example.org/hook" value={url.value} onInput={(event) => (url.value = event.currentTarget.value)} /></Field>
          <Field label="Events" hint="Types, such as sandbox.ended. sandbox.* and * stand for several."><input required class="mono" value={events.value} onInput={(event) => (events.value = event.currentTarget.value)} /></Field>
          <Field label="Description" hint="Optional"><input value={description.value} maxLength={200} onInput={(event) => (description.value = event.currentTarget.value)} /></Field>
        </Dialog>
      )}
      {made.value && (
        <Dialog title="The webhook was created" action="Done" close={() => (made.value = null)} submit={async () => true}>
          <p>Requests are signed with this key. Save it now: it is not shown again.</p>
          <p class="wrap"><code>{made.value.key}</code> <Copy text={made.value.key} /></p>
        </Dialog>
      )}
      {removing.value && (
        <Dialog title="Remove this webhook?" action="Remove" danger close={() => (removing.value = null)} submit={remove}>
          <p class="wrap"><code>{removing.value.url}</code> gets no more events, and its deliveries are deleted.</p>
        </Dialog>
      )}
    </Page>
  );
}

function Deliveries({ webhook, close }: { webhook: Webhook; close: () => void }) {
  const path = `/v1/webhooks/${segment(webhook.id)}/deliveries`;
  const deliveries = useLoad(() => get<Schemas["DeliveryList"]>(path), [path]);
  const open = useSignal<number | null>(null);
  const waiting = deliveries.value?.deliveries.some(({ state }) => state === "pending");
  useEffect(() => {
    const timer = setInterval(() => void deliveries.reload(), EVERY_MS);
    return () => clearInterval(timer);
  }, [path, waiting]);
  const replay = (number: number) => attempt("The delivery was not sent", () => post(`${path}/${number}/replay`), `Delivery ${number} is sent again`).then(() => deliveries.reload());
  return (
    <Card title={`Deliveries to ${webhook.url}`} actions={<Button onClick={close}>Close</Button>}>
      <Show from={deliveries}>
        {({ deliveries: all }) =>
          all.length === 0 ? (
            <Empty title="No deliveries yet">The next event of a listed type appears here.</Empty>
          ) : (
            <div class="table-box">
              <table>
                <thead><tr><th>Number</th><th>Type</th><th>State</th><th>Attempts</th><th>Result</th><th>Last attempt</th><th><span class="sr">Actions</span></th></tr></thead>
                <tbody>
                  {all.map((one) => (
                    <>
                      <tr key={one.number}>
                        <td>{one.number}</td>
                        <td class="mono">{one.type}</td>
                        <td><Badge status={one.state} /></td>
                        <td>{one.attempts}</td>
                        <td class="muted wrap">{one.error ?? (one.status ? `status ${one.status}` : "")}</td>
                        <td class="nowrap muted">{one.tried_at ? <Time at={one.tried_at} /> : "not yet"}</td>
                        <td class="actions">
                          <Button class="button-small" aria-expanded={open.value === one.number} onClick={() => (open.value = open.value === one.number ? null : one.number)}>Body</Button>{" "}
                          <Button class="button-small" onClick={() => replay(one.number)}>Replay</Button>
                        </td>
                      </tr>
                      {open.value === one.number && <tr><td colSpan={7}><pre tabIndex={0} aria-label="Body">{JSON.stringify(one.body, null, 2)}</pre></td></tr>}
                    </>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Show>
    </Card>
  );
}
