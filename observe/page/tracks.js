// The tracks: one uPlot chart each, all with the same x axis, view and cursor. Everything that is
// not a curve is drawn by hooks.
'use strict';

const GUTTER = 74;  // width of the y axis: equal in all tracks, so that they align

// Colours by Okabe and Ito, with a pattern for each, so that they can be told apart in grey.
const LOOKS = {
  active: ['--blue', 'solid'], loading: ['--grey', 'hatch'], ready: ['--sky', 'dots'],
  observing: ['--yellow', 'cross'],
  steps: ['--blue', 'solid'], data: ['--yellow', 'cross'], recovery: ['--vermillion', 'hatch'],
  start: ['--grey', 'dots'], waiting: ['--purple', 'back'], paused: ['--sky', 'dots'],
  no_coordinator: ['--orange', 'back'], not_running: ['--grey', 'hatch'],
  undone: ['--orange', 'cross'], evaluation: ['--green', 'dots'], checkpoint: ['--green', 'back'],
  asked: ['--grey', 'hatch'], granted: ['--yellow', 'dots'], working: ['--blue', 'solid'],
  refused: ['--vermillion', 'cross'],
  compute: ['--blue', 'solid'], fetch: ['--yellow', 'hatch'], prep: ['--yellow', 'cross'],
  exchange: ['--sky', 'dots'], update: ['--green', 'back'],
};

const WORDS = {
  steps: 'steps (compute, exchange, update)', data: 'waiting for data', recovery: 'recoveries',
  start: 'start', waiting: 'too few workers', paused: 'paused', no_coordinator: 'no coordinator',
  not_running: 'not running', undone: 'undone steps', evaluation: 'evaluations',
  checkpoint: 'copies for checkpoints',
};

const CURVES = [
  {id: 'throughput', title: 'Throughput', unit: 'images/s', value: 'images_per_second',
   zero: true, colour: '--green', phases: true},
  {id: 'loss', title: 'Loss', unit: '', value: 'loss', colour: '--vermillion', log: true},
  {id: 'accuracy', title: 'Accuracy', unit: '%', value: 'accuracy', scale: 100, zero: true,
   colour: '--blue', evaluations: true},
  {id: 'rate', title: 'Learning rate', unit: '', value: 'learning_rate', zero: true,
   colour: '--purple'},
];

function number(value, digits = 3) {
  if (value === null || value === undefined || value !== value) return '\u2013';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  const shown = size >= 1000 ? 0 : size >= 100 ? 1 : digits;
  return value.toLocaleString('en', {maximumFractionDigits: shown});
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return '\u2013';
  const sign = seconds < 0 ? '-' : '';
  const s = Math.abs(seconds);
  if (s < 1) return sign + number(s * 1000, 1) + ' ms';
  if (s < 60) return sign + s.toFixed(s < 10 ? 2 : 1) + ' s';
  const pad = value => String(value).padStart(2, '0');
  const whole = Math.floor(s);
  return sign + (whole >= 3600 ? Math.floor(whole / 3600) + ':' : '') +
    pad(Math.floor(whole / 60) % 60) + ':' + pad(whole % 60);
}

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const patterns = new Map();

function fillOf(context, look) {
  const [name, pattern] = LOOKS[look] || ['--grey', 'solid'];
  const colour = colourOf(name);
  if (pattern === 'solid') return colour;
  const key = colour + pattern;
  if (!patterns.has(key)) patterns.set(key, tileOf(colour, pattern));
  return context.createPattern(patterns.get(key), 'repeat');
}

function tileOf(colour, pattern) {
  const size = 8, tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const c = tile.getContext('2d');
  c.globalAlpha = 0.3;
  c.fillStyle = colour;
  c.fillRect(0, 0, size, size);
  c.globalAlpha = 1;
  c.strokeStyle = colour;
  c.lineWidth = 1.6;
  c.beginPath();
  if (pattern === 'hatch' || pattern === 'cross') {
    for (const d of [-size, 0, size]) { c.moveTo(d, size); c.lineTo(d + size, 0); }
  }
  if (pattern === 'back' || pattern === 'cross') {
    for (const d of [-size, 0, size]) { c.moveTo(d, 0); c.lineTo(d + size, size); }
  }
  c.stroke();
  if (pattern === 'dots') {
    c.beginPath();
    c.arc(2, 2, 1.2, 0, 7);
    c.arc(6, 6, 1.2, 0, 7);
    c.fill();
  }
  return tile;
}

// A track in the page: figure, caption with the values under the cursor, chart, and its numbers as
// text. `board` is the page (main.js), with the run, the view and functions for tracks.
class Track {
  constructor(board, id, title, height) {
    this.board = board;
    this.id = id;
    this.title = title;
    this.height = height;
    this.figure = document.createElement('figure');
    this.figure.id = 'track-' + id;
    this.figure.className = 'track';
    const caption = this.figure.appendChild(document.createElement('figcaption'));
    this.button = caption.appendChild(document.createElement('button'));
    this.button.className = 'fold';
    this.button.addEventListener('click', () => this.board.fold(this));
    this.legend = caption.appendChild(document.createElement('span'));
    this.legend.className = 'legend';
    this.readout = caption.appendChild(document.createElement('output'));
    this.body = this.figure.appendChild(document.createElement('div'));
    this.plotPlace = this.body.appendChild(document.createElement('div'));
    this.plotPlace.className = 'plot';
    this.details = this.body.appendChild(document.createElement('details'));
    this.details.appendChild(document.createElement('summary')).textContent = 'as text';
    this.details.addEventListener('toggle', () => this.writeText());
    this.folded = false;
    this.chart = null;
    this.shown = null;  // the content of the chart, for window.mayfly.state()
  }

