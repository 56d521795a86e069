// The numbers of a run in the browser: curves by column, the axes on which they can be shown, and
// the reduction of a range to one bucket for each pixel.
'use strict';

const VALUES = ['loss', 'accuracy', 'learning_rate', 'images_per_second', 'wait_ms', 'members',
                'epoch'];

// Rows of a run, or buckets of 4^level rows, as observe/core/curves packs them. On level 0 the
// minimum, maximum, mean and last value of a bucket are the same array.
class Curves {
  constructor() {
    this.level = 0;
    this.count = 0;
    this.room = 0;
    this.grow(256, 0);
  }

  grow(room, level) {
    const bigger = (Type, old) => {
      const array = new Type(room);
      if (old && level === this.level) array.set(old.subarray(0, this.count));
      return array;
    };
    const before = this.values || {};
    this.t = bigger(Float64Array, this.t);
    this.step = bigger(Uint32Array, this.step);
    this.values = {};
    for (const name of VALUES) {
      const old = before[name] || {};
      const last = bigger(Float32Array, old.last);
      this.values[name] = level === 0 ? {min: last, max: last, mean: last, last} :
        {min: bigger(Float32Array, old.min), max: bigger(Float32Array, old.max),
         mean: bigger(Float32Array, old.mean), last};
    }
    this.level = level;
    this.room = room;
  }

  // Replaces the buckets from `first` on.
  splice(level, first, count, bytes) {
    if (level !== this.level) {
      this.count = 0;
      this.grow(Math.max(256, first + count), level);
    } else if (first + count > this.room) {
      this.grow(Math.max(2 * this.room, first + count), level);
    }
    let at = 0;
    const take = (Type, into) => {
      const size = count * Type.BYTES_PER_ELEMENT;
      into.set(new Type(bytes.slice(at, at + size)), first);
      at += size;
    };
    take(Float64Array, this.t);
    take(Uint32Array, this.step);
    for (const name of VALUES) {
      const v = this.values[name];
      for (const part of level === 0 ? ['last'] : ['min', 'max', 'mean', 'last']) {
        take(Float32Array, v[part]);
      }
    }
    this.count = first + count;
  }
}

// The first index of the ascending array whose value is at least x, among the first `count`.
function lowerBound(array, count, x) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
}

// A piecewise linear function through (xs[i], ys[i]), both ascending; constant outside.
function interpolate(xs, ys, count, x) {
  if (count === 0) return 0;
  const i = lowerBound(xs, count, x);
  if (i === 0) return ys[0];
  if (i === count) return ys[count - 1];
  const width = xs[i] - xs[i - 1];
  return width > 0 ? ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / width : ys[i];
}

const AXES = ['time', 'step', 'epoch', 'money'];

// One run: its state, its curves, and where they lie on the chosen axis.
class Run {
  constructor() {
    this.state = null;
    this.kept = new Curves();
    this.undone = new Curves();
    this.axis = 'time';
  }

  // Must be called after every change of state, curves or axis.
  prepare() {
    this.detail = null;
    // The time of the newest record: steps may have been added since the state was fetched.
    const kept = this.kept;
    this.end = Math.max(this.state.end, kept.count ? kept.t[kept.count - 1] : 0);
    const money = this.state.money;
    this.moneyT = [0].concat(money.map(p => p[0]), [this.end]);
    let most = 0;
    // After the last record, the hourly cost of servers continues.
    const last = money[money.length - 1];
    const now = last ? last[1] + last[2] * (this.end - last[0]) / 3600 : 0;
    const owed = [0].concat(money.map(p => p[1]), [now]);
    this.moneySpent = owed.map(spent => (most = Math.max(most, spent)));
    if (this.axis === 'time') {
      this.x = kept.t;
    } else {
      this.x = new Float64Array(kept.count);
      for (let i = 0; i < kept.count; ++i) this.x[i] = this.xOfRow(kept, i);
    }
    this.segments = this.lostSegments();
    this.waited = new Float64Array(kept.count + 1);
    const wait = kept.values.wait_ms.mean, rows = 4 ** kept.level;
    for (let i = 0; i < kept.count; ++i) {
      this.waited[i + 1] = this.waited[i] + (wait[i] > 0 ? wait[i] * rows / 1000 : 0);
    }
  }

  hasMoney() { return this.state.money.some(p => p[1] > 0 || p[2] > 0); }

  has(axis) {
    return axis === 'money' ? this.moneySpent[this.moneySpent.length - 1] > 0 :
      axis === 'time' || this.kept.count > 0;
  }

  xOfRow(curves, i) {
    switch (this.axis) {
      case 'step': return curves.step[i];
      case 'epoch': return curves.values.epoch.last[i];
      case 'money': return interpolate(this.moneyT, this.moneySpent, this.moneyT.length,
                                       curves.t[i]);
      default: return curves.t[i];
    }
  }

  // The place of a time on an axis, and the inverse.
  xOf(t, axis = this.axis) {
    const kept = this.kept;
    switch (axis) {
      case 'step': return interpolate(kept.t, kept.step, kept.count, t);
      case 'epoch': return interpolate(kept.t, kept.values.epoch.last, kept.count, t);
      case 'money': return interpolate(this.moneyT, this.moneySpent, this.moneyT.length, t);
      default: return t;
    }
  }

  // On axes of steps, an evaluation is at its step, because an evaluator reports its result later
  // than that.
  xOfEvaluation(e) {
    const {kept} = this;
    return this.axis === 'step' ? e.step : this.axis === 'epoch' ?
      interpolate(kept.step, kept.values.epoch.last, kept.count, e.step) : this.xOf(e.t);
  }

