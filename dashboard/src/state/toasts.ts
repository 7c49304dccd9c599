import { signal } from "@preact/signals";

export interface Toast {
  id: number;
  kind: "ok" | "error";
  text: string;
}

export const toasts = signal<Toast[]>([]);
let next = 1;

export function toast(text: string, kind: Toast["kind"] = "ok"): void {
  const id = next++;
  toasts.value = [...toasts.value, { id, kind, text }];
  setTimeout(() => dismiss(id), kind === "error" ? 12_000 : 4_000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** Does something, and says what went wrong if it fails. Returns whether it worked. */
export async function attempt(what: string, work: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await work();
    if (done) toast(done);
    return true;
  } catch (error) {
    toast(`${what}: ${(error as Error).message}`, "error");
    return false;
  }
}