  setFolded(folded) {
    this.folded = folded;
    this.body.hidden = folded;
    this.button.textContent = (folded ? '\u25b8 ' : '\u25be ') + this.title;
    this.button.setAttribute('aria-expanded', String(!folded));
  }

  options(extra) {
    const ink = () => colourOf('--soft'), grid = {stroke: () => colourOf('--grid'), width: 1};
    return Object.assign({
      width: this.board.width(), height: this.height, padding: [6, 10, 4, 0],
      scales: {x: {time: false, auto: false}, y: {auto: true}},
      axes: [{show: false},
             {size: GUTTER, stroke: ink, grid, ticks: grid, font: '12px sans-serif',
              values: (u, splits) => splits.map(v => v === null ? '' : number(v))}],
      legend: {show: false},
      cursor: {sync: {key: 'mayfly', scales: ['x', null]}, drag: {x: true, y: false,
               setScale: false}, points: {show: false}, y: false, dblclick: () => null,
               bind: {dblclick: () => () => { this.board.showAll(); return null; }}},
      series: [{}, {show: false}],
      hooks: {
        setSelect: [u => this.selected(u)],
        setCursor: [u => this.pointed(u)],
        drawClear: [u => this.drawBelow(u)],
        draw: [u => this.drawAbove(u)],
      },
    }, extra || {});
  }

  selected(u) {
    if (u.select.width < 4 || this.board.panning) return;
    const from = u.posToVal(u.select.left, 'x');
    const to = u.posToVal(u.select.left + u.select.width, 'x');
    u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    this.board.show(from, to);
  }

  pointed(u) {
    if (u.cursor.left < 0 || u.cursor.left === null) {
      this.readout.textContent = '';
      return;
    }
    const x = u.posToVal(u.cursor.left, 'x');
    this.readout.textContent = this.read(x, u) || '';
  }

  update() {
    if (this.folded) return;
    const data = this.data();
    if (this.chart && this.chart.data.length !== data.length) {
      this.chart.destroy();
      this.chart = null;
    }
    if (!this.chart) {
      this.chart = new uPlot(this.chartOptions(), data, this.plotPlace);
      this.chart.over.addEventListener('mousedown', event => this.board.grabbed(event, this));
      this.chart.over.addEventListener('wheel', event => this.board.wheeled(event, this),
                                       {passive: false});
      this.chart.over.addEventListener('touchstart', event => this.board.touched(event, this),
                                       {passive: false});
    }
    const [from, to] = this.board.view();
    this.chart.batch(() => {
      if (this.chart.width !== this.board.width()) {
        this.chart.setSize({width: this.board.width(), height: this.height});
      }
      this.chart.setData(data, false);
      this.scaleY();
      this.chart.setScale('x', {min: from, max: to});
    });
    if (this.details.open) this.writeText();
  }

  chartOptions() { return this.options(); }
  data() { return [this.board.view(), [null, null]]; }
  scaleY() { this.chart.setScale('y', {min: 0, max: 1}); }
  drawBelow() {}
  drawAbove() {}
  read() { return ''; }
  text() { return [[], []]; }

  writeText() {
    const old = this.details.querySelector('table');
    if (old) old.remove();
    if (this.details.open) {
      const [head, rows] = this.text();
      this.details.appendChild(tableOf(head, rows));
    }
  }

  // Calls use(context) with the plot's area as clip, in pixels of the canvas.
  within(u, use) {
    const c = u.ctx, {left, top, width, height} = u.bbox;
    c.save();
    c.textAlign = 'left';
    c.textBaseline = 'alphabetic';
    c.beginPath();
    c.rect(left, top, width, height);
    c.clip();
    use(c, left, top, width, height);
    c.restore();
  }

  legendOf(looks, words) {
    this.legendWords = [looks, words];
    this.legend.replaceChildren(
      ...looks.map((look, i) => sampleOf(look, words ? words[i] : look, 14)));
  }
}

// A patch of this look, `width` pixels wide, with words beside it.
function sampleOf(look, words, width) {
  const entry = document.createElement('span');
  const sample = entry.appendChild(document.createElement('canvas'));
  sample.width = width;
  sample.height = 10;
  const c = sample.getContext('2d');
  c.fillStyle = fillOf(c, look);
  c.fillRect(0, 0, width, 10);
  entry.append(' ' + words);
  return entry;
}

function tableOf(head, rows) {
  const table = document.createElement('table');
  const line = table.createTHead().insertRow();
  for (const text of head) {
    const cell = line.appendChild(document.createElement('th'));
    cell.scope = 'col';
    cell.textContent = text;
  }
  const body = table.createTBody();
  for (const row of rows) {
    const tr = body.insertRow();
    for (const value of row) {
      const cell = tr.insertCell();
      if (value instanceof Node) cell.appendChild(value); else cell.textContent = String(value);
      if (typeof value === 'number') cell.className = 'number';
    }
  }
  return table;
}

// Distances between the numbers of an axis: 1, 2, 5, 10, ...; for times above a second, whole parts
// of minutes, hours and days.
const STEPS = [];
for (let power = -9; power <= 12; ++power) {
  for (const digit of [1, 2, 5]) STEPS.push(Number(digit + 'e' + power));
}
const TIME_STEPS = STEPS.filter(step => step < 1).concat(
  [1, 2, 5, 10, 15, 30], [1, 2, 5, 10, 15, 30].map(minutes => 60 * minutes),
  [1, 2, 3, 6, 12].map(hours => 3600 * hours), STEPS.filter(step => step >= 1)
    .map(days => 86400 * days));