  tOf(x, axis = this.axis) {
    const kept = this.kept;
    switch (axis) {
      case 'step': return interpolate(kept.step, kept.t, kept.count, x);
      case 'epoch': return interpolate(kept.values.epoch.last, kept.t, kept.count, x);
      case 'money': return interpolate(this.moneySpent, this.moneyT, this.moneyT.length, x);
      default: return x;
    }
  }

  extent() {
    if (this.axis === 'time') return [0, Math.max(this.end, 1e-3)];
    const last = this.kept.count ? this.x[this.kept.count - 1] : 1;
    if (this.axis === 'money') return [0, this.moneySpent[this.moneySpent.length - 1] || 1];
    return [0, Math.max(last, 1e-6)];
  }

  // A curve between two places of the axis, in about `pixels` buckets at most. Each has the
  // minimum, maximum and mean of all its rows, so that no outlier is lost.
  query(name, from, to, pixels) {
    const near = this.detail && this.detail.from <= from && to <= this.detail.to;
    const kept = near ? this.detail.curves : this.kept, x = near ? this.detail.x : this.x;
    const v = kept.values[name];
    const first = Math.max(0, lowerBound(x, kept.count, from) - 1);
    const end = Math.min(kept.count, lowerBound(x, kept.count, to) + 2);
    const group = Math.max(1, Math.ceil((end - first) / Math.max(1, pixels)));
    const out = {x: [], min: [], max: [], mean: [], last: [], rows: group * 4 ** kept.level};
    for (let i = first; i < end; i += group) {
      const stop = Math.min(end, i + group);
      let min = Infinity, max = -Infinity, sum = 0, count = 0;
      for (let j = i; j < stop; ++j) {
        if (v.min[j] < min) min = v.min[j];
        if (v.max[j] > max) max = v.max[j];
        if (v.mean[j] === v.mean[j]) { sum += v.mean[j]; ++count; }
      }
      out.x.push(x[stop - 1]);
      out.min.push(count ? min : null);
      out.max.push(count ? max : null);
      out.mean.push(count ? sum / count : null);
      const last = v.last[stop - 1];
      out.last.push(last === last ? last : null);
    }
    return out;
  }

  // The rows that a view needs in more detail than this page has: [first, count], or null.
  wanted(from, to, pixels) {
    const kept = this.kept, rows = 4 ** kept.level;
    if (kept.level === 0 || (this.detail && this.detail.from <= from && to <= this.detail.to)) {
      return null;
    }
    const first = Math.max(0, lowerBound(this.x, kept.count, from) - 2);
    const end = Math.min(kept.count, lowerBound(this.x, kept.count, to) + 3);
    return end - first < pixels ? [first * rows, (end - first) * rows] : null;
  }

  // Takes these rows as detail, which is used until the axis or the rows before them change.
  refine(curves, from, to) {
    const x = new Float64Array(curves.count);
    for (let i = 0; i < curves.count; ++i) x[i] = this.xOfRow(curves, i);
    this.detail = {curves, from, to, x};
  }

  // The parts of undone curves in order: [first, end) of each time the job went back.
  undoneParts() {
    const parts = [], u = this.undone;
    for (let i = 0, first = 0; i < u.count; ++i) {
      if (i + 1 === u.count || u.step[i + 1] <= u.step[i]) {
        parts.push([first, i + 1]);
        first = i + 1;
      }
    }
    return parts;
  }

  // Times that were not spent on steps that count, without overlaps: [from, to, kind].
  lostSegments() {
    const order = ['not_running', 'no_coordinator', 'paused', 'waiting', 'start', 'recovery',
                   'evaluation', 'checkpoint', 'undone'];
    const spans = this.state.spans
      .filter(s => s[2] !== 'no_coordinator' || !this.anyStepIn(s[0], s[1]))
      .map(s => [s[0], s[1] === null ? this.end : s[1], s[2]]);
    for (const r of this.state.recoveries) spans.push([r.detected, r.first_step, 'recovery']);
    for (const [first, end] of this.undoneParts()) {
      spans.push([this.undone.t[first], this.undone.t[end - 1], 'undone']);
    }
    const edges = [];
    for (const [from, to, kind] of spans) {
      const rank = order.indexOf(kind);
      if (rank >= 0 && to > from) edges.push([from, rank, 1], [to, rank, -1]);
    }
    edges.sort((a, b) => a[0] - b[0]);
    const open = order.map(() => 0), segments = [];
    let t = 0;
    for (const [at, rank, change] of edges) {
      const now = open.findIndex(count => count > 0);
      if (now >= 0 && at > t) segments.push([t, at, order[now]]);
      open[rank] += change;
      t = at;
    }
    return segments;
  }

  anyStepIn(from, to) {
    const i = lowerBound(this.kept.t, this.kept.count, from + 1e-9);
    return i < this.kept.count && (to === null || this.kept.t[i] < to);
  }

  waitedUntil(t) {
    const kept = this.kept, i = lowerBound(kept.t, kept.count, t);
    if (i === 0 || i === kept.count) return this.waited[i];
    const share = (t - kept.t[i - 1]) / (kept.t[i] - kept.t[i - 1] || 1);
    return this.waited[i] + share * (this.waited[i + 1] - this.waited[i]);
  }
}

// Packs lanes into as few rows as possible: a row is used again once its lane has ended.
function packLanes(lanes, from, to) {
  const ends = [];
  return lanes.map(lane => {
    const start = from(lane);
    let row = ends.findIndex(end => end <= start);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = to(lane);
    return row;
  });
}
