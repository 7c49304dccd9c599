import { useSignal } from "@preact/signals";
import { allows, del, get, post, segment, session, type Schemas } from "../api/client";
import { attempt } from "../state/toasts";
import { Badge, Button, Card, Copy, Empty, Field, Page, Show, Time, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";

type Token = Schemas["TokenView"];
const SCOPES: Record<string, string> = { read: "look at everything", run: "create and use sandboxes", admin: "manage tokens and settings of the workspace", operator: "manage workspaces and quotas" };

export function Tokens() {
  const workspace = useSignal("");
  const base = workspace.value ? `/v1/workspaces/${segment(workspace.value)}/tokens` : "/v1/me/tokens";
  const tokens = useLoad(() => get<Schemas["TokenList"]>(base), [base]);
  const workspaces = useLoad(async () => (allows("operator") ? get<Schemas["WorkspaceList"]>("/v1/workspaces") : { items: [] }), []);
  const adding = useSignal(false);
  const removing = useSignal<Token | null>(null);
  const made = useSignal("");
  const name = useSignal("");
  const scope = useSignal("run");
  const days = useSignal("30");
  if (!allows("admin")) return <Page title="Tokens"><Empty title="Tokens need the scope admin">Your token has the scope {session.value?.user.scope}.</Empty></Page>;
  const add = async () => {
    const done = await attempt("The token was not created", async () => {
      const answer = await post<{ token: string }>(base, { name: name.value, scope: scope.value, ...(days.value ? { expires_in_days: Number(days.value) } : {}) });
      made.value = answer.token;
    });
    void tokens.reload();
    return done;
  };
  const revoke = async () => {
    const done = await attempt("The token was not revoked", () => del(`${base}/${segment(removing.value!.prefix)}`), "Revoked");
    void tokens.reload();
    return done;
  };
  return (
    <Page
      title="Tokens"
      actions={
        <>
          {(workspaces.value?.items.length ?? 0) > 1 && (
            <select aria-label="Workspace" value={workspace.value} onChange={(event) => (workspace.value = event.currentTarget.value)}>
              <option value="">{session.value?.user.workspace}</option>
              {workspaces.value!.items.filter((one) => one.name !== session.value?.user.workspace).map((one) => <option>{one.name}</option>)}
            </select>
          )}
          <Button kind="primary" onClick={() => { name.value = ""; adding.value = true; }}>New token</Button>
        </>
      }
    >
      <Card>
        <Show from={tokens}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="This workspace has no tokens">Create one, and give it to a program or a person.</Empty>
            ) : (
              <div class="table-box">
                <table>
                  <thead><tr><th>Name</th><th>Prefix</th><th>Scope</th><th>Created</th><th>Expires</th><th>Last used</th><th><span class="sr">Actions</span></th></tr></thead>
                  <tbody>
                    {items.map((one) => (
                      <tr key={one.prefix}>
                        <td><strong>{one.name}</strong> {one.prefix === session.value?.user.user_id && <Badge status="this session" />}</td>
                        <td class="mono">{one.prefix}</td>
                        <td>{one.scope}</td>
                        <td class="nowrap"><Time at={one.created_at} /></td>
                        <td class="nowrap">{one.expires_at ? <Time at={one.expires_at} /> : "never"}</td>
                        <td class="nowrap">{one.last_used_at ? <Time at={one.last_used_at} /> : "never"}</td>
                        <td class="actions"><Button class="button-small" kind="danger" onClick={() => (removing.value = one)}>Revoke</Button></td>
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
        <Dialog title="New token" action="Create" close={() => (adding.value = false)} submit={add}>
          <Field label="Name"><input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
          <Field label="Scope" hint="Each scope includes those before it.">
            <select value={scope.value} onChange={(event) => (scope.value = event.currentTarget.value)}>
              {Object.entries(SCOPES).map(([key, text]) => <option value={key}>{key}: {text}</option>)}
            </select>
          </Field>
          <Field label="Expires after days" hint="Empty: never"><input type="number" min="1" max="3660" value={days.value} onInput={(event) => (days.value = event.currentTarget.value)} /></Field>
        </Dialog>
      )}
      {made.value && (
        <Dialog title="The new token" close={() => (made.value = "")}>
          <p>Copy it now; it is not shown again.</p>
          <div class="row"><code class="code wrap grow">{made.value}</code><Copy text={made.value} /></div>
        </Dialog>
      )}
      {removing.value && (
        <Dialog title={`Revoke ${removing.value.name}?`} action="Revoke" danger close={() => (removing.value = null)} submit={revoke}>
          <p>Everything that uses it is refused at once, including dashboards and previews.</p>
        </Dialog>
      )}
    </Page>
  );
}
