import { Badge, Card } from "../ui/basics";
import type { TabProps } from "./page";

const MEANING: Record<string, string> = {
  accelerator: "How the virtual machine runs: kvm uses the processor, tcg emulates it",
  cgroup: "The kernel limits the machine's memory, processor and processes",
  ipc_namespace: "It shares no memory segments or queues with the host",
  landlock: "The kernel limits which files QEMU can open",
  mount_namespace: "It sees only the files that it needs",
  network_namespace: "It has no network of its own; the gateway is the only way out",
  no_capabilities: "It has no root privileges of any kind",
  no_new_privs: "It can never gain privileges",
  own_user: "No other running machine has the same user",
  pid_namespace: "It sees no other processes",
  seccomp: "The kernel refuses system calls that QEMU does not need",
  unprivileged_user: "It runs as an ordinary user of the host",
  user_namespace: "Its user has no rights outside",
};

function shown(value: unknown): string {
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "string") return value;
  const { version } = (value ?? {}) as { version?: string };
  return version ?? JSON.stringify(value);
}

function meaning(name: string, value: unknown): string {
  const { controllers } = (value ?? {}) as { controllers?: string[] };
  return (MEANING[name] ?? "") + (controllers ? `: ${controllers.join(", ")}` : "");
}

export function Boundary({ sandbox }: TabProps) {
  return (
    <Card title="What separates this sandbox from the host">
      <p class="muted">The server reads this back from the running process; it is not what was configured, but what is in force.</p>
      <ul class="checks">
        {Object.entries(sandbox.boundary as Record<string, unknown>).map(([name, value]) => (
          <li>
            <Badge status={shown(value)} />
            <strong>{name.replaceAll("_", " ")}</strong>
            <small>{meaning(name, value)}</small>
          </li>
        ))}
      </ul>
    </Card>
  );
}
