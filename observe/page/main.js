// The page: header, view, cursor, keyboard, tables, and the public interface window.mayfly.
'use strict';

const $ = id => document.getElementById(id);

class Board {
  constructor(source) {
    this.source = source;
    this.runs = [];
    this.index = 0;
    this.axis = 'time';
    this.range = null;  // [from, to] of the axis; null: all
    this.log = false;
    this.theme = '';
    this.hovered = '';
    this.filter = '';
    this.queued = false;
    this.fresh = true;     // the header must be written again
    this.written = null;   // the state from which the tables were written
    this.ruler = new Ruler(this);
    this.tracks = [this.ruler, new MemberTrack(this), new CurveTrack(this, CURVES[0]),
                   ...CURVES.slice(1).map(curve => new CurveTrack(this, curve)),
                   new SpeedTrack(this), new TimeTrack(this), new StepTrack(this),
                   new MoneyTrack(this), new RequestTrack(this), new MarkTrack(this)];
    for (const track of this.tracks) {
      track.setFolded(track.id === 'rate');
      track.figure.addEventListener('pointerenter', () => { this.hovered = track.id; });
      track.figure.addEventListener('pointerleave', () => { this.hovered = ''; });
      $('tracks').appendChild(track.figure);
    }
    this.readFragment();
    for (const track of this.tracks) {
      if (track.legendWords) track.legendOf(...track.legendWords);  // in the colours of the theme
    }
    this.bind();
  }

  get run() { return this.runs[this.index]; }

  // The width of a track: equal for all tracks of one picture, so that they align.
  width() { return this.across || Math.max(320, $('tracks').clientWidth - 2); }

  view() {
    if (this.range) return this.range;
    const [from, to] = this.run.extent();
    return [from, from + (to - from) * 1.01];
  }

  // Takes new or changed runs.
  take(runs) {
    this.runs = runs;
    if (this.index >= runs.length) this.index = 0;
    const picker = $('run');
    if (picker.options.length !== runs.length) {
      picker.replaceChildren(...runs.map((run, i) => new Option(run.state.name, i)));
    }
    picker.parentElement.hidden = runs.length < 2;
    picker.value = String(this.index);
    this.changed();
  }

  changed() {
    const run = this.run;
    if (!run) return;
    if (!run.has(this.axis)) this.axis = 'time';
    run.axis = this.axis;
    run.prepare();
    this.fresh = true;
    this.draw();
  }