// The scale of the x axis at the top of the page.
class Ruler extends Track {
  constructor(board) {
    super(board, 'ruler', 'Axis', 44);
    this.figure.classList.add('ruler');
    this.button.remove();
    this.details.remove();
  }

  setFolded() { this.folded = false; }

  chartOptions() {
    const options = this.options();
    const ink = () => colourOf('--ink'), grid = {stroke: () => colourOf('--grid'), width: 1};
    options.axes = [{incrs: () => this.board.run.axis === 'time' ? TIME_STEPS : STEPS,
                     stroke: ink, grid, ticks: grid, side: 0, size: 30, font: '12px sans-serif',
                     values: (u, splits, axis, space, by) =>
                       splits.map(v => v === null ? '' : this.word(v, by))},
                    {size: GUTTER, show: true, grid: {show: false}, ticks: {show: false},
                     values: () => []}];
    return options;
  }

  // `by`: the distance to the next word, which must differ from this one.
  word(x, by = Infinity) {
    if (this.board.run.axis !== 'time') return number(x, by < 0.001 ? 7 : 4);
    if (x === 0) return '0';
    const digits = by < 1 ? Math.min(6, Math.ceil(-Math.log10(by) - 1e-9)) : 0;
    if (!digits) return x < 60 && by < Infinity ? Math.round(x) + ' s' : duration(x);
    const minutes = Math.floor(x / 60);
    return (minutes ? minutes + ' min ' : '') + (x - 60 * minutes).toFixed(digits) + ' s';
  }

  // The place of the cursor on every axis, also for a screen reader.
  read(x) {
    const run = this.board.run, t = run.tOf(x);
    const utc = new Date(1000 * (run.state.origin + t)).toISOString();
    const parts = [duration(t), utc.replace('T', ' ').replace(/\.\d+Z/, ' UTC')];
    if (run.kept.count) {
      parts.push('step ' + number(Math.round(run.xOf(t, 'step'))));
      parts.push('epoch ' + number(run.xOf(t, 'epoch')));
    }
    if (run.has('money')) parts.push('spent ' + number(run.xOf(t, 'money'), 4));
    return parts.join('  \u00b7  ');
  }
}

// A recorded value over the x axis: the mean as a line, the range of each pixel as a band.
class CurveTrack extends Track {
  constructor(board, curve) {
    super(board, curve.id, curve.title + (curve.unit ? ' (' + curve.unit + ')' : ''), 130);
    this.curve = curve;
  }

  chartOptions() {
    const colour = () => colourOf(this.curve.colour);
    const options = this.options();
    const log = this.curve.log && this.board.log;
    options.scales.y = {auto: true, distr: log ? 3 : 1,
                        range: (u, min, max) => this.range(min, max)};
    options.series = [{},
      {stroke: colour, width: 1.5, points: {show: false}, spanGaps: true},
      {width: 0, stroke: 'transparent', points: {show: false}, spanGaps: true},
      {width: 0, stroke: 'transparent', points: {show: false}, spanGaps: true}];
    options.bands = [{series: [3, 2], fill: () => colourOf(this.curve.colour) + '55'}];
    this.isLog = log;
    return options;
  }

  range(min, max) {
    if (min === null || max === null || min === undefined) return this.isLog ? [0.1, 1] : [0, 1];
    if (this.isLog) return [Math.max(min * 0.9, 1e-9), Math.max(max * 1.1, 1e-8)];
    const low = this.curve.zero ? Math.min(0, min) : min;
    const pad = (max - low || Math.abs(max) || 1) * 0.06;
    return [this.curve.zero && low === 0 ? 0 : low - pad, max + pad];
  }

  data() {
    const [from, to] = this.board.view();
    const scale = this.curve.scale || 1;
    const buckets = this.board.run.query(this.curve.value, from, to, this.board.width() - GUTTER);
    if (scale !== 1) {
      for (const part of ['min', 'max', 'mean', 'last']) {
        buckets[part] = buckets[part].map(v => v === null ? null : v * scale);
      }
    }
    this.shown = buckets;
    return [buckets.x, buckets.mean, buckets.min, buckets.max];
  }

  scaleY() {
    let low = Infinity, high = -Infinity;
    const positive = this.isLog;
    for (const part of [this.shown.min, this.shown.max]) {
      for (const v of part) {
        if (v === null || (positive && v <= 0)) continue;
        if (v < low) low = v;
        if (v > high) high = v;
      }
    }
    const [from, to] = this.board.view();
    if (this.curve.evaluations) {
      for (const e of this.board.run.state.evaluations) {
        const x = this.board.run.xOfEvaluation(e);
        if (x < from || x > to) continue;
        low = Math.min(low, 100 * e.top1);
        high = Math.max(high, 100 * e.top1);
      }
    }
    const [min, max] = low <= high ? this.range(low, high) : this.range(null, null);
    this.chart.setScale('y', {min, max});
  }

  update() {
    if (this.chart && this.isLog !== Boolean(this.curve.log && this.board.log)) {
      this.chart.destroy();
      this.chart = null;
    }
    super.update();
  }

