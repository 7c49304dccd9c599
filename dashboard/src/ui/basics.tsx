// Small parts that every page uses.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { toast } from "../state/toasts";
import { ago, fullTime } from "./format";

const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 5_000);

/** A time in the reader's time zone; pointing at it shows it in full. */
export function Time({ at }: { at: string }) {
  return (
    <time dateTime={at} title={fullTime(at)}>
      {ago(at, Math.max(now.value, new Date(at).getTime() > now.value ? now.value : Date.now()))}
    </time>
  );
}

export function Badge({ status }: { status: string }) {
  return <span class={`badge badge-${/^[a-z_]+$/.test(status) ? status : "other"}`}>{status}</span>;
}

type ButtonProps = Omit<JSX.ButtonHTMLAttributes<HTMLButtonElement>, "onClick"> & {
  onClick?: () => unknown;
  kind?: "primary" | "danger" | "quiet";
};

/** A button that is disabled while what it started runs. */
export function Button({ kind, onClick, children, class: more, ...rest }: ButtonProps) {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    setBusy(true);
    try {
      await onClick?.();
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      type="button"
      {...rest}
      class={`button ${kind ? `button-${kind}` : ""} ${more ?? ""}`}
      disabled={Boolean(rest.disabled) || busy}
      onClick={onClick && (() => void click())}
    >
      {children}
    </button>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children && <div>{children}</div>}
    </div>
  );
}

export function Problem({ error, retry }: { error: Error; retry?: () => void }) {
  const needs = error instanceof ApiError && error.status === 403;
  return (
    <div class="problem" role="alert">
      <strong>{needs ? "Your token does not allow this" : "This did not work"}</strong>
      <p>{error.message}</p>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

export interface Loaded<T> {
  value?: T;
  error?: Error;
  reload: () => Promise<void>;
}

/** Loads something when the page opens, and again when `keys` change. */
export function useLoad<T>(load: () => Promise<T>, keys: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: Error }>({});
  const [round, setRound] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setState({ value }),
      (error: Error) => current && setState({ error }),
    );
    return () => {
      current = false;
    };
  }, [...keys, round]);
  return { ...state, reload: async () => setRound((number) => number + 1) };
}

/** What was loaded, or why it was not. */
export function Show<T>({ from, children }: { from: Loaded<T>; children: (value: T) => ComponentChildren }) {
  if (from.value !== undefined) return <>{children(from.value)}</>;
  if (from.error) return <Problem error={from.error} retry={() => void from.reload()} />;
  return <div class="loading">Loading …</div>;
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow copying here; select the text instead", "error");
    }
  };
  return (
    <Button kind="quiet" onClick={copy} aria-label={`${label} to the clipboard`}>
      {label}
    </Button>
  );
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  );
}

export function Card({ title, actions, children }: { title?: string; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card">
      {(title || actions) && (
        <header class="card-head">
          {title && <h2>{title}</h2>}
          {actions && <div class="row">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export function Stat({ label, value, more }: { label: string; value: ComponentChildren; more?: ComponentChildren }) {
  return (
    <div class="stat">
      <span class="stat-label">{label}</span>
      <span class="stat-value">{value}</span>
      {more && <span class="stat-more">{more}</span>}
    </div>
  );
}

/** A bar for a part of a whole. */
export function Meter({ label, used, total, text }: { label: string; used: number; total: number; text: string }) {
  const percent = total > 0 ? Math.min(100, (used / total) * 100) : 0;
  return (
    <div class="meter">
      <div class="meter-text">
        <span>{label}</span>
        <span>{text}</span>
      </div>
      <div class="meter-bar" role="meter" aria-label={label} aria-valuenow={Math.round(percent)} aria-valuemin={0} aria-valuemax={100}>
        <div class={percent > 90 ? "meter-fill meter-high" : "meter-fill"} style={{ width: `${percent}%` }} />
      </div>
    </div>
  );
}

export function Page({ title, actions, children }: { title: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <>
      <div class="page-head">
        <h1>{title}</h1>
        {actions && <div class="row">{actions}</div>}
      </div>
      {children}
    </>
  );
}
