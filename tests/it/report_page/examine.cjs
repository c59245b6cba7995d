// Opens pages in Chromium and prints what it finds as JSON. Arguments: the folder of node_modules, the folder of pages.
// One browser for all pages. SCREENSHOTS names a folder for pictures.
'use strict';
const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');

const [tools, folder] = process.argv.slice(2);
const { chromium } = require(path.join(tools, 'node_modules/playwright-core'));
const axe = fs.readFileSync(path.join(tools, 'node_modules/axe-core/axe.min.js'), 'utf8');
const WIDTHS = [375, 1400];
const SCHEMES = ['light', 'dark'];
const STOPS = 400;
// The pages that the keyboard walks through: one of each kind.
const WALKED = ['agent', 'failed', 'hostile_texts', 'killed', 'workflow'];

const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

function openAll() {
  document.querySelectorAll('details').forEach((part) => { part.open = true; });
}

// What a page has, read in the page.
function facts() {
  const all = [...document.querySelectorAll('*')];
  const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent.trim());
  const counted = ['details', 'table', 'caption', 'svg[role=img]', 'main', 'nav', 'header', 'footer', 'ins', 'del'];
  return {
    title: document.title,
    headings: texts('h1, h2, h3, h4'),
    sections: texts('h2'),
    counts: Object.fromEntries(counted.map((name) => [name, document.querySelectorAll(name).length])),
    foreign: all.map((one) => one.localName).filter((name) => /^(script|img|image|iframe|object|embed|form|input|base|textarea|foreignobject|use|video|audio)$/.test(name)),
    handlers: all.flatMap((one) => one.getAttributeNames().filter((name) => name.startsWith('on') || name === 'style')),
    links: all.map((one) => one.getAttribute('href') ?? one.getAttribute('xlink:href')).filter((link) => link && !link.startsWith('#') && link !== 'data:,'),
    broken: [...document.querySelectorAll('a[href^="#"]')].map((one) => one.getAttribute('href').slice(1)).filter((id) => !document.getElementById(id)),
    ran: Boolean(window.ran),
    text: document.body.innerText,
    invisible: /[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u0000-\u0008\u000b-\u001f\u007f-\u009f]/.test(document.documentElement.textContent),
  };
}

// Whether the focused element can be seen and has an outline; null at the end of the page.
function focus() {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  return {
    name: one.localName,
    text: (one.getAttribute('aria-label') ?? one.textContent).trim().slice(0, 60),
    isVisible: 0 < box.width && box.top < innerHeight && 0 < box.bottom && 0 <= box.left,
    hasOutline: style.outlineStyle !== 'none' && 1 <= parseFloat(style.outlineWidth),
    isClosed: one.localName === 'summary' && !one.parentElement.open,
  };
}

async function walk(page) {
  const stops = [];
  const stuck = [];
  while (stops.length < STOPS) {
    await page.keyboard.press('Tab');
    const stop = await page.evaluate(focus);
    if (!stop) break;
    stops.push(stop);
    if (stop.isClosed) {
      await page.keyboard.press('Enter');
      if ((await page.evaluate(focus)).isClosed) stuck.push(stop.text);
    }
  }
  const closed = await page.evaluate(() => document.querySelectorAll('details:not([open])').length);
  await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  const skipped = await page.evaluate(() => document.activeElement.id);
  return { stops: stops.length, first: stops[0]?.text, bad: stops.filter((one) => !one.isVisible || !one.hasOutline), stuck, closed, skipped };
}

// The first cells of the last table, sorted by its first column, downwards and upwards; null where it has no buttons.
async function sorted(page) {
  const buttons = page.locator('table').last().locator('thead button');
  if (!(await buttons.count())) return null;
  const cells = () => page.locator('table').last().locator('tbody th').allTextContents();
  const found = [];
  for (const order of ['ascending', 'descending']) {
    await buttons.first().focus();
    await page.keyboard.press('Enter');
    const head = page.locator('table').last().locator('thead th').first();
    if ((await head.getAttribute('aria-sort')) !== order) throw new Error(`not ${order}`);
    found.push(await cells());
  }
  return found;
}

