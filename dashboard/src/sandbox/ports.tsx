import { get, post, type Schemas } from "../api/client";
import { useSignal } from "@preact/signals";
import { attempt } from "../state/toasts";
import { Button, Card, Copy, Empty, Show, Time, useLoad } from "../ui/basics";
import type { TabProps } from "./page";

type Preview = Schemas["PreviewView"];

export function Ports({ sandbox }: TabProps) {
  const base = `/v1/sandboxes/${sandbox.id}`;
  const ports = useLoad(() => get<Schemas["PortList"]>(`${base}/ports`), [sandbox.id]);
  const previews = useSignal<Record<number, Preview>>({});
  const open = (port: number) =>
    attempt("The link was not created", async () => {
      const made = await post<Preview>(`${base}/preview-token`, { port });
      previews.value = { ...previews.value, [port]: made };
    });
  return (
    <Card title="Open ports" actions={<Button onClick={ports.reload}>Refresh</Button>}>
      <Show from={ports}>
        {({ ports: list }) =>
          list.length === 0 ? (
            <Empty title="Nothing listens in the sandbox">
              Start a server, for example <code>python3 -m http.server 8000</code>, and refresh.
            </Empty>
          ) : (
            <div class="table-box">
              <table>
                <thead><tr><th>Port</th><th>Preview</th><th /></tr></thead>
                <tbody>
                  {list.map(({ port }) => (
                    <tr key={port}>
                      <td>{port}</td>
                      <td>
                        {previews.value[port] ? (
                          <>
                            <a class="inline" href={previews.value[port].url} target="_blank" rel="noopener noreferrer">Open in a new tab</a>{" "}
                            <small>works until <Time at={previews.value[port].expires_at} />, on an origin of its own</small>
                          </>
                        ) : (
                          <span class="muted">no link yet</span>
                        )}
                      </td>
                      <td class="actions">
                        {previews.value[port] ? <Copy text={previews.value[port].url} label="Copy the link" /> : <Button onClick={() => open(port)}>Create a link</Button>}
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
  );
}