  draw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.drawNow();
    });
  }

  drawNow() {
    if (!this.run) return;
    const began = performance.now();
    this.across = 0;
    this.across = this.width();
    const state = this.run.state;
    const absent = {requests: !state.servers.length, money: !this.run.hasMoney()};
    for (const track of this.tracks) {
      track.figure.hidden = Boolean(absent[track.id]);
      if (!track.figure.hidden) track.update();
    }
    if (this.fresh) {
      this.fresh = false;
      this.writeHeader();
      if (this.written !== state) this.writeTables();
      this.written = state;
    }
    $('follow').setAttribute('aria-pressed', String(!this.range));
    if (this.source.refine) {
      const [from, to] = this.view(), rows = this.run.wanted(from, to, this.width() - GUTTER);
      if (rows) this.source.refine(this.index, from, to, rows);
    }
    this.frame = performance.now() - began;
    document.body.dataset.drawn = 'yes';
  }

  // --- the view

  show(from, to) {
    const [low, high] = this.run.extent();
    const least = (high - low) * 1e-7 || 1e-9;
    if (!(to - from > least)) return;
    this.range = [Math.max(low - (high - low) * 0.02, from), Math.min(high * 1.03 || 1, to)];
    if (!(this.range[1] > this.range[0])) this.range = null;
    this.writeFragment();
    this.draw();
  }

  showAll() {
    this.range = null;
    this.writeFragment();
    this.draw();
  }

  zoom(factor, at) {
    const [from, to] = this.view();
    const middle = at === undefined ? (from + to) / 2 : at;
    this.show(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  pan(share) {
    const [from, to] = this.view(), by = (to - from) * share;
    this.show(from + by, to + by);
  }

  chooseAxis(axis) {
    if (!this.run.has(axis)) return;
    const view = this.range && this.range.map(x => this.run.tOf(x));
    this.axis = axis;
    this.run.axis = axis;
    this.run.prepare();
    this.range = view && view.map(t => this.run.xOf(t));
    if (this.range && !(this.range[1] > this.range[0])) this.range = null;
    this.fresh = true;
    this.writeFragment();
    this.draw();
  }

  chooseTheme(theme) {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    patterns.clear();
    this.written = null;
    this.fresh = true;
    for (const track of this.tracks) {
      if (track.legendWords) track.legendOf(...track.legendWords);
      if (track.chart) { track.chart.destroy(); track.chart = null; }
    }
    this.writeFragment();
    this.draw();
  }

  // Moves the view to the next loss or join, which is then in the middle, and describes it in
  // words.
  jump(direction) {
    const run = this.run, [from, to] = this.view(), middle = (from + to) / 2;
    const width = this.range ? to - from : (to - from) / 8;
    const places = run.state.recoveries.map(r => [run.xOf((r.detected + r.first_step) / 2), r]);
    const next = direction > 0 ? places.find(p => p[0] > middle + width * 1e-3) :
      places.filter(p => p[0] < middle - width * 1e-3).pop();
    if (!next) return this.say('no further loss or join');
    this.show(next[0] - width / 2, next[0] + width / 2);
    const r = next[1];
    this.say(`${r.cause}: member ${r.members.join(', ') || '-'} after step ${r.step}, ` +
             `${duration(r.first_step - r.detected)} to the next step` +
             (r.detail ? `: ${r.detail}` : ''));
  }

  say(text) { $('said').textContent = text; }

  grabbed(event, track) {
    if (!event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.panning = true;
    const [from, to] = this.view(), start = event.clientX;
    const width = track.chart.over.clientWidth;
    const move = e => {
      const by = (start - e.clientX) * (to - from) / width;
      this.show(from + by, to + by);
    };
    const stop = () => {
      removeEventListener('mousemove', move);
      removeEventListener('mouseup', stop);
      this.panning = false;
    };
    addEventListener('mousemove', move);
    addEventListener('mouseup', stop);
  }

  wheeled(event, track) {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const at = track.chart.posToVal(event.offsetX, 'x');
    if (event.shiftKey) this.pan((event.deltaY || event.deltaX) / 1000);
    else this.zoom(Math.exp(event.deltaY / 400), at);
  }

  // Pans and zooms with two fingers.
  touched(event, track) {
    if (event.touches.length !== 2) return;
    event.preventDefault();
    const over = track.chart.over, [from, to] = this.view(), width = over.clientWidth;
    const left = over.getBoundingClientRect().left;
    const places = e => [e.touches[0].clientX - left, e.touches[1].clientX - left]
      .sort((a, b) => a - b);
    const anchors = places(event).map(p => from + p * (to - from) / width);
    const move = e => {
      if (e.touches.length !== 2) return;
      e.preventDefault();
      const [p, q] = places(e);
      if (q - p < 10) return;
      const scale = (anchors[1] - anchors[0]) / (q - p);
      this.show(anchors[0] - p * scale, anchors[0] + (width - p) * scale);
    };
    const stop = () => over.removeEventListener('touchmove', move);
    over.addEventListener('touchmove', move, {passive: false});
    over.addEventListener('touchend', stop, {once: true});
  }

  fold(track) {
    track.setFolded(!track.folded);
    this.writeFragment();
    this.draw();
  }

  // --- the address: a link shows the same view

  readFragment() {
    const words = new URLSearchParams(location.hash.slice(1));
    if (AXES.includes(words.get('axis'))) this.axis = words.get('axis');
    const from = Number(words.get('from')), to = Number(words.get('to'));
    if (words.has('from') && to > from) this.range = [from, to];
    if (words.has('run')) this.index = Math.max(0, Number(words.get('run')) || 0);
    this.log = words.get('log') === '1';
    this.theme = ['light', 'dark'].includes(words.get('theme')) ? words.get('theme') : '';
    if (this.theme) document.documentElement.dataset.theme = this.theme;
    if (words.has('folded')) {
      const folded = words.get('folded').split(',');
      for (const track of this.tracks) track.setFolded(folded.includes(track.id));
    }
    this.filter = words.get('filter') || '';
    $('filter').value = this.filter;
  }

  fragment() {
    const words = new URLSearchParams();
    if (this.axis !== 'time') words.set('axis', this.axis);
    if (this.range) {
      words.set('from', this.range[0].toPrecision(9));
      words.set('to', this.range[1].toPrecision(9));
    }
    if (this.index) words.set('run', this.index);
    if (this.log) words.set('log', '1');
    if (this.theme) words.set('theme', this.theme);
    const folded = this.tracks.filter(t => t.folded).map(t => t.id).join();
    if (folded !== 'rate') words.set('folded', folded);
    if (this.filter) words.set('filter', this.filter);
    return '#' + words;
  }

  writeFragment() {
    try {
      history.replaceState(null, '', this.fragment());
    } catch (refused) {
      // Some browsers do not change the address of a file; "copy link" still has the view.
    }
  }

  // --- header and tables

  writeHeader() {
    const {state} = this.run, head = state.head, end = head.summary;
    document.title = state.name + ' - Mayfly';
    const facts = [];
    const fact = (name, value, title) => {
      if (value !== '' && value !== null && value !== undefined) facts.push([name, value, title]);
    };
    fact('phase', end ? end.outcome.replace(/_/g, ' ') : head.phase.replace(/_/g, ' '),
         end && end.detail);
    if (head.step !== undefined) {
      const last = this.run.kept.step[this.run.kept.count - 1];
      fact('step', number(last || head.step) + (head.total ? ' / ' + number(head.total) : ''));
      const epoch = this.run.kept.values.epoch.last[this.run.kept.count - 1];
      const byEpochs = state.settings.epochs && !(state.settings.steps > 0);
      fact('epoch', number(epoch, 2) + (byEpochs ? ' / ' + state.settings.epochs : ''));
      fact('images/s', number(this.recentRate(), 1), 'mean of the last 50 steps or more');
    }
    if (!end) fact('members', head.members + ' / ' + (head.workers_wanted || '?') +
      (state.settings.cloud_max_workers > 0 ? ', at most ' + state.settings.cloud_max_workers : ''),
      'now / wanted');
    if (head.phase !== 'ended') fact('finish', this.finish());
    if (this.run.hasMoney()) {
      const budget = Number(state.settings.cloud_budget || 0);
      fact('spent', number(head.spent, 4) + (budget > 0 ? ' of ' + number(budget) : ''));
      fact('an hour', number(head.per_hour, 4));
      if (head.on_demand !== null) {
        fact('saved', number(head.on_demand - head.spent, 4) + ' (' +
             number(100 * (1 - head.spent / head.on_demand), 0) + ' %)',
             'against the same hours on demand, ' + number(head.on_demand, 4));
      }
    }
    const steps = state.time.find(share => share[0] === 'steps');
    fact('goodput', number(100 * steps[1] / (state.end || 1), 1) + ' %',
         'share of wall time in steps that count');
    if (head.undone_rows || head.undone_steps) {
      fact('undone steps', number(Math.max(head.undone_rows, head.undone_steps)));
    }
    if (end && end.test_top1 !== undefined) {
      fact('test accuracy', number(100 * end.test_top1, 2) + ' %');
    }
    fact('records', this.source.age(this.run));
    $('facts').replaceChildren(...facts.map(([name, value, title]) => {
      const box = document.createElement('div');
      box.appendChild(document.createElement('dt')).textContent = name;
      box.appendChild(document.createElement('dd')).textContent = value;
      if (title) box.title = title;
      if (name === 'records') this.ageBox = box;
      return box;
    }));
    $('name').textContent = state.name;
    const notes = [];
    if (state.damaged.lines) {
      notes.push(`${state.damaged.lines} lines are not records of a run and were left out; the ` +
                 `first is in ${state.damaged.first}.`);
    }
    $('notes').textContent = notes.join(' ');
    $('settings').textContent =
      Object.entries(state.settings).map(([key, value]) => key + ' ' + value).join(', ');
    for (const axis of AXES) {
      const button = $('axis-' + axis);
      button.disabled = !this.run.has(axis);
      button.setAttribute('aria-pressed', String(this.axis === axis));
    }
    $('follow').hidden = this.source.kind !== 'live';
  }

  writeAge() {
    if (this.run && this.ageBox) this.ageBox.lastChild.textContent = this.source.age(this.run);
  }

  // Images per second over the last 50 steps; in a long run over the buckets that contain them, and
  // at least two, because the last one may be nearly empty.
  recentRate() {
    const kept = this.run.kept, rate = kept.values.images_per_second.mean;
    const buckets = Math.max(2, Math.ceil(50 / 4 ** kept.level));
    let sum = 0, count = 0;
    for (let i = kept.count - 1; i >= Math.max(0, kept.count - buckets); --i) {
      if (rate[i] > 0) { sum += 1 / rate[i]; ++count; }
    }
    return count ? count / sum : null;
  }

  // The expected end of the job: from the speed of recentRate(), and from that of all steps,
  // without the time in which the job did not run or was paused.
  finish() {
    const {kept, state} = this.run, head = state.head;
    if (!head.total || head.total <= head.step || kept.count < 20) return null;
    const batch = Number(state.settings.global_batch), left = head.total - head.step;
    const recent = left * batch / this.recentRate();
    const [first, last] = [kept.t[0], kept.t[kept.count - 1]];
    let took = last - first;
    for (const [from, to, kind] of this.run.segments) {
      if (kind !== 'not_running' && kind !== 'paused') continue;
      took -= Math.max(0, Math.min(to, last) - Math.max(from, first));
    }
    const overall = left * took / Math.max(1, head.step - kept.step[0]);
    const [a, b] = recent < overall ? [recent, overall] : [overall, recent];
    return 'in ' + duration(a) + (b > 1.1 * a ? ' to ' + duration(b) : '');
  }

  writeTables() {
    const state = this.run.state;
    const ms = seconds => number(1000 * seconds, 1);
    const rows = state.recoveries.slice(-500).map(r => {
      const all = r.first_step - r.detected;
      return [duration(r.detected), r.cause, r.members.join(', '), r.step, ms(r.told - r.detected),
              ms(r.stopped - r.detected), ms(r.formed - r.detected), ms(r.synced - r.detected),
              ms(all), r.redone_microbatches, this.phaseBar(r, all), r.detail];
    });
    const median = pick => {
      const sorted = state.recoveries.map(pick).sort((a, b) => a - b);
      return sorted.length ? ms(sorted[Math.floor((sorted.length - 1) / 2)]) : '';
    };
    if (rows.length) {
      rows.push(['median', '', '', '', median(r => r.told - r.detected),
                 median(r => r.stopped - r.detected), median(r => r.formed - r.detected),
                 median(r => r.synced - r.detected), median(r => r.first_step - r.detected),
                 '', '', '']);
    }
    $('recoveries').hidden = !rows.length;
    this.place('recoveries', state.recoveries.length + ' recoveries and changes of members',
      ['at', 'cause', 'member', 'after step', 'told ms', 'stopped ms', 'formed ms', 'synced ms',
       'next step ms', 'redone', 'phases', 'reason'], rows);
    const [head, servers] = serverTable(this.run);
    $('servers').hidden = !servers.length;
    this.place('servers', state.servers.length + ' requests and servers', head, servers);
    this.place('saved', `${state.evaluations.length} evaluations, ${state.checkpoints.length} ` +
      'events of checkpoints', ['at', 'step', 'what', 'result'],
      state.evaluations.map(e =>
        [e.t, e.step, 'evaluation', `accuracy ${number(100 * e.top1, 2)} %, ` +
         `loss ${number(e.loss, 4)}` + (e.undone ? ' (undone)' : '')])
        .concat(state.checkpoints.map(c => [c.t, c.step, c.what.replace(/_/g, ' '), c.detail]))
        .sort((a, b) => a[0] - b[0]).slice(-500)
        .map(row => [duration(row[0])].concat(row.slice(1))));
    this.writeEvents();
  }

  phaseBar(r, all) {
    const canvas = document.createElement('canvas');
    canvas.width = 140;
    canvas.height = 12;
    canvas.className = 'phases';
    const c = canvas.getContext('2d');
    const looks = ['waiting', 'data', 'ready', 'recovery', 'steps'];
    const ends = [r.told, r.stopped, r.formed, r.synced, r.first_step];
    let x = 0;
    ends.forEach((end, i) => {
      const to = Math.max(x, 140 * (end - r.detected) / (all || 1));
      c.fillStyle = fillOf(c, looks[i]);
      c.fillRect(x, 0, to - x, 12);
      x = to;
    });
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', 'shares of the phases');
    return canvas;
  }

  writeEvents() {
    const state = this.run.state, words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let i = state.events.length - 1; i >= 0 && found.length < 500; --i) {
      const e = state.events[i];
      const text = [e.kind, e.member === undefined ? '' : 'member ' + e.member, e.detail || '']
        .join(' ').toLowerCase();
      if (words.every(word => text.includes(word))) found.push(e);
    }
    const all = state.first_event + state.events.length;
    this.place('events', `${all} events, newest first` +
      (words.length ? `; ${found.length} shown` : ''),
      ['at', 'event', 'member', 'step', 'detail'],
      found.map(e => [duration(e.t), e.kind, e.member === undefined ? '' : e.member,
                      e.step === undefined ? '' : e.step, e.detail || '']));
  }

  place(id, title, head, rows) {
    const section = $(id), box = section.querySelector('.scroll');
    section.querySelector('h2').textContent = title;
    const top = box.scrollTop;
    box.replaceChildren(tableOf(head, rows));
    box.scrollTop = top;
  }

  // --- controls

  bind() {
    for (const axis of AXES) {
      $('axis-' + axis).addEventListener('click', () => this.chooseAxis(axis));
    }
    $('run').addEventListener('change', () => {
      this.index = Number($('run').value);
      this.range = null;
      this.writeFragment();
      this.changed();
    });
    $('theme').addEventListener('click', () => this.turnTheme());
    $('follow').addEventListener('click', () => this.showAll());
    $('all').addEventListener('click', () => this.showAll());
    $('log').addEventListener('click', () => this.turnLog());
    $('link').addEventListener('click', () => this.copyLink());
    $('help').addEventListener('click', () => this.turnHelp());
    $('filter').addEventListener('input', () => {
      this.filter = $('filter').value;
      this.writeFragment();
      if (this.run) this.writeEvents();
    });
    addEventListener('resize', () => this.draw());
    addEventListener('hashchange', () => {
      this.range = null;
      this.readFragment();
      this.changed();
    });
    addEventListener('keydown', event => this.pressed(event));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
      this.chooseTheme(this.theme));
  }

  turnTheme() {
    const dark = this.theme ? this.theme === 'dark' :
      matchMedia('(prefers-color-scheme: dark)').matches;
    this.chooseTheme(dark ? 'light' : 'dark');
  }

  turnLog() {
    this.log = !this.log;
    $('log').setAttribute('aria-pressed', String(this.log));
    this.writeFragment();
    this.draw();
  }

  copyLink() {
    const link = location.href.split('#')[0] + this.fragment();
    const told = () => this.say('link copied');
    if (navigator.clipboard && isSecureContext) {
      navigator.clipboard.writeText(link).then(told, () => this.say(link));
    } else {
      this.say(link);
    }
  }

  turnHelp() {
    $('keys').hidden = !$('keys').hidden;
    $('help').setAttribute('aria-expanded', String(!$('keys').hidden));
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.run) return;
    if (event.target instanceof HTMLInputElement) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const actions = {
      '0': () => this.showAll(), 'f': () => this.showAll(), 'ArrowLeft': () => this.pan(-0.2),
      'ArrowRight': () => this.pan(0.2), '+': () => this.zoom(0.6), '=': () => this.zoom(0.6),
      '-': () => this.zoom(1 / 0.6), '[': () => this.jump(-1), ']': () => this.jump(1),
      '/': () => $('filter').focus(), 't': () => this.turnTheme(), 'c': () => this.copyLink(),
      'l': () => this.turnLog(), '?': () => this.turnHelp(),
      'a': () => {
        const here = AXES.filter(axis => this.run.has(axis));
        this.chooseAxis(here[(here.indexOf(this.axis) + 1) % here.length]);
      },
    };
    const action = actions[event.key];
    if (action && !(event.target instanceof HTMLSelectElement)) {
      event.preventDefault();
      action();
    }
  }

  // The numbers behind the pixels, for tests and for the console.
  state() {
    const run = this.run;
    if (!run) return null;
    const tracks = {};
    for (const track of this.tracks) {
      if (!track.figure.hidden && !track.folded) tracks[track.id] = track.shown;
    }
    return {source: this.source.kind, run: this.index, runs: this.runs.length, axis: this.axis,
            view: this.view(), theme: this.theme, state: run.state,
            rows: run.kept.count, level: run.kept.level, undone: run.undone.count,
            frame_ms: this.frame, tracks};
  }

  // One whole curve: [[x, value], ...] as arrays.
  curve(name, which = 'kept') {
    const curves = this.run[which];
    return {t: Array.from(curves.t.subarray(0, curves.count)),
            step: Array.from(curves.step.subarray(0, curves.count)),
            value: Array.from(curves.values[name].last.subarray(0, curves.count))};
  }
}

const embedded = document.getElementById('data');
const board = new Board(embedded ? new ReportSource(embedded.textContent) : new LiveSource());
board.source.start(runs => board.take(runs));
window.mayfly = {state: () => board.state(), curve: (name, which) => board.curve(name, which)};