  drawBelow(u) {
    this.within(u, (c, left, top, width, height) => {
      for (const [from, to, kind] of this.board.run.segments) {
        if (kind === 'undone') continue;
        const x0 = u.valToPos(this.board.run.xOf(from), 'x', true);
        const x1 = u.valToPos(this.board.run.xOf(to), 'x', true);
        if (x1 < left || x0 > left + width) continue;
        c.globalAlpha = 0.45;
        c.fillStyle = fillOf(c, kind);
        c.fillRect(x0, top, Math.max(1, x1 - x0), height);
      }
      c.globalAlpha = 1;
    });
  }

  // Draws the phases of a recovery when the view is zoomed in.
  drawPhases(u, c, top, height) {
    const run = this.board.run;
    c.font = 11 * devicePixelRatio + 'px sans-serif';
    for (const r of run.state.recoveries) {
      const at = ['detected', 'told', 'stopped', 'formed', 'synced', 'first_step']
        .map(name => [u.valToPos(run.xOf(r[name]), 'x', true), name]);
      if (at[5][0] - at[0][0] < 150 * devicePixelRatio) continue;
      c.lineWidth = 3;
      at.forEach(([x, name], i) => {
        c.fillStyle = colourOf('--ink');
        c.fillRect(x, top, 1, height);
        if (i === 0) return;
        const word = name.replace('_', ' '), y = top + (10 + 12 * (i % 3)) * devicePixelRatio;
        c.strokeStyle = colourOf('--paper');
        c.strokeText(word, x + 4, y);
        c.fillText(word, x + 4, y);
      });
    }
  }

  drawAbove(u) {
    const run = this.board.run, scale = this.curve.scale || 1;
    this.within(u, (c, left, top, width, height) => {
      c.strokeStyle = colourOf(this.curve.colour);
      c.globalAlpha = 0.45;
      c.setLineDash([4, 4]);
      const values = run.undone.values[this.curve.value].mean;
      for (const [first, end] of run.undoneParts()) {
        const stride = Math.max(1, Math.ceil((end - first) / 4000));
        c.beginPath();
        for (let i = first; i < end; i += stride) {
          const y = u.valToPos(values[i] * scale, 'y', true);
          if (y === y) c.lineTo(u.valToPos(run.xOfRow(run.undone, i), 'x', true), y);
        }
        c.stroke();
      }
      c.setLineDash([]);
      c.globalAlpha = 1;
      if (this.curve.phases) this.drawPhases(u, c, top, height);
      if (this.curve.evaluations) {
        c.fillStyle = colourOf('--vermillion');
        for (const e of run.state.evaluations) {
          const x = u.valToPos(run.xOfEvaluation(e), 'x', true);
          const y = u.valToPos(100 * e.top1, 'y', true);
          const size = 4 * devicePixelRatio;
          c.globalAlpha = e.undone ? 0.4 : 1;
          c.beginPath();
          c.moveTo(x, y - size);
          c.lineTo(x + size, y);
          c.lineTo(x, y + size);
          c.lineTo(x - size, y);
          c.fill();
        }
      }
    });
  }

  read(x) {
    const shown = this.shown;
    if (!shown || !shown.x.length) return '';
    let i = Math.min(lowerBound(shown.x, shown.x.length, x), shown.x.length - 1);
    if (i > 0 && x - shown.x[i - 1] < shown.x[i] - x) --i;
    return shown.rows > 1 ? `${number(shown.mean[i])}  (${number(shown.min[i])} to ` +
      `${number(shown.max[i])} in ${shown.rows} steps)` : number(shown.mean[i], 4);
  }

  text() {
    const [from, to] = this.board.view();
    const b = this.board.run.query(this.curve.value, from, to, 24), scale = this.curve.scale || 1;
    const cell = v => v === null ? '\u2013' : number(v * scale, 4);
    return [[this.board.run.axis, 'mean', 'lowest', 'highest', 'last'],
            b.x.map((x, i) => [this.board.ruler.word(x), cell(b.mean[i]), cell(b.min[i]),
                               cell(b.max[i]), cell(b.last[i])])];
  }
}

// Lanes packed into rows.
class LaneTrack extends Track {
  data() {
    const lanes = this.lanes(), end = this.board.run.end;
    this.rowOf = packLanes(lanes, l => l.from, l => l.to === null ? Infinity : l.to);
    this.list = lanes;
    this.rows = Math.max(1, ...this.rowOf.map(row => row + 1));
    const room = Math.min(26, Math.max(1.5, 280 / this.rows));
    const height = Math.round(14 + Math.max(30, room * this.rows));
    if (height !== this.height) {
      this.height = height;
      if (this.chart) { this.chart.destroy(); this.chart = null; }
    }
    this.shown = lanes.map((l, i) => ({label: l.label, row: this.rowOf[i], from: l.from, to: l.to,
                                       end: l.end || ''}));
    this.end = end;
    return super.data();
  }

  fill(c, look) { return fillOf(c, look); }

  chartOptions() {
    const options = this.options();
    options.axes[1].values = () => [];
    options.axes[1].grid = {show: false};
    options.axes[1].ticks = {show: false};
    return options;
  }

