// What pages of the console do in addition to htmx. Reading works without JavaScript.
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
const shown = (date) => (isLocal() ? date : utc(date));

// Times in the chosen zone, and labels for the cells of tables that become cards on a phone.
const dress = (part) => {
  for (const one of part.querySelectorAll('time[datetime]')) one.textContent = written(shown(new Date(one.dateTime)));
  for (const one of part.querySelectorAll('text[data-time]')) one.textContent = clock(shown(new Date(one.dataset.time * 1000)));
  for (const table of part.querySelectorAll('table.rows')) {
    const labels = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, place) => { cell.dataset.label = labels[place]; });
    table.classList.add('cards');
  }
};
const showZone = () => {
  zoneName.textContent = `Times in ${isLocal() ? localName : 'UTC'}`;
  zone.textContent = isLocal() ? 'UTC' : 'Local time';
  dress(document);
};
if (zone) {
  zone.hidden = false;
  zone.addEventListener('click', () => {
    localStorage.setItem('zone', isLocal() ? 'utc' : 'local');
    showZone();
  });
  showZone();
}

// Pages are not refreshed while hidden or paused. The header prevents that refreshing keeps a login alive.
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
  const writing = [...document.querySelectorAll('#live input:not([type])')].some((one) => one.value || one === document.activeElement);
  if (document.hidden || writing || sessionStorage.getItem('paused') === 'yes') event.preventDefault();
});
document.body.addEventListener('htmx:configRequest', (event) => {
  event.detail.headers['X-Refresh'] = '1';
});

// A table keeps its scroll position, and a selection stays.
let scrolled = [];
let selected = new Set();
document.body.addEventListener('htmx:beforeSwap', () => {
  scrolled = [...document.querySelectorAll('#live .scroll')].map((one) => [one.scrollLeft, one.scrollTop]);
  selected = new Set([...document.querySelectorAll('#live input:checked')].map((one) => one.id));
});
document.body.addEventListener('htmx:afterSwap', () => {
  const live = document.getElementById('live');
  live.querySelectorAll('.scroll').forEach((one, place) => {
    if (scrolled[place]) [one.scrollLeft, one.scrollTop] = scrolled[place];
  });
  live.querySelectorAll('input[type="checkbox"]').forEach((one) => { one.checked = selected.has(one.id); });
  dress(live);
});
// Problems that are not new are not announced again. They are compared in the chosen time zone.
document.body.addEventListener('htmx:oobBeforeSwap', (event) => {
  const { target, fragment } = event.detail;
  dress(fragment);
  if (target.textContent.trim() === fragment.textContent.trim()) event.detail.shouldSwap = false;
});

// Report that the page is not up to date.
const stale = document.getElementById('stale');
const told = (text) => {
  if (stale.textContent !== text) stale.textContent = text;
  stale.hidden = !text;
};
for (const name of ['htmx:sendError', 'htmx:timeout', 'htmx:responseError']) {
  document.body.addEventListener(name, () => told('The bridge does not answer: this page is not up to date.'));
}
document.body.addEventListener('htmx:afterOnLoad', (event) => {
  if (event.detail.xhr.status < 400) told('');
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
  const most = 200;
  const state = document.getElementById('view-state');
  state.textContent = 'Connecting …';
  const source = new EventSource(view.dataset.events);
  const cell = (text, kind) => {
    const made = document.createElement('td');
    if (kind === 'code') made.append(Object.assign(document.createElement('code'), { textContent: text }));
    else made.textContent = text;
    if (kind === 'number') made.className = 'number';
    return made;
  };
  source.addEventListener('message', (event) => {
    const seen = JSON.parse(event.data);
    const row = document.createElement('tr');
    const time = written(shown(new Date(seen.time * 1000)));
    row.append(cell(time), cell(seen.topic + (seen.retained ? ' (retained)' : ''), 'code'), cell(String(seen.size), 'number'), cell(seen.text, 'code'));
    view.prepend(row);
    while (view.rows.length > most) view.lastElementChild.remove();
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
    else state.textContent = 'The bridge does not answer; trying again …';
  });
}
