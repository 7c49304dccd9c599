import { useSignal } from "@preact/signals";
import { post } from "../api/client";
import { Badge, Button, Empty } from "../ui/basics";
import { Terminal } from "../ui/lazy";
import type { TabProps } from "./page";

interface Tab {
  id: string;
  title: string;
}

/** Terminals stay open when the page is left or reloaded, so their ids are kept. */
function stored(key: string): Tab[] {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "[]") as Tab[];
  } catch {
    return [];
  }
}

function fresh(number: number): Tab {
  return { id: `dashboard-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`, title: `Terminal ${number}` };
}

export function Terminals({ sandbox }: TabProps) {
  const key = `sandling.terminals.${sandbox.id}`;
  const tabs = useSignal<Tab[]>(stored(key).length ? stored(key) : [fresh(1)]);
  const current = useSignal(tabs.value[0].id);
  const states = useSignal<Record<string, string>>({});
  const save = (next: Tab[]) => {
    tabs.value = next;
    sessionStorage.setItem(key, JSON.stringify(next));
  };
  if (!stored(key).length && tabs.value.length) sessionStorage.setItem(key, JSON.stringify(tabs.value));
  const add = () => {
    const tab = fresh(tabs.value.length + 1);
    save([...tabs.value, tab]);
    current.value = tab.id;
  };
  const close = (id: string) => {
    const next = tabs.value.filter((tab) => tab.id !== id);
    save(next);
    if (current.value === id) current.value = next[0]?.id ?? "";
    if (!(states.value[id] === "ended")) post(`/v1/sandboxes/${sandbox.id}/execs/${id}/signal`, { signal: "HUP" }).catch(() => {});
  };
  return (
    <div class="terminals">
      <div class="tabs" role="tablist" aria-label="Terminals">
        {tabs.value.map(({ id, title }) => (
          <button role="tab" aria-selected={id === current.value} onClick={() => (current.value = id)}>
            {title}
          </button>
        ))}
      </div>
      <div class="row" style={{ padding: "6px 10px", borderBottom: "1px solid var(--line)" }}>
        <Button class="button-small" onClick={add}>New terminal</Button>
        {current.value && <Button class="button-small" onClick={() => close(current.value)}>Close this terminal</Button>}
        {current.value && <Badge status={states.value[current.value] ?? "connecting"} />}
        <small>A terminal continues when you leave this page, and shows its recent output when you return.</small>
      </div>
      {tabs.value.length === 0 && <Empty title="No terminal is open"><Button kind="primary" onClick={add}>New terminal</Button></Empty>}
      {tabs.value.map(({ id }) => (
        <Terminal
          key={id}
          sandbox={sandbox.id}
          id={id}
          visible={id === current.value}
          ended={() => save(tabs.value)}
          state={(text) => (states.value = { ...states.value, [id]: text })}
        />
      ))}
    </div>
  );
}
