// What pages of the console do beside htmx: all of it is for who has JavaScript, and reading goes without.
'use strict';

// On a phone the pages are a line that is scrolled.
document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

// Refreshing: not while the page is hidden or paused, and marked, so that it does not keep a login alive.
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
  if (document.hidden || sessionStorage.getItem('paused') === 'yes') event.preventDefault();
});
document.body.addEventListener('htmx:configRequest', (event) => {
  event.detail.headers['X-Refresh'] = '1';
});

// A table that was scrolled stays where it was, and an alarm that is no news is not read out again.
let scrolled = [];
document.body.addEventListener('htmx:beforeSwap', () => {
  scrolled = [...document.querySelectorAll('#live .scroll')].map((one) => [one.scrollLeft, one.scrollTop]);
});
document.body.addEventListener('htmx:afterSwap', () => {
  document.querySelectorAll('#live .scroll').forEach((one, place) => {
    if (scrolled[place]) [one.scrollLeft, one.scrollTop] = scrolled[place];
  });
});
document.body.addEventListener('htmx:oobBeforeSwap', (event) => {
  const { target, fragment } = event.detail;
  if (target.textContent.trim() === fragment.textContent.trim()) event.detail.shouldSwap = false;
});

// What is shown is old where nothing answers.
const stale = document.getElementById('stale');
const told = (text) => {
  if (stale.textContent !== text) stale.textContent = text;
  stale.hidden = !text;
};
for (const name of ['htmx:sendError', 'htmx:timeout', 'htmx:responseError']) {
  document.body.addEventListener(name, () => told('The bridge does not answer: what is shown here is old.'));
}
document.body.addEventListener('htmx:afterOnLoad', (event) => {
  if (event.detail.xhr.status < 400) told('');
});

// The slash leads to the search field.
document.addEventListener('keydown', (event) => {
  const inField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key !== '/' || inField || event.ctrlKey || event.altKey || event.metaKey) return;
  const search = document.querySelector('[data-search]');
  if (search) {
    event.preventDefault();
    search.focus();
  }
});

// Live views of topics. What comes is text, and becomes text.
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
    const time = new Date(seen.time * 1000).toLocaleTimeString();
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