  drawAbove(u) {
    const run = this.board.run;
    this.within(u, (c, left, top, width, height) => {
      const step = height / this.rows;
      const bar = step < 6 * devicePixelRatio ? step : step * 0.72;
      c.font = Math.min(12, bar / devicePixelRatio) * devicePixelRatio + 'px sans-serif';
      c.textBaseline = 'middle';
      this.list.forEach((lane, i) => {
        const y = top + this.rowOf[i] * step + (step - bar) / 2;
        for (const [from, to, look] of lane.parts) {
          const x0 = u.valToPos(run.xOf(from), 'x', true);
          const x1 = u.valToPos(run.xOf(to === null ? this.end : to), 'x', true);
          if (x1 < left || x0 > left + width) continue;
          c.fillStyle = this.fill(c, look);
          c.fillRect(x0, y, Math.max(1, x1 - x0), bar);
        }
        const x0 = Math.max(left, u.valToPos(run.xOf(lane.from), 'x', true));
        const x1 = u.valToPos(run.xOf(lane.to === null ? this.end : lane.to), 'x', true);
        if (bar >= 9 * devicePixelRatio && x1 - x0 > c.measureText(lane.label).width + 12) {
          c.fillStyle = colourOf('--on-blue');
          c.strokeStyle = colourOf('--blue');
          c.lineWidth = 3;
          c.strokeText(lane.label, x0 + 5, y + bar / 2);
          c.fillText(lane.label, x0 + 5, y + bar / 2);
        }
        if (lane.end && lane.to !== null) this.drawEnd(c, lane, x1, y + bar / 2, bar);
      });
    });
  }

  // Draws the end of a lane: a cross for a loss or a refusal, a triangle for a regular end.
  drawEnd(c, lane, x, y, bar) {
    const size = Math.min(5 * devicePixelRatio, Math.max(3, bar / 2));
    c.lineWidth = 2 * devicePixelRatio;
    c.beginPath();
    if (lane.bad) {
      c.strokeStyle = colourOf('--vermillion');
      c.moveTo(x - size, y - size);
      c.lineTo(x + size, y + size);
      c.moveTo(x + size, y - size);
      c.lineTo(x - size, y + size);
      c.stroke();
    } else {
      c.fillStyle = colourOf('--ink');
      c.moveTo(x, y - size);
      c.lineTo(x + size, y);
      c.lineTo(x, y + size);
      c.fill();
    }
  }

  read(x, u) {
    const run = this.board.run, t = run.tOf(x);
    const there = this.list.filter(l => l.from <= t && (l.to === null || t <= l.to));
    const row = Math.floor(this.rows * u.cursor.top / (u.bbox.height / devicePixelRatio));
    const lane = this.board.hovered === this.id ?
      there.find(l => this.rowOf[this.list.indexOf(l)] === row) : null;
    return lane ? lane.words(t) : there.length + ' ' + this.noun;
  }
}

// The speed of each member as a heat map: slower members are darker, so that it can be read in
// grey. The scale ends at three times the time of the fastest.
class SpeedTrack extends LaneTrack {
  constructor(board) {
    super(board, 'speed', 'Time of a microbatch on each member', 90);
    this.noun = 'members';
  }

  lanes() {
    const members = this.board.run.state.members.filter(m => m.speeds.length > 0);
    this.fastest = Infinity;  // by a loop: there may be more speeds than a call takes arguments
    this.slowest = -Infinity;
    for (const [, ms] of members.flatMap(m => m.speeds)) {
      this.fastest = Math.min(this.fastest, ms);
      this.slowest = Math.max(this.slowest, ms);
    }
    this.legend.textContent = !members.length ? '' : this.slowest === this.fastest ?
      `${number(this.fastest, 1)} ms` :
      `light: ${number(this.fastest, 1)} ms, dark: ` +
      `${number(Math.min(this.slowest, 3 * this.fastest), 1)} ms` +
      (this.slowest > 3 * this.fastest ? ' or more' : '');
    return members.map(m => {
      const end = m.end === undefined ? null : m.end_t;
      const parts = m.speeds.map((s, i) =>
        [s[0], i + 1 < m.speeds.length ? m.speeds[i + 1][0] : end, s[1]]);
      return {label: String(m.member), from: m.speeds[0][0], to: end, end: m.end,
              bad: m.end === 'lost' || m.end === 'evicted', parts,
              words: t => {
                const speed = m.speeds.filter(s => s[0] <= t).pop();
                return `member ${m.member} on ${m.host || '?'}: ` + (speed ?
                  `${number(speed[1], 2)} ms a microbatch, ${speed[2]} of a step` : '');
              }};
    });
  }

  fill(c, ms) {
    const most = Math.min(this.slowest, 3 * this.fastest);
    const share = most > this.fastest ?
      Math.min(1, (ms - this.fastest) / (most - this.fastest)) : 0;
    return `hsl(205, 85%, ${88 - 60 * share}%)`;
  }

  text() {
    return [['member', 'host', 'ms a microbatch', 'microbatches of a step', 'steps', 'samples'],
            this.board.run.state.members.filter(m => m.steps !== undefined).slice(-500).map(m => {
              const last = m.speeds[m.speeds.length - 1] || [0, null, 0];
              return [m.member, m.host, last[1] === null ? '' : number(last[1], 2), last[2],
                      m.steps, m.samples];
            })];
  }
}

class MemberTrack extends LaneTrack {
  constructor(board) {
    super(board, 'members', 'Members', 90);
    this.noun = 'members';
    this.legendOf(['active', 'ready', 'loading', 'observing']);
  }

  lanes() {
    return this.board.run.state.members.map(m => ({
      label: m.member + (m.host ? ' ' + m.host : ''), from: m.spans[0][0],
      to: m.end === undefined ? null : m.end_t, end: m.end,
      bad: m.end === 'lost' || m.end === 'evicted', parts: m.spans,
      words: t => {
        const span = m.spans.find(s => s[0] <= t && (s[1] === null || t <= s[1]));
        return `member ${m.member} on ${m.host || '?'}: ${span ? span[2] : ''}` +
          (m.end ? `; ${m.end}${m.end_step === null ? '' : ' after step ' + m.end_step}` +
            (m.detail ? ': ' + m.detail : '') : '');
      }}));
  }