async function widths(page, name) {
  const found = {};
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      if (process.env.SCREENSHOTS) {
        const file = path.join(process.env.SCREENSHOTS, `${name}-${width}-${colorScheme}.png`);
        await page.screenshot({ path: file, fullPage: true });
      }
    }
    found[width] = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      const wide = [...document.querySelectorAll('body *')].filter((one) => {
        const isInFrame = one.closest('.scroll, svg') && !one.matches('.scroll');
        return !isInFrame && clientWidth + 1 < one.getBoundingClientRect().right;
      });
      return { scrollWidth, clientWidth, wide: wide.map((one) => one.outerHTML.slice(0, 80)) };
    });
  }
  return found;
}

async function background(page) {
  const found = {};
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    found[colorScheme] = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  }
  return found;
}

// What paper shows, in the dark scheme and with nothing opened.
async function printed(page) {
  await page.evaluate(() => document.querySelectorAll('details').forEach((part) => { part.open = false; }));
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  const found = await page.evaluate(() => {
    const shown = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility({ contentVisibilityAuto: true }) && 0 < one.getBoundingClientRect().height).length;
    return { background: getComputedStyle(document.body).backgroundColor, patches: shown('.patch'), exchanges: shown('#exchanges'), nav: shown('nav') };
  });
  await page.emulateMedia({ media: 'screen', colorScheme: 'light' });
  return found;
}

// Accessibility; in the dark scheme only what depends on colours.
async function violations(page) {
  const found = [];
  await page.evaluate(axe);
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    const options = colorScheme === 'dark' ? { runOnly: ['color-contrast'] } : {};
    const result = await page.evaluate((given) => window.axe.run(document, { resultTypes: ['violations'], ...given }), options);
    for (const one of result.violations) {
      found.push(`${colorScheme} ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(' ; ')}`);
    }
  }
  return found;
}

// A tab, with a way to open a page in it that returns what goes wrong there from then on: messages of the console, errors,
// dialogs, requests. A new tab for each page would take most of the time.
async function tab(browser, options) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  let trouble = [];
  let own = '';
  page.on('console', (message) => trouble.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => trouble.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => { trouble.push('dialog'); dialog.dismiss(); });
  page.on('request', (request) => { if (request.url() !== own && request.url() !== 'data:,') trouble.push(`request: ${request.url()}`); });
  const open = async (url) => {
    trouble = [];
    own = url;
    await page.goto(url);
    return trouble;
  };
  return { page, open };
}

async function examine({ strict, open, plain }, name) {
  const url = pathToFileURL(path.join(folder, `${name}.html`)).href;
  const trouble = [await strict.open(url)];
  const { page } = strict;
  const found = { name, background: await background(page), printed: await printed(page) };
  found.sorted = await sorted(page);
  found.keyboard = WALKED.includes(name) ? await walk(page) : null;
  await page.evaluate(openAll);
  Object.assign(found, await page.evaluate(facts));
  found.widths = await widths(page, name);
  // Without the page's own policy only its escaping protects it.
  trouble.push(await open.open(url));
  await open.page.evaluate(openAll);
  found.violations = await violations(open.page);
  found.ran ||= await open.page.evaluate(() => Boolean(window.ran));
  trouble.push(await plain.open(url));
  const summary = plain.page.locator('summary').first();
  if (await summary.count()) await summary.click();
  found.withoutScript = await plain.page.evaluate(() => ({
    text: document.body.innerText.length,
    open: document.querySelector('details') ? document.querySelectorAll('details[open]').length : 1,
    sections: [...document.querySelectorAll('h2')].map((one) => one.textContent.trim()),
  }));
  found.trouble = trouble.flat();
  return found;
}

async function main() {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ARGUMENTS });
  const tabs = {
    strict: await tab(browser, {}),
    open: await tab(browser, { bypassCSP: true }),
    plain: await tab(browser, { javaScriptEnabled: false }),
  };
  const names = fs.readdirSync(folder).filter((name) => name.endsWith('.html')).map((name) => name.slice(0, -5));
  const found = [];
  for (const name of names.sort()) found.push(await examine(tabs, name));
  await browser.close();
  process.stdout.write(JSON.stringify(found));
}

main().catch((error) => { console.error(error); process.exit(1); });
