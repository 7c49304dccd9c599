import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

// `npm run dev` passes API requests on to a server at this address.
const server = process.env.SANDLING_API ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "/dashboard/",
  plugins: [preact({ devToolsEnabled: false, prefetchHighlight: false } as never)],
  build: {
    target: "es2022",
    // The directory holds a file of Git's; compress.mjs removes old files.
    emptyOutDir: false,
    // The Content-Security-Policy allows no inline script, and `data:` only for pictures.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: { "/v1": { target: server, ws: true }, "/metrics": server, "/version": server },
  },
});
