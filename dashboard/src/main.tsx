import { render } from "preact";
import { restoreSession, session, signIn, signedOutReason } from "./api/client";
import { App } from "./app";
import { navigate, startRouter } from "./router";
import { startTheme } from "./state/theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/pages.css";

/** Signs in with the code of a one-time link, if the address has one, and removes it from the address. */
async function start(): Promise<void> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return restoreSession();
  navigate("/", true);
  try {
    await signIn({ code });
  } catch (error) {
    await restoreSession();
    if (!session.value) signedOutReason.value = (error as Error).message;
  }
}

startTheme();
startRouter();
render(<App />, document.getElementById("app")!);
void start();
