import { useSignal } from "@preact/signals";
import { get, post, type Sandbox, type Template } from "../api/client";
import { navigate } from "../router";
import { touch } from "../state/sandboxes";
import { attempt } from "../state/toasts";
import { Field, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";

/** Reads `key=value` words. */
export function pairs(text: string): Record<string, string> {
  const words = text.split(/[\s,]+/).filter((word) => word.includes("="));
  return Object.fromEntries(words.map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
}

export const list = (text: string) => text.split(/[\s,]+/).filter(Boolean);

interface CreateProps {
  close: () => void;
  template?: string;
  snapshot?: string;
}

export function CreateDialog({ close, template: given, snapshot }: CreateProps) {
  const templates = useLoad(() => get<Template[]>("/v1/templates"), []);
  const template = useSignal(given ?? "base");
  const name = useSignal("");
  const labels = useSignal("");
  const minutes = useSignal("60");
  const network = useSignal("deny");
  const allow = useSignal("pypi npm");
  const checkpoints = useSignal(true);
  const submit = async () => {
    const body = {
      ...(snapshot ? { from_snapshot: snapshot } : { template: template.value }),
      labels: pairs(labels.value),
      metadata: name.value ? { name: name.value } : {},
      ttl_seconds: Math.max(1, Number(minutes.value)) * 60,
      checkpoints: checkpoints.value ? "every-exec" : "never",
      network: { mode: network.value, ...(network.value === "allow" ? { allow: list(allow.value) } : {}) },
    };
    return attempt("The sandbox was not created", async () => {
      const made = await post<Sandbox>("/v1/sandboxes", body);
      touch(made.id);
      navigate(`/sandboxes/${made.id}`);
    });
  };
  return (
    <Dialog title={snapshot ? "New sandbox from a snapshot" : "New sandbox"} action="Create" close={close} submit={submit}>
      {!snapshot && (
        <Field label="Template">
          <select value={template.value} onChange={(event) => (template.value = event.currentTarget.value)}>
            {(templates.value ?? [{ name: template.value } as Template]).map((one) => <option>{one.name}</option>)}
          </select>
        </Field>
      )}
      <Field label="Name" hint="Optional; it only helps you find the sandbox.">
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </Field>
      <Field label="Labels" hint="For example: team=search task=42">
        <input value={labels.value} onInput={(event) => (labels.value = event.currentTarget.value)} />
      </Field>
      <Field label="Time to live, in minutes">
        <input type="number" min="1" required value={minutes.value} onInput={(event) => (minutes.value = event.currentTarget.value)} />
      </Field>
      <Field label="Network">
        <select value={network.value} onChange={(event) => (network.value = event.currentTarget.value)}>
          <option value="deny">No network</option>
          <option value="allow">Only what is listed</option>
          <option value="learn">Everything public, and remember what was used</option>
          <option value="open">Everything public</option>
        </select>
      </Field>
      {network.value === "allow" && (
        <Field label="Allowed names" hint="Host names, or groups such as pypi, npm, debian and github.">
          <input value={allow.value} onInput={(event) => (allow.value = event.currentTarget.value)} />
        </Field>
      )}
      <label class="row">
        <input type="checkbox" checked={checkpoints.value} onChange={(event) => (checkpoints.value = event.currentTarget.checked)} />
        Make a checkpoint before every command, so that you can go back
      </label>
    </Dialog>
  );
}
