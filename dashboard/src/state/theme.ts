import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "sandling.theme";

export const theme = signal<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");
const system = matchMedia("(prefers-color-scheme: dark)");
export const dark = signal(false);

export function startTheme(): void {
  const apply = () => {
    dark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
    document.documentElement.dataset.theme = dark.value ? "dark" : "light";
  };
  effect(() => {
    localStorage.setItem(KEY, theme.value);
    apply();
  });
  system.addEventListener("change", apply);
}
