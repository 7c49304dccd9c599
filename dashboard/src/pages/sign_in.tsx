import { useSignal } from "@preact/signals";
import { signIn, signedOutReason } from "../api/client";
import icon from "/icon.svg";

export function SignIn() {
  const token = useSignal("");
  const error = useSignal("");
  const busy = useSignal(false);
  const send = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    try {
      await signIn({ token: token.value.trim() });
    } catch (problem) {
      error.value = (problem as Error).message;
    }
    busy.value = false;
  };
  const reason = error.value || signedOutReason.value;
  return (
    <main class="sign-in">
      <form class="card" onSubmit={(event) => void send(event)}>
        <h1 class="brand">
          <img src={icon} alt="" />
          Sandling
        </h1>
        {reason && (
          <div class="problem" role="alert">
            {reason}
          </div>
        )}
        <p>
          On the server's machine, <code>sandling dashboard</code> opens this page signed in. Elsewhere, paste a token.
        </p>
        <label class="field">
          <span>Token</span>
          <input type="password" name="token" autocomplete="off" required placeholder="sdl_…" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
          <small>
            <code>sandling token create NAME</code> makes one. The session has the token's scope and ends with it.
          </small>
        </label>
        <button class="button button-primary" type="submit" disabled={busy.value}>
          {busy.value ? "Signing in …" : "Sign in"}
        </button>
      </form>
    </main>
  );
}
