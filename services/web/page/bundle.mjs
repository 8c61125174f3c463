// The page as one script and one style, in out/: the same bytes of the same sources everywhere.
// Preact goes with its licence.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

const licence = readFileSync("node_modules/preact/LICENSE", "utf8").trim();
await build({
  entryPoints: { page: "src/main.tsx" },
  outdir: "out",
  bundle: true,
  minify: true,
  target: ["es2022"],
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: `/*! Contains Preact.\n${licence}\n*/` },
  logLevel: "warning",
});
