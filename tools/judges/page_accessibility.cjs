// axe-core on pages of the built site, in headless Chromium: headings, alt texts, contrast, names.
//
//   npm install --no-save axe-core puppeteer-core     # in any folder; name it in NODE_PATH
//   mkdocs build --strict --site-dir SITE
//   NODE_PATH=FOLDER/node_modules node tools/judges/page_accessibility.cjs SITE [--only TEXT]
//       [--pictures FOLDER]
//
// Every page of Start, How to, Gallery and the front page is opened at 1,400 px in dark and in light,
// and at 400 px in light; --only takes the pages whose address has a text, --pictures saves a picture of each.
// CHROMIUM names the browser (chromium). Exits with 1 if a page has a violation, or is wider than
// the window.

const fs = require("fs");
const http = require("http");
const path = require("path");
const axe = require("axe-core");
const puppeteer = require("puppeteer-core");

const KINDS = ["", "start", "how_to", "gallery"];
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript",
  ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json" };

function option(name) {
  const at = process.argv.indexOf(name);
  return at < 0 ? "" : process.argv[at + 1];
}

function find_browser() {
  const named = process.env.CHROMIUM || "chromium";
  const folders = (process.env.PATH || "").split(":");
  const found = folders.map((x) => path.join(x, named)).find((x) => fs.existsSync(x));
  return found || named;
}

function list_pages(site) {
  const pages = fs.readdirSync(site, { recursive: true })
    .filter((x) => x.endsWith("index.html"))
    .filter((x) => KINDS.includes(x.split("/").slice(0, -1)[0] || ""))
    .map((x) => x.slice(0, -"index.html".length));
  return pages.filter((x) => x.includes(option("--only"))).sort();
}

function serve(site) {
  const server = http.createServer((request, response) => {
    let file = path.join(site, decodeURIComponent(request.url.split("?")[0]));
    if (file.endsWith("/")) file += "index.html";
    if (!fs.existsSync(file)) { response.writeHead(404).end(); return; }
    response.writeHead(200, { "Content-Type": TYPES[path.extname(file)] || "text/plain" });
    fs.createReadStream(file).pipe(response);
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

async function check_page(tab, address, width, scheme) {
  await tab.setViewport({ width, height: 1000 });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.goto(address, { waitUntil: "load" });
  await tab.evaluate(axe.source);
  const violations = (await tab.evaluate(() => axe.run({ resultTypes: ["violations"] }))).violations;
  const told = violations.flatMap((x) => x.nodes.slice(0, 5).map((node) =>
    `${x.id} (${x.impact}) ${node.target.join(" ")}: ` +
    `${node.any.concat(node.all)[0]?.message || x.help}`));
  const wide = await tab.evaluate(() => document.documentElement.scrollWidth);
  if (wide > width) told.push(`the page is ${wide} px wide`);
  return told;
}

async function main() {
  const site = path.resolve(process.argv[2]);
  const server = await serve(site);
  const browser = await puppeteer.launch(
    { executablePath: find_browser(), args: ["--no-sandbox", "--disable-gpu"] });
  const tab = await browser.newPage();
  await tab.evaluateOnNewDocument(() => localStorage.clear()); // the scheme of the page before
  const pages = list_pages(site);
  let faults = 0;
  for (const page of pages) {
    const address = `http://127.0.0.1:${server.address().port}/${page}`;
    for (const width of [1400, 400]) {
      for (const scheme of width === 1400 ? ["dark", "light"] : ["light"]) {
        for (const text of await check_page(tab, address, width, scheme)) {
          faults += 1;
          console.log(`${page || "/"} at ${width} px, ${scheme}: ${text}`);
        }
      }
      if (option("--pictures")) {
        const name = (page || "index").replace(/\/$/, "").replaceAll("/", "_");
        await tab.screenshot(
          { path: path.join(option("--pictures"), `${name}_${width}.png`), fullPage: true });
      }
    }
  }
  await browser.close();
  server.close();
  console.log(`${pages.length} pages, ${faults} faults`);
  process.exit(faults || !pages.length ? 1 : 0);
}

main();
