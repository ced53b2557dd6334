// The page in a real browser: no errors, plots with marks, tables that sort, light and dark.
//
//   node browser.mjs PAGE.html [FOLDER FOR PICTURES]
//
// `playwright-core` is found by NODE_PATH or beside this file; CHROMIUM says where the browser is (/usr/bin/chromium).
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
const [page_file, pictures] = process.argv.slice(2);
assert(page_file, "say which page: node browser.mjs PAGE.html");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"],
});
let checks = 0;
const check = (what, holds) => { checks += 1; assert(holds, what); };

try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light", offline: true });
  const page = await context.newPage();
  const problems = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) problems.push(message.text()); });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("requestfailed", (request) => problems.push(`wants ${request.url()}`));
  await page.goto(pathToFileURL(resolve(page_file)).href);

  for (const id of ["gains", "machine", "roofline", "shapes", "choices", "prediction", "progress", "store"]) {
    check(`section ${id} is there`, await page.locator(`section#${id} h2`).isVisible());
  }
  for (const [id, mark] of [["gains", "circle"], ["roofline", "circle"], ["roofline", "line.roof"], ["shapes", "polyline"], ["prediction", ".pair"], ["progress", "path.curve"]]) {
    check(`${id} has ${mark}`, (await page.locator(`#${id} svg ${mark}`).count()) > 0);
  }
  // Every mark lies inside its picture.
  const stray = await page.evaluate(() => [...document.querySelectorAll("svg circle")].filter((c) => {
    const [, , width, height] = c.ownerSVGElement.getAttribute("viewBox").split(" ").map(Number);
    const [x, y] = [c.cx.baseVal.value, c.cy.baseVal.value];
    return !(x >= 0 && x <= width && y >= 0 && y <= height);
  }).length);
  check(`${stray} marks lie outside`, stray === 0);
  check("nothing reads NaN or undefined", !/NaN|undefined/.test(await page.locator("main").innerText()));

  // A click sorts upwards, the keyboard downwards.
  const table = page.locator("#choices table").first();
  const times = () => table.locator("tbody td:nth-child(4)").evaluateAll((cells) => cells.map((c) => Number(c.dataset.v)));
  const sorted = (list, sign) => list.every((x, i) => i === 0 || sign * (x - list[i - 1]) >= 0);
  const heading = table.locator("th:nth-child(4) button");
  await heading.click();
  check("a click sorts", sorted(await times(), 1));
  check("and says so", (await table.locator("th:nth-child(4)").getAttribute("aria-sort")) === "ascending");
  await heading.press("Enter");
  check("the keyboard sorts the other way", sorted(await times(), -1));
  const filter = page.locator("#choices .filter").first();
  if (await filter.count()) {
    await filter.fill("no such kernel");
    check("the filter hides rows", (await table.locator("tbody tr:visible").count()) === 0);
    await filter.fill("");
  }

  // A legend hides its marks.
  const key = page.locator("#roofline .legend button").first();
  const marks = page.locator(`#roofline svg circle[data-key="0"]:visible`);
  const before = await marks.count();
  await key.click();
  check("a legend hides", before === 0 || (await marks.count()) === 0);
  await key.click();
  check("and shows again", (await marks.count()) === before);

  // A tip follows the pointer.
  await page.locator("#gains svg circle").last().hover();
  check("a tip is shown", await page.locator("#tip").isVisible());
  check("with words", (await page.locator("#tip").innerText()).length > 10);

  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await background();
  if (pictures) await page.screenshot({ path: join(pictures, "report-light.png"), fullPage: true });
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await background();
  check("dark follows the system", light !== dark);
  if (pictures) await page.screenshot({ path: join(pictures, "report-dark.png"), fullPage: true });
  await page.locator("#theme").click();
  check("the button overrules it", (await background()) === light);

  await page.setViewportSize({ width: 390, height: 800 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(`a phone scrolls sideways by ${wide}`, wide <= 1);
  if (pictures) await page.screenshot({ path: join(pictures, "report-phone.png") });

  check(`the browser complains: ${problems.join("; ")}`, problems.length === 0);
  console.log(`report in a browser: ${checks} checks passed`);
} finally {
  await browser.close();
}
