import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { allows, session, signOut } from "./api/client";
import { AgentRun, Agents } from "./pages/agents";
import { Audit } from "./pages/audit";
import { Overview } from "./pages/overview";
import { Playground } from "./pages/playground";
import { Quotas } from "./pages/quotas";
import { Sandboxes } from "./pages/sandboxes";
import { Secrets } from "./pages/secrets";
import { SignIn } from "./pages/sign_in";
import { Snapshots } from "./pages/snapshots";
import { Templates } from "./pages/templates";
import { Tokens } from "./pages/tokens";
import { Volumes } from "./pages/volumes";
import { Webhooks } from "./pages/webhooks";
import { href, navigate, path } from "./router";
import { SandboxPage } from "./sandbox/page";
import { connected, sandboxes, startSandboxes } from "./state/sandboxes";
import { theme, type Theme } from "./state/theme";
import { dismiss, toasts } from "./state/toasts";
import { Button, Empty } from "./ui/basics";
import icon from "/icon.svg";

const MENU: [string, [string, string][]][] = [
  ["", [["/", "Overview"], ["/sandboxes", "Sandboxes"], ["/templates", "Templates"], ["/snapshots", "Snapshots"], ["/volumes", "Volumes"], ["/secrets", "Secrets"], ["/webhooks", "Webhooks"]]],
  ["Access", [["/tokens", "Tokens"], ["/quotas", "Quotas"], ["/audit", "Audit log"]]],
  ["Develop", [["/agents", "Agents"], ["/playground", "Playground"]]],
];

export function App() {
  if (session.value === undefined) return <div class="loading">Loading …</div>;
  return (
    <>
      {session.value ? <Layout key={session.value.csrf_token} /> : <SignIn />}
      <Toasts />
    </>
  );
}

function Layout() {
  useEffect(startSandboxes, []);
  useEffect(() => {
    // `g` and then a letter goes to a page; `/` goes to the search field.
    let before = "";
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (target.closest("input, textarea, select, .term-box, .editor, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      const pages: Record<string, string> = { o: "/", s: "/sandboxes", t: "/templates", n: "/snapshots", v: "/volumes", a: "/audit", p: "/playground" };
      if (before === "g" && pages[event.key]) navigate(pages[event.key]);
      else if (event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
      }
      before = event.key;
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  return (
    <div class="layout">
      <a class="skip" href="#main">Skip to the content</a>
      <Side />
      <main id="main" tabIndex={-1}>
        <Route />
      </main>
    </div>
  );
}

function Side() {
  const open = useSignal(false);
  const user = session.value!.user;
  const current = path.value;
  useEffect(() => {
    open.value = false;
  }, [current]);
  const isCurrent = (to: string) => (to === "/" ? current === "/" : current === to || current.startsWith(`${to}/`));
  return (
    <header class={open.value ? "side open" : "side"}>
      <div class="side-bar">
        <a class="brand" href={href("/")}>
          <img src={icon} alt="" />
          Sandling
        </a>
        <Button class="menu-button" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
          Menu
        </Button>
      </div>
      <nav aria-label="Pages">
        {MENU.map(([title, pages]) => (
          <>
            {title && <h2>{title}</h2>}
            {pages.map(([to, name]) => (
              <a href={href(to)} aria-current={isCurrent(to) ? "page" : undefined}>
                {name}
                {to === "/sandboxes" && <span class="count">{sandboxes.value.size}</span>}
              </a>
            ))}
          </>
        ))}
      </nav>
      <div class="side-foot">
        <span class={connected.value ? "live on" : "live"} role="status">
          {connected.value ? "Live" : "Reconnecting …"}
        </span>
        <label class="row">
          <span class="muted">Theme</span>
          <select class="grow" value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
            <option value="system">System</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <div class="who">
          <strong>{user.name || user.user_id}</strong>
          <div class="muted">
            {user.workspace} · {user.scope}
          </div>
        </div>
        <Button onClick={signOut}>Sign out</Button>
      </div>
    </header>
  );
}

function Route() {
  const [, page = "", item, tab] = path.value.split("/");
  useEffect(() => {
    const title = page ? page[0].toUpperCase() + page.slice(1) : "Overview";
    document.title = `${title} · Sandling`;
  }, [page]);
  switch (page) {
    case "":
      return <Overview />;
    case "sandboxes":
      return item ? <SandboxPage key={item} id={decodeURIComponent(item)} tab={tab ?? "summary"} /> : <Sandboxes />;
    case "templates":
      return <Templates />;
    case "snapshots":
      return <Snapshots />;
    case "volumes":
      return <Volumes />;
    case "secrets":
      return <Secrets />;
    case "webhooks":
      return allows("admin") ? <Webhooks /> : <NotAllowed what="This page" scope="admin" />;
    case "tokens":
      return <Tokens />;
    case "quotas":
      return <Quotas />;
    case "audit":
      return allows("admin") ? <Audit /> : <NotAllowed what="The audit log" scope="admin" />;
    case "agents":
      if (!allows("operator")) return <NotAllowed what="This page" scope="operator" />;
      return item ? <AgentRun key={item} id={decodeURIComponent(item)} /> : <Agents />;
    case "playground":
      return <Playground />;
    default:
      return (
        <Empty title="There is no such page">
          <a href={href("/")}>Go to the overview</a>
        </Empty>
      );
  }
}

function NotAllowed({ what, scope }: { what: string; scope: string }) {
  return (
    <Empty title={`${what} needs the scope ${scope}`}>
      Your token has the scope {session.value?.user.scope}. Sign in with another token to see it.
    </Empty>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div class={`toast toast-${toast.kind}`} key={toast.id}>
          <span>{toast.text}</span>
          <button class="icon-button" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
