// bundle.mjs LICENCE: the page as one script and one style, in out/: the same bytes of the same
// sources everywhere. What of other packages is in them is found by what was bundled, and goes with
// its licence: in the script, in out/copyright behind that of LICENCE, and for a machine to read in
// out/bundled.tsv (name, version, SHA-512 of the package, licence).
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const { outputFiles, metafile } = await build({
  entryPoints: { page: "src/main.tsx" },
  outdir: "out",
  bundle: true,
  minify: true,
  target: ["es2022"],
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  write: false,
});

const kPackage = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//;
const found = Object.keys(metafile.inputs).flatMap((path) => kPackage.exec(path)?.[1] ?? []);
const lock = JSON.parse(readFileSync("package-lock.json", "utf8")).packages;
const packages = [...new Set(found)].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const { version, license, integrity } = lock[folder];
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (file === undefined) throw new Error(`${name} has no licence to go with it`);
  const sum = Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");
  return { name, version, license, sum, text: readFileSync(`${folder}/${file}`, "utf8").trim() };
});

const notices = packages.map(
  ({ name, version, license, text }) => `Contains ${name} ${version} (${license}).\n${text}\n`,
);
for (const { path, contents, text } of outputFiles) {
  const isScript = path.endsWith(".js");
  writeFileSync(path, isScript ? `/*! ${notices.join("\n")}*/\n${text}` : contents);
}
const ours = readFileSync(process.argv[2], "utf8");
const inside = notices.map((one) => `\n---\nThe web page inside its daemon: ${one}`);
writeFileSync("out/copyright", ours + inside.join(""));
const rows = packages.map((p) => [p.name, p.version, p.sum, p.license].join("\t") + "\n");
writeFileSync("out/bundled.tsv", rows.join(""));