  text() {
    return [['member', 'host', 'connected', 'first active', 'end', 'at', 'after step', 'reason'],
            this.board.run.state.members.slice(-500).map(m => {
              const active = m.spans.find(s => s[2] === 'active');
              return [m.member, m.host, duration(m.spans[0][0]), active ? duration(active[0]) : '',
                      m.end || 'there', m.end ? duration(m.end_t) : '',
                      m.end && m.end_step !== null ? m.end_step : '', m.detail || ''];
            })];
  }
}

class RequestTrack extends LaneTrack {
  constructor(board) {
    super(board, 'requests', 'Requests and servers', 90);
    this.noun = 'requests and servers';
    this.legendOf(['asked', 'granted', 'working', 'refused'],
                  ['asked', 'granted', 'its worker has joined', 'refused']);
  }

  lanes() {
    return this.board.run.state.servers.map(s => {
      const refused = s.end === 'refused';
      const parts = refused ? [[s.asked, s.ended, 'refused']] :
        [[s.asked, s.granted, 'asked'], [s.granted, s.joined === null ? s.ended : s.joined,
                                         'granted']];
      if (s.joined !== null) parts.push([s.joined, s.ended, 'working']);
      return {label: s.offer || s.server, from: s.asked, to: s.ended, end: s.end,
              bad: refused || s.end === 'lost', parts,
              words: () => `${s.server || 'request'} ${s.offer}` +
                (s.end ? `: ${s.end} ${s.detail}` : '') +
                (s.cost === null ? '' : `, cost ${number(s.cost, 4)}`)};
    });
  }

  text() { return serverTable(this.board.run); }
}

function serverTable(run) {
  const at = t => t === null ? '' : duration(t);
  return [['server', 'offer', 'asked', 'granted', 'joined', 'ended', 'end', 'cost',
           'on demand an hour', 'detail'],
          run.state.servers.slice(-500).map(s =>
            [s.server || '(refused)', s.offer, at(s.asked), at(s.granted), at(s.joined),
             at(s.ended), s.end, s.cost === null ? '' : number(s.cost, 4),
             s.on_demand_price === null ? '' : number(s.on_demand_price, 4), s.detail])];
}

// Shares of wall time, stacked.
class TimeTrack extends Track {
  constructor(board) {
    super(board, 'time', 'Where the time goes (%)', 100);
    this.kinds = ['steps', 'data', 'evaluation', 'checkpoint', 'undone', 'recovery', 'start',
                  'waiting', 'paused', 'no_coordinator', 'not_running'];
    this.division = document.createElement('div');
    this.division.className = 'legend division';
    this.body.insertBefore(this.division, this.details);
  }

  // The kinds of a step, each with a patch as long as its share.
  divide() {
    const {steps, kinds} = this.board.run.state.profile;
    if (steps === 0) {
      this.division.replaceChildren();
      return;
    }
    const all = kinds.reduce((sum, kind) => sum + kind[1], 0);
    this.division.replaceChildren(
      `a step of ${number(1000 * all / steps, 3)} ms:`,
      ...kinds.map(([kind, s]) => sampleOf(
        kind, `${kind} ${number(100 * s / all, 1)} %`, Math.max(2, Math.round(300 * s / all)))));
  }

  data() {
    const run = this.board.run, [from, to] = this.board.view();
    const bins = Math.max(1, Math.floor((this.board.width() - GUTTER) / 6));
    this.bins = [];
    for (let i = 0, s = 0; i < bins; ++i) {
      const x0 = from + (to - from) * i / bins, x1 = from + (to - from) * (i + 1) / bins;
      const a = run.tOf(x0), b = Math.min(run.tOf(x1), run.end);
      const seconds = {};
      if (!(b > a)) {
        this.bins.push([x0, x1, seconds, 0]);
        continue;
      }
      while (s < run.segments.length && run.segments[s][1] <= a) ++s;
      let rest = b - a;
      for (let j = s; j < run.segments.length && run.segments[j][0] < b; ++j) {
        const [f, t, kind] = run.segments[j];
        const share = Math.min(t, b) - Math.max(f, a);
        if (share > 0) { seconds[kind] = (seconds[kind] || 0) + share; rest -= share; }
      }
      seconds.data = Math.max(0, Math.min(rest, run.waitedUntil(b) - run.waitedUntil(a)));
      seconds.steps = Math.max(0, rest - seconds.data);
      this.bins.push([x0, x1, seconds, b - a]);
    }
    const present = new Set(run.state.time.filter(share => share[1] > 0).map(share => share[0]));
    const looks = this.kinds.filter(kind => present.has(kind));
    if (looks.join() !== this.looks) {
      this.looks = looks.join();
      this.legendOf(looks, looks.map(kind => WORDS[kind]));
    }
    this.shown = this.bins.map(bin => bin[2]);
    this.divide();
    return super.data();
  }

  scaleY() { this.chart.setScale('y', {min: 0, max: 100}); }

