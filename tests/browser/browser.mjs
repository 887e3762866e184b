// A page in headless Chromium, driven line by line: a JSON object [action, arguments...] comes in, {"done": result} or
// {"failed": text} goes out. usage: node browser.mjs DIRECTORY_OF_PACKAGES URL PATIENCE_IN_SECONDS
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [directory, url, patience] = process.argv.slice(2);
const require = createRequire(`${directory}/`);
const { chromium } = require('playwright-core');
const axe = require.resolve('axe-core/axe.min.js');
const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
let page;
// What the browser itself complains of: a script that fails, a policy (CSP) that forbids something.
const complaints = [];

const actions = {
  // A new window of its own cookies; {} or options such as viewport, colorScheme, javaScriptEnabled.
  open: async (options) => {
    const context = await browser.newContext({ baseURL: url, ...options });
    context.setDefaultTimeout(Number(patience) * 1000);
    page = await context.newPage();
    page.on('console', (message) => {
      if (message.type() === 'error' && !/the server responded with a status of/.test(message.text())) complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
  },
  goto: async (path) => (await page.goto(path)).status(),
  click: (selector) => page.click(selector),
  fill: (selector, text) => page.fill(selector, text),
  check: (selector) => page.check(selector),
  press: (key) => page.keyboard.press(key),
  // Waits until a text is in what a selector finds.
  sees: (selector, text) => page.locator(selector).filter({ hasText: text }).first().waitFor(),
  misses: (selector, text) => page.locator(selector).filter({ hasText: text }).first().waitFor({ state: 'detached' }),
  text: (selector) => page.locator(selector).first().innerText(),
  count: (selector) => page.locator(selector).count(),
  focused: () => page.evaluate(() => document.activeElement.id),
  // The distance of an element from the top of the page.
  top: (selector) => page.locator(selector).first().evaluate((one) => one.getBoundingClientRect().top + window.scrollY),
  path: () => new URL(page.url()).pathname,
  width: (selector) => page.locator(selector ?? 'html').first().evaluate((one) => [one.scrollWidth, one.clientWidth]),
  // Tables that are wider than their place, also with longer durations, and durations that are on two lines.
  cut: () => page.evaluate(() => {
    const durations = [...document.querySelectorAll('td, dd')].filter((one) => /^\d+ (s|min|h|d)( \d+ (s|min|h))?$/.test(one.innerText.trim()));
    for (const one of durations) one.innerText = '7 min 20 s';
    const lines = (one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      return range.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight);
    };
    const tables = [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth);
    return [...tables.map((one) => one.ariaLabel), ...durations.filter((one) => lines(one) > 1.5).map((one) => one.outerHTML)];
  }),
  screenshot: async (file) => {
    await page.screenshot({ path: file, fullPage: true });
  },
  cookies: () => page.context().cookies(),
  complaints: () => complaints.splice(0),
  // What axe-core finds.
  axe: async () => {
    // A busy bridge may send the style sheet late.
    await page.waitForLoadState();
    // By the debugger: the policy of the page lets no script in.
    const source = require('node:fs').readFileSync(axe, 'utf8');
    await page.evaluate(source);
    const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    return found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(' ')}`);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [action, ...args] = JSON.parse(line);
  try {
    console.log(JSON.stringify({ done: (await actions[action](...args)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ failed: `${action} ${JSON.stringify(args)}: ${error.message}` }));
  }
}
await browser.close();
