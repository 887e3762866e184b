// Functions of the console's pages in addition to htmx. Reading works without JavaScript.
'use strict';

// The switch between UTC and the time zone of the browser. Pages contain UTC.
const zone = document.getElementById('zone');
const zoneName = document.getElementById('zone-name');
const isLocal = () => localStorage.getItem('zone') === 'local';
const localName = Intl.DateTimeFormat().resolvedOptions().timeZone;
const two = (number) => String(number).padStart(2, '0');
const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;
const written = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date)}:${two(date.getSeconds())}`;
const utc = (date) => new Date(date.getTime() + date.getTimezoneOffset() * 60000);
const inZone = (date) => (isLocal() ? date : utc(date));

// Times in the chosen zone, and labels for the cells of tables that become cards on a phone.
const localize = (part) => {
  for (const time of part.querySelectorAll('time[datetime]')) time.textContent = written(inZone(new Date(time.dateTime)));
  for (const label of part.querySelectorAll('text[data-time]')) label.textContent = clock(inZone(new Date(label.dataset.time * 1000)));
  for (const table of part.querySelectorAll('table.rows')) {
    const labels = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, column) => { cell.dataset.label = labels[column]; });
    table.classList.add('cards');
  }
};
const showZone = () => {
  zoneName.textContent = `Times in ${isLocal() ? localName : 'UTC'}`;
  zone.textContent = isLocal() ? 'UTC' : 'Local time';
  localize(document);
};
if (zone) {
  zone.hidden = false;
  zone.addEventListener('click', () => {
    localStorage.setItem('zone', isLocal() ? 'utc' : 'local');
    showZone();
  });
  showZone();
}

// Pages are not refreshed while hidden or paused. The header marks requests that do not extend a login.
const pause = document.getElementById('pause');
if (pause && document.querySelector('[hx-trigger^="every"]')) {
  const show = () => {
    const paused = sessionStorage.getItem('paused') === 'yes';
    pause.setAttribute('aria-pressed', String(paused));
  };
  pause.hidden = false;
  pause.addEventListener('click', () => {
    sessionStorage.setItem('paused', sessionStorage.getItem('paused') === 'yes' ? 'no' : 'yes');
    show();
  });
  show();
}
document.body.addEventListener('htmx:beforeRequest', (event) => {
  const writing = [...document.querySelectorAll('#live input:not([type])')].some((input) => input.value || input === document.activeElement);
  if (document.hidden || writing || sessionStorage.getItem('paused') === 'yes') event.preventDefault();
});
document.body.addEventListener('htmx:configRequest', (event) => {
  event.detail.headers['X-Refresh'] = '1';
});

// Tables keep their scroll positions and selections.
let positions = [];
let selected = new Set();
document.body.addEventListener('htmx:beforeSwap', () => {
  positions = [...document.querySelectorAll('#live .scroll')].map((table) => [table.scrollLeft, table.scrollTop]);
  selected = new Set([...document.querySelectorAll('#live input:checked')].map((input) => input.id));
});
document.body.addEventListener('htmx:afterSwap', () => {
  const live = document.getElementById('live');
  live.querySelectorAll('.scroll').forEach((table, index) => {
    if (positions[index]) [table.scrollLeft, table.scrollTop] = positions[index];
  });
  live.querySelectorAll('input[type="checkbox"]').forEach((input) => { input.checked = selected.has(input.id); });
  localize(live);
});
// Problems that are not new are not announced again. They are compared in the chosen time zone.
document.body.addEventListener('htmx:oobBeforeSwap', (event) => {
  const { target, fragment } = event.detail;
  localize(fragment);
  if (target.textContent.trim() === fragment.textContent.trim()) event.detail.shouldSwap = false;
});

// Report that the page is not up to date.
const stale = document.getElementById('stale');
const showStale = (text) => {
  if (stale.textContent !== text) stale.textContent = text;
  stale.hidden = !text;
};
for (const name of ['htmx:sendError', 'htmx:timeout', 'htmx:responseError']) {
  document.body.addEventListener(name, () => showStale('The bridge does not answer, so this page is not up to date.'));
}
document.body.addEventListener('htmx:afterOnLoad', (event) => {
  if (event.detail.xhr.status < 400) showStale('');
});

// The slash focuses the field that searches the whole bridge.
document.addEventListener('keydown', (event) => {
  const inField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key !== '/' || inField || event.ctrlKey || event.altKey || event.metaKey) return;
  const search = document.getElementById('find');
  if (search) {
    event.preventDefault();
    search.focus();
  }
});

// Live views. Messages are inserted as text.
const view = document.getElementById('view');
if (view) {
  const maxRows = 200;
  const state = document.getElementById('view-state');
  state.textContent = 'Connecting …';
  const source = new EventSource(view.dataset.events);
  const cell = (text, kind) => {
    const element = document.createElement('td');
    if (kind === 'code') element.append(Object.assign(document.createElement('code'), { textContent: text }));
    else element.textContent = text;
    if (kind === 'number') element.className = 'number';
    return element;
  };
  source.addEventListener('message', (event) => {
    const message = JSON.parse(event.data);
    const row = document.createElement('tr');
    const time = written(inZone(new Date(message.time * 1000)));
    row.append(cell(time), cell(message.topic + (message.retained ? ' (retained)' : ''), 'code'), cell(String(message.size), 'number'), cell(message.text, 'code'));
    view.prepend(row);
    while (view.rows.length > maxRows) view.lastElementChild.remove();
  });
  source.addEventListener('notice', (event) => {
    state.textContent = JSON.parse(event.data).text;
  });
  source.addEventListener('end', (event) => {
    const text = JSON.parse(event.data).text;
    state.textContent = state.textContent.startsWith('The view ends') ? state.textContent : text;
    source.close();
  });
  source.addEventListener('error', () => {
    if (source.readyState === EventSource.CLOSED) state.textContent = 'The view has ended.';
    else state.textContent = 'The bridge does not answer. Trying again …';
  });
}