  drawAbove(u) {
    this.within(u, c => {
      const fills = new Map(this.kinds.map(kind => [kind, fillOf(c, kind)]));
      for (const [x0, x1, seconds, all] of this.bins) {
        const left = Math.round(u.valToPos(x0, 'x', true));
        const right = Math.round(u.valToPos(x1, 'x', true));
        let below = 0;
        for (const kind of this.kinds) {
          if (!seconds[kind]) continue;
          const share = 100 * seconds[kind] / all;
          const top = u.valToPos(below + share, 'y', true);
          c.fillStyle = fills.get(kind);
          c.fillRect(left, top, right - left, u.valToPos(below, 'y', true) - top);
          below += share;
        }
      }
    });
  }

  read(x) {
    const bin = this.bins.find(b => b[0] <= x && x < b[1]);
    if (!bin || !bin[3]) return '';
    return this.kinds.filter(kind => bin[2][kind] > 0)
      .map(kind => `${WORDS[kind]} ${number(100 * bin[2][kind] / bin[3], 1)} %`).join(', ');
  }

  text() {
    const time = this.board.run.state.time, all = this.board.run.state.end || 1;
    return [['kind', 'seconds', 'share of wall time'],
            time.map(([kind, s]) => [WORDS[kind], number(s, 2), number(100 * s / all, 2) + ' %'])
              .concat([['wall time', number(all, 2), '100 %']], this.textOfSteps())];
  }

  // The rows of the table that `mayfly profile` prints.
  textOfSteps() {
    const {steps, kinds, slowest, held_up: heldUp} = this.board.run.state.profile;
    const all = kinds.reduce((sum, kind) => sum + kind[1], 0) || 1;
    const ms = (seconds, of) => `${(1000 * seconds / of).toFixed(3)} ms`;
    const ofSteps = count => `${number(100 * count / steps, 1)} % of steps`;
    return (steps === 0 ? [] : kinds.map(([kind, s]) =>
      [`in a step: ${kind}`, ms(s, steps), `${number(100 * s / all, 1)} % of a step`]))
      .concat(slowest.map(([member, count, s]) =>
        [`ready last: member ${member}`, ms(s, count), ofSteps(count)]))
      .concat(heldUp.map(([member, count, s]) =>
        [`late in the exchange: member ${member}`, `${ms(s, count)} longer`, ofSteps(count)]));
  }
}

// The time of a step, stacked by kind: means of the stretches into which the run is divided.
class StepTrack extends Track {
  constructor(board) {
    super(board, 'step', 'Time of a step (ms)', 110);
    this.kinds = [];
  }

  data() {
    const run = this.board.run, {stretches, kinds} = run.state.profile;
    const present = kinds.map((kind, i) => [kind[0], i]).filter(([, i]) => kinds[i][1] > 0);
    if (present.map(kind => kind[0]).join() !== this.kinds.map(kind => kind[0]).join()) {
      this.kinds = present;
      this.legendOf(present.map(kind => kind[0]));
    }
    this.shown = stretches.map(([first, last, ...rest]) => {
      const member = rest.pop();
      return {from: this.place(first - 1), to: this.place(last), first, last, ms: rest, member,
              all: rest.reduce((sum, ms) => sum + ms, 0)};
    });
    return super.data();
  }

  // The place of the end of a step on the axis.
  place(step) {
    const run = this.board.run;
    return run.axis === 'step' ? step : run.xOf(run.tOf(step, 'step'));
  }

  scaleY() {
    const [from, to] = this.board.view();
    const seen = this.shown.filter(s => s.to > from && s.from < to).map(s => s.all);
    this.chart.setScale('y', {min: 0, max: 1.08 * Math.max(1e-3, ...seen)});
  }

  drawAbove(u) {
    const [from, to] = this.board.view();
    this.within(u, c => {
      const fills = new Map(this.kinds.map(([kind]) => [kind, fillOf(c, kind)]));
      for (const stretch of this.shown) {
        if (stretch.to <= from || stretch.from >= to) continue;
        const left = Math.round(u.valToPos(stretch.from, 'x', true));
        const right = Math.max(left + 1, Math.round(u.valToPos(stretch.to, 'x', true)));
        let below = 0;
        for (const [kind, i] of this.kinds) {
          const top = u.valToPos(below + stretch.ms[i], 'y', true);
          c.fillStyle = fills.get(kind);
          c.fillRect(left, top, right - left, u.valToPos(below, 'y', true) - top);
          below += stretch.ms[i];
        }
      }
    });
  }

  static steps({first, last}) {
    return first === last ? `step ${first}` : `steps ${first}\u2013${last}`;
  }

  read(x) {
    const stretch = (this.shown || []).find(s => s.from <= x && x < s.to);
    if (!stretch) return '';
    return `${StepTrack.steps(stretch)}: ` +
      this.kinds.map(([kind, i]) => `${kind} ${number(stretch.ms[i], 2)}`).join(', ') +
      ` ms; ready last: member ${stretch.member}`;
  }

  text() {
    const kinds = this.board.run.state.profile.kinds.map(kind => kind[0]);
    return [['steps', ...kinds.map(kind => kind + ', ms'), 'most often ready last'],
            (this.shown || []).map(s => [`${s.first} to ${s.last}`,
                                         ...s.ms.map(ms => number(ms, 3)),
                                         `member ${s.member}`])];
  }
}

class MoneyTrack extends Track {
  constructor(board) { super(board, 'money', 'Money spent', 110); }

  chartOptions() {
    const options = this.options();
    options.series = [{}, {stroke: () => colourOf('--purple'), width: 2, points: {show: false}}];
    return options;
  }

