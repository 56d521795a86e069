// The sources of the numbers: embedded in a report, or the program that serves the page.
'use strict';

// Decodes base64 of raw deflate, as observe/report writes it.
async function inflate(text) {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Response(stream).arrayBuffer();
}

class ReportSource {
  constructor(text) {
    this.kind = 'report';
    this.text = text;
  }

  async start(onRuns) {
    const data = JSON.parse(this.text);
    const runs = [];
    for (const part of data.runs) {
      const run = new Run();
      run.state = part.state;
      for (const which of ['kept', 'undone']) {
        const series = part[which];
        run[which].splice(series.level, 0, series.count, await inflate(series.data));
      }
      runs.push(run);
    }
    this.made = data.made;
    onRuns(runs);
  }

  age() {
    const made = new Date(1000 * this.made).toISOString();
    return 'report of ' + made.slice(0, 16).replace('T', ' ') + ' UTC';
  }
}

// The header of an answer with curves, and the bytes that follow it.
function unframe(bytes) {
  const length = new DataView(bytes).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  return [head, bytes.slice(4 + length)];
}

// Follows runs through the program that serves this page. A stream of events announces changes, and
// the numbers are fetched. The browser opens a broken stream again. After a restart of the server,
// which is recognised by another `instance`, everything is fetched again.
class LiveSource {
  constructor() {
    this.kind = 'live';
    this.runs = [];
    this.seen = [];  // per run: version of curves and state that the page has
    this.instance = '';
    this.heard = 0;
    this.busy = false;
    this.skew = 0;  // of the server's clock against ours
  }

  async start(onRuns) {
    this.onRuns = onRuns;
    // The key is in the address only once; afterwards the browser keeps it in a cookie that scripts
    // cannot read.
    const words = new URLSearchParams(location.hash.slice(1));
    const key = words.get('key');
    if (key) {
      words.delete('key');
      history.replaceState(null, '', '#' + words);
      await fetch('/session', {method: 'POST', headers: {Authorization: 'Bearer ' + key}});
    }
    const first = await fetch('/api/state?run=0');
    if (!first.ok) {
      this.failed = (await first.text()).trim();
      document.getElementById('said').textContent = this.failed;
      document.body.dataset.drawn = 'refused';
      return;
    }
    this.listen();
    setInterval(() => board.writeAge(), 1000);
  }

  // A browser opens a stream that breaks again, but not one that is refused.
  listen() {
    this.stream = new EventSource('/events');
    this.stream.onmessage = event => this.told(JSON.parse(event.data));
    this.stream.onerror = () => {
      if (this.stream.readyState !== EventSource.CLOSED) return;
      this.isRefused = true;
      board.say('This page gets no news: too many pages are open, or it has the key of another ' +
                'run. It asks again every five seconds.');
      setTimeout(() => this.listen(), 5000);
    };
  }

  told(news) {
    if (this.isRefused) board.say('');
    this.isRefused = false;

    this.heard = Date.now();
    this.skew = news.now - this.heard / 1000;
    if (news.instance !== this.instance) {
      this.instance = news.instance;
      this.seen = news.runs.map(() => ({version: 0, facts: 0, stateAt: 0}));
    }
    this.news = news;
    this.fetchAll();
  }

  async fetchAll() {
    if (this.busy) return;
    this.busy = true;
    try {
      let any = false;
      const news = this.news;
      for (let i = 0; i < news.runs.length; ++i) any = await this.fetchRun(i, news) || any;
      if (any && this.runs.length) this.onRuns(this.runs);
    } catch (failure) {
      if (!(failure instanceof TypeError)) throw failure;  // network error: it is opened again
    } finally {
      this.busy = false;
    }
    const behind = this.news.runs.some((run, i) => run.version > this.seen[i].version ||
      run.version > this.seen[i].state);
    if (behind) setTimeout(() => this.fetchAll(), 100);
  }

  // Fetches the curves at every change, and the state, but that at most once a second if only steps
  // were added.
  async fetchRun(i, news) {
    const seen = this.seen[i], now = news.runs[i];
    let any = false;
    const run = this.runs[i] || (this.runs[i] = new Run());
    if (!run.state || now.facts > seen.facts ||
        (now.version > (seen.state || 0) && Date.now() - seen.stateAt > 1000)) {
      const answer = await fetch('/api/state?run=' + i);
      if (!answer.ok) return false;
      run.state = await answer.json();
      seen.facts = now.facts;
      seen.state = now.version;
      seen.stateAt = Date.now();
      any = true;
    }
    if (now.version > seen.version) {
      const answer = await fetch(`/api/series?run=${i}&instance=${this.instance}` +
                                 `&version=${seen.version}&level=${run.kept.level}`);
      if (!answer.ok) return any;
      const [head, bytes] = unframe(await answer.arrayBuffer());
      const width = head.level === 0 ? 12 + 4 * VALUES.length : 12 + 16 * VALUES.length;
      const undone = head.count * width;
      run.kept.splice(head.level, head.first, head.count, bytes.slice(0, undone));
      run.undone.splice(head.undone_level, 0, head.undone_count, bytes.slice(undone));
      seen.version = head.version;
      any = true;
    }
    return any;
  }

  // Fetches more detail of a part of a long run.
  async refine(i, from, to, rows) {
    if (this.refining) return;
    this.refining = true;
    try {
      const answer = await fetch(`/api/detail?run=${i}&first=${rows[0]}&count=${rows[1]}`);
      if (!answer.ok) return;
      const [head, bytes] = unframe(await answer.arrayBuffer());
      const curves = new Curves();
      curves.splice(head.level, 0, head.count, bytes);
      this.runs[i].refine(curves, from, to);
      board.draw();
    } finally {
      this.refining = false;
    }
  }

  age(run) {
    const silent = (Date.now() - this.heard) / 1000;
    if (this.heard && silent > 3) return 'no answer for ' + duration(Math.floor(silent));
    if (run.state.head.phase === 'ended') return 'ended';
    const old = Date.now() / 1000 + this.skew - run.state.origin - run.end;
    return old < 2 ? 'live' : 'last record ' + duration(Math.floor(old)) + ' ago';
  }
}