  // Between two records the cost grows with the hourly cost, but a record may add more, because a
  // server is billed for a least time at once.
  data() {
    const run = this.board.run, points = run.state.money;
    const x = [], y = [];
    points.forEach(([t, spent, perHour], i) => {
      x.push(run.xOf(t));
      y.push(spent);
      const last = i + 1 === points.length;
      const until = last ? run.end : points[i + 1][0];
      const grown = spent + perHour * (until - t) / 3600;
      x.push(run.xOf(until));
      y.push(last ? grown : Math.min(grown, Math.max(spent, points[i + 1][1])));
    });
    this.shown = {x, spent: y};
    return [x, y];
  }

  budget() { return Number(this.board.run.state.settings.cloud_budget || 0); }

  scaleY() {
    const most = Math.max(1e-9, ...this.shown.spent, this.board.run.state.head.on_demand || 0);
    const budget = this.budget();
    const high = budget && budget < 4 * most ? Math.max(most, budget) : most;
    this.chart.setScale('y', {min: 0, max: 1.08 * high});
  }

  drawAbove(u) {
    const head = this.board.run.state.head;
    this.within(u, (c, left, top, width) => {
      const line = (value, colour, dash, word) => {
        if (!value) return;
        const y = u.valToPos(value, 'y', true);
        c.strokeStyle = c.fillStyle = colourOf(colour);
        c.setLineDash(dash);
        c.beginPath();
        c.moveTo(left, y);
        c.lineTo(left + width, y);
        c.stroke();
        c.font = 11 * devicePixelRatio + 'px sans-serif';
        const room = y - top > 16 * devicePixelRatio;
        c.fillText(word, left + 6, room ? y - 4 : y + 12 * devicePixelRatio);
      };
      line(this.budget(), '--vermillion', [8, 4], 'budget');
      line(head.on_demand, '--orange', [2, 4], 'the same hours on demand');
    });
  }

  read(x) {
    const run = this.board.run, t = run.tOf(x);
    const points = run.state.money.filter(p => p[0] <= t);
    if (!points.length) return '';
    const [, , perHour, billing] = points[points.length - 1];
    return `${number(run.xOf(t, 'money'), 4)} spent, ${number(perHour, 4)} an hour for ` +
      `${billing} servers`;
  }

  text() {
    return [['time', 'spent', 'an hour', 'servers billed'],
            this.board.run.state.money.slice(-200)
              .map(p => [duration(p[0]), number(p[1], 5), number(p[2], 4), p[3]])];
  }
}

// Single events by group, each group with a shape of its own.
const MARKS = [
  ['faults', ['lost', 'evicted', 'corrupted', 'stalled', 'fatal', 'fell_back', 'restarted',
              'no_quorum', 'checkpoint_failed', 'server_lost'], '--vermillion'],
  ['members', ['connected', 'joined', 'returned', 'joins_again', 'left'], '--blue'],
  ['job', ['chaos', 'rebalance', 'straggler', 'scale', 'update_skipped', 'offers_exhausted',
           'budget'], '--purple'],
  ['saved', ['checkpoint', 'evaluation', 'evaluated', 'checkpoint_copied'], '--green'],
];

class MarkTrack extends Track {
  constructor(board) { super(board, 'marks', 'Events', 84); }

  data() {
    this.marks = MARKS.map(([, kinds]) =>
      this.board.run.state.events.filter(e => kinds.includes(e.kind)));
    this.shown = this.marks.map(list => list.length);
    return super.data();
  }

  chartOptions() {
    const options = this.options();
    options.axes[1].splits = () => MARKS.map((_, i) => 1 - (i + 0.5) / MARKS.length);
    options.axes[1].values = () => MARKS.map(group => group[0]);
    options.axes[1].grid = {show: false};
    return options;
  }

  drawAbove(u) {
    this.within(u, (c, left, top, width, height) => {
      const size = 4 * devicePixelRatio;
      this.marks.forEach((list, i) => {
        const y = top + height * (i + 0.5) / MARKS.length;
        c.strokeStyle = c.fillStyle = colourOf(MARKS[i][2]);
        c.lineWidth = 1.6 * devicePixelRatio;
        for (const event of list) {
          const x = u.valToPos(this.board.run.xOf(event.t), 'x', true);
          if (x < left - size || x > left + width + size) continue;
          c.beginPath();
          if (i === 0) {
            c.moveTo(x - size, y - size);
            c.lineTo(x + size, y + size);
            c.moveTo(x + size, y - size);
            c.lineTo(x - size, y + size);
            c.stroke();
          } else if (i === 1) {
            c.arc(x, y, size, 0, 7);
            c.stroke();
          } else if (i === 2) {
            c.strokeRect(x - size, y - size, 2 * size, 2 * size);
          } else {
            c.moveTo(x, y - size);
            c.lineTo(x + size, y + size);
            c.lineTo(x - size, y + size);
            c.fill();
          }
        }
      });
    });
  }

  read(x, u) {
    const reach = 8 * (u.scales.x.max - u.scales.x.min) / Math.max(1, u.over.clientWidth);
    const near = this.marks.flat().filter(e => Math.abs(this.board.run.xOf(e.t) - x) <= reach);
    return near.slice(0, 3).map(e => `${e.kind}${e.member === undefined ? '' : ' ' + e.member}` +
      (e.detail ? ': ' + e.detail : '')).join('; ') + (near.length > 3 ? '; ...' : '');
  }

  text() {
    return [['group', 'events'], MARKS.map((group, i) => [group[0], this.marks[i].length])];
  }
}
