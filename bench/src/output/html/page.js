// Shows a result: the JSON in the element `data`, as headline, plots and tables.
//
//   result.figures ──────────────▶ headline, cards, ratios, rounds, tables
//   result.curves, distributions ─▶ plots: uPlot draws them, a table of their values is below each
//
// Names come from outside: they become text of elements and never markup.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const { result } = data;
const { figures } = result;

// ---- Numbers with units for people: `1.35 us`, `3.12 M/s`, `99.9 %`.

const COUNTS = [[1e9, 'G'], [1e6, 'M'], [1, '']];
const UNITS = {
  ns: [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']],
  '1/s': [[1e9, 'G/s'], [1e6, 'M/s'], [1e3, 'k/s'], [1, '/s']],
  B: [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']],
  share: [[0.01, '%']],
  count: COUNTS,
  'per call': COUNTS,
};

// What a value is divided by to be read, and what stands behind it then.
function scale(value, unit) {
  const steps = UNITS[unit] ?? [[1, unit]];
  return steps.find(([factor]) => Math.abs(value) >= factor * 0.9995) ?? steps[steps.length - 1];
}

function readable(value, unit) {
  if (!Number.isFinite(value)) return 'none';
  const [factor, name] = scale(value, unit);
  return `${digits(value / factor)} ${name}`.trim();
}

// Three significant digits; whole numbers whole.
const digits = (value) =>
  Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));

const count = (value) => value.toLocaleString('en').replaceAll(',', '\u202f');

const ratioName = ({ name }) => name.replace('ratio.', '').replaceAll('_', ' ');
const said = (figure) => readable(figure.value, figure.unit);

// ---- Elements.

// No control character is shown.
const visible = (text) => String(text).replace(/[^\P{Cc}\n\t]/gu, '\ufffd');

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, visible(value)));
  const parts = children.flat().filter((child) => child !== null);
  made.append(...parts.map((child) => (child instanceof Node ? child : visible(child))));
  return made;
}

const group = (...children) => [children].flat(9).filter((child) => child !== null);

const facts = (pairs, kind) =>
  element('dl', { class: kind }, pairs.flatMap(([name, value]) =>
    [element('dt', {}, name), element('dd', {}, value)]));

// Rows are lists of cells: text, or elements.
function table(heads, rows) {
  const row = (cells) => element('tr', {}, cells.map((cell) => element('td', {}, cell)));
  const head = element('tr', {}, heads.map((name) => element('th', { scope: 'col' }, name)));
  const body = rows.map((cells) => (cells instanceof Node ? cells : row(cells)));
  const made = element('table', {}, element('thead', {}, head), element('tbody', {}, body));
  return element('div', { class: 'scroll', tabindex: '0' }, made);
}

const section = (title, ...content) => group(element('h2', {}, title), content);

// ---- Figures.

const whole = figures.filter((figure) => !figure.at);
const unique = (names) => [...new Set(names)];
const place = ({ of, at }) => (at ? `${of} at ${at.axis} ${readable(at.value, at.unit)}` : of);

function words(name) {
  const part = (text) => (text === 'p50' ? 'median' : text);
  const [, of, rest] = name.match(/^(round_trip|half_round_trip|ratio)\.(.+)$/) ?? [];
  if (of === 'round_trip') return `Round trip, ${part(rest)}`;
  if (of === 'half_round_trip') return `Half a round trip, ${part(rest)}`;
  if (of === 'ratio') return `ratio, ${rest.replaceAll('_', ' ')}`;
  const known = { rate: 'Round trips a second', data: 'Data a second' };
  return known[name] ?? name.replace(/[_.]/g, ' ');
}

// What a contender is known by: the first of these that it has.
const MAIN = ['round_trip.median', 'round_trip.p50', 'rate', 'data', 'round_trip.mean',
  'instructions', 'half_round_trip.p50'];
const BESIDE = ['half_round_trip.p50', 'round_trip.p99', 'round_trip.p99.9', 'round_trip.max',
  'rate', 'data'];

const named = (of, names) =>
  names.map((name) => whole.find((figure) => figure.of === of && figure.name === name))
    .filter((figure) => figure !== undefined);

// The main figures of the contenders, in the order of the figures.
function mainFigures() {
  const contenders = unique(whole.filter(({ unit }) => unit !== 'x').map(({ of }) => of));
  return contenders.map((of) => named(of, MAIN)[0]).filter((figure) => figure !== undefined);
}

// Each ratio of two contenders with its interval: that of 95 % confidence, or of the rounds.
function ratios() {
  const ends = [['.low', '.high'], ['.lowest', '.highest']];
  // What neighbouring rounds say is a second opinion of the same ratio, and the bare `ratio` is
  // that which stands first under its own name.
  const is_other = ({ name }) =>
    name === 'ratio' || [...ends.flat(), '.paired'].some((end) => name.endsWith(end));
  const two = figures.filter(({ unit, of }) => unit === 'x' && of.includes('/'));
  return two.filter((figure) => !is_other(figure)).map((figure) => {
    const end = (part) => figures.find((other) => other.of === figure.of
      && place(other) === place(figure) && other.name === figure.name + part)?.value;
    const found = ends.find(([low, high]) => end(low) !== undefined && end(high) !== undefined);
    const rounds = figure.rounds ?? [];
    const interval = found ? found.map(end)
      : rounds.length > 1 ? [Math.min(...rounds), Math.max(...rounds)] : null;
    return { figure, interval, sure: found === ends[0] };
  });
}

const wholeRatios = ratios().filter(({ figure }) => !figure.at);
const firstRatios = wholeRatios.filter((one, at) =>
  wholeRatios.findIndex(({ figure }) => figure.of === one.figure.of) === at);

// ---- The top: what was run and where, its main figure, and whether it counts.

function quality() {
  const box = (kind, title, reasons) =>
    element('div', { class: `quality ${kind}`, role: 'note' }, element('strong', {}, title),
      reasons.length ? element('ul', {}, reasons.map((reason) => element('li', {}, reason))) : null);
  const bad = [
    [!data.optimised, 'Not a release build: no figure below means anything.', []],
    [result.interrupted, 'Interrupted: the figures are of what was measured so far.', []],
    [data.failures.length > 0, 'Failed.', data.failures],
    [result.noise.length > 0,
      'Noisy: ratios of medians still mean something, times and tails less so.', result.noise],
  ].filter(([is]) => is);
  if (bad.length === 0) return box('good', 'The machine was quiet.', []);
  return bad.map(([, title, reasons]) => box('bad', title, reasons));
}

// What a ratio means: `rpc: median 1.36 times that of floor, which is worse`.
function sentence(figure) {
  const [, to] = figure.of.split(/\/(.*)/);
  const what = `${place({ ...figure, of: figure.of.split('/')[0] })}: ${ratioName(figure)}`;
  const times = digits(figure.value);
  if (times === '1') return `${what} the same as that of ${to}.`;
  const isBetter = { lower: figure.value < 1, higher: figure.value > 1 }[figure.better];
  const outcome = { true: ', which is better', false: ', which is worse' }[isBetter] ?? '';
  return `${what} ${times} times that of ${to}${outcome}.`;
}

// The figure that the mode is for, what its first ratio means, and the mode's own conclusion.
function headline() {
  const [subject, name] = HEADLINES[result.mode] ?? [];
  const wanted = figures.filter((figure) => figure.name === name
    && (figure.of === subject || figure.of.endsWith(`, ${subject}`)));
  // Of a sweep, the last point.
  const main = wanted[wanted.length - 1] ?? mainFigures()[0] ?? figures[0];
  if (main === undefined) return [];
  const ratio = ratios().find(({ figure }) =>
    figure.of.startsWith(`${main.of}/`) && place({ ...figure, of: main.of }) === place(main));
  const { conclusion } = result;
  return group(
    element('p', { class: 'headline' }, element('strong', {}, said(main)),
      ` ${place(main)}: ${words(main.name).toLowerCase()}`),
    typeof conclusion === 'string' ? element('p', {}, conclusion) : null,
    ratio ? element('p', {}, sentence(ratio.figure)) : null);
}

function cards() {
  const card = (main, rows) => element('li', {},
    element('div', { class: 'name' }, main.of), element('div', { class: 'main' }, said(main)),
    element('div', { class: 'soft' }, words(main.name)),
    facts([...rows, ['samples', count(main.samples)]], 'rows'));
  const short = (name) => (name === 'half_round_trip.p50' ? 'half of it'
    : name === 'rate' ? name : name.match(/^round_trip\.(.*)/)?.[1] ?? words(name));
  const contender = (main) => card(main, named(main.of, BESIDE)
    .filter((figure) => figure !== main).map((figure) => [short(figure.name), said(figure)]));
  const ratio = ({ figure, interval, sure }) => card(figure, interval
    ? [[sure ? '95 % interval' : 'rounds from, to', interval.map(digits).join(' to ')]] : []);
  const all = [...mainFigures().slice(0, CARDS_MAX).map(contender),
    ...firstRatios.slice(0, CARDS_MAX).map(ratio)];
  return all.length ? element('ul', { class: 'cards' }, all) : null;
}

// ---- Plots.

const drawn = [];
const DASHES = [[], [10, 4], [3, 3], [12, 4, 2, 4], [6, 3], [16, 3, 3, 3, 3, 3], [2, 5]];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const colour = (at) => style(`--c${at % DASHES.length}`);

// A name with its line, as the legend has it.
function key(name, at) {
  const svg = (tag, attributes) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    Object.entries(attributes).forEach(([attribute, value]) => made.setAttribute(attribute, value));
    return made;
  };
  const line = svg('path', { d: 'M0 4H32', 'stroke-dasharray': DASHES[at % DASHES.length].join(' ') });
  line.style.stroke = `var(--c${at % DASHES.length})`;
  const drawing = svg('svg', { width: 32, height: 8, 'aria-hidden': true });
  drawing.append(line);
  return element('span', { class: 'key' }, drawing, name);
}

function linearRange(plot, low, high) {
  if (low === null) return [0, 1];
  // Near to zero, zero is shown.
  return uPlot.rangeNum(low > 0 && low < 0.6 * high ? 0 : low, high, 0.1, true);
}

// The power of ten at or below a value.
const power = (value) => 10 ** Math.floor(Math.log10(value) + 1e-9);

// To the next value of one digit at either end.
function logRange(plot, low, high) {
  if (low === null) return [1, 10];
  const least = Math.floor(low / power(low) + 1e-6) * power(low);
  const most = Math.ceil(high / power(high) - 1e-6) * power(high);
  return least < most ? [least, most] : [power(low), 10 * power(low)];
}

// Which values of a bottom axis in equal factors are written: those there is room for.
function written(plot, values) {
  const room = plot.width / Math.log10(values[values.length - 1] / values[0]);
  const shown = room > 1200 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : room > 300 ? [1, 2, 5] : [1];
  return values.map((at) => (shown.includes(Math.round(at / power(at))) ? at : null));
}

// The labels of an axis in equal steps have one unit, and as many digits as they need.
function sameUnit(values, unit) {
  const [factor, name] = scale(Math.max(...values.map(Math.abs)), unit);
  return (value) => `${Number((value / factor).toPrecision(6))} ${name}`.trim();
}

// A plot of series `{ name, points }`. Axes are `{ label, unit, log }`; `range`, `splits` and
// `read` if it is not the values that decide. `listed` picks the values of the bottom axis that
// the table has.
function plot({ title, note, x, y, series, path, listed }) {
  const one = ({ points }) => {
    const known = points.filter(([a, b]) => a !== null && (b === null || !y.log || b > 0));
    return [known.map(([a]) => a), known.map(([, b]) => b)];
  };
  const values = uPlot.join(series.map(one));
  const read = (axis) => axis.read ?? ((value) => readable(value, axis.unit));
  const axis = (side) => ({
    label: visible(side.label), labelFont: FONT, font: FONT, labelSize: 24,
    stroke: () => style('--ink'), grid: { stroke: () => style('--grid'), width: 1 },
    ticks: { stroke: () => style('--axis'), width: 1 },
    incrs: side.incrs ?? (side.unit === 'B' ? BINARY : undefined),
    values: (u, splits) => splits.map(side.log || side.read
      ? (at) => (at === null ? '' : read(side)(at)) : sameUnit(splits, side.unit)),
    ...(side.splits ? { splits: (u) => side.splits(u.width), filter: (u, splits) => splits } : {}),
  });
  const scaleOf = (side) => ({
    time: false, distr: side.log ? 3 : 1, range: side.range ?? (side.log ? logRange : linearRange),
  });
  const line = ({ name }, at) => ({
    label: key(name, at), width: 2, stroke: () => colour(at),
    dash: DASHES[at % DASHES.length].map((part) => part * devicePixelRatio),
    value: (u, value) => (value === null || value === undefined ? '' : read(y)(value)),
    points: { show: path === undefined, size: 7, fill: () => colour(at) },
    ...path?.(at),
  });
  const place = element('div', { role: 'img', 'aria-label': title, class: 'plot' });
  const rows = values[0].map((at, row) => [at, ...values.slice(1).map((all) => all[row])])
    .filter(([at]) => listed?.(at) ?? true);
  const cell = (value) => (value === null || value === undefined ? '' : read(y)(value));
  const heads = [x.label, ...series.map(({ name }) => name)];
  const made = element('figure', {},
    element('figcaption', {}, element('h3', {}, title), note ? element('p', { class: 'note' }, note) : null),
    place,
    element('details', {}, element('summary', {}, 'Values'),
      table(heads, rows.map(([at, ...cells]) => [read(x)(at), ...cells.map(cell)]))));
  const options = {
    width: 900, height: 340, scales: { x: scaleOf(x), y: scaleOf(y) },
    axes: [{ ...(x.log ? { filter: written } : { space: 70 }), ...axis(x), size: 40 }, { ...axis(y), size: 76 }], legend: { markers: { show: false } },
    series: [{ label: visible(x.label), value: (u, at) => (at === null ? '' : read(x)(at)) },
      ...series.map(line)],
  };
  drawn.push({ place, plot: new uPlot(options, values, place) });
  return made;
}

// The ratios as a table with a bar in each row, on an axis they share.
function ratioPlot() {
  const known = wholeRatios.filter(({ figure }) => figure.value > 0);
  const shown = known.length > RATIOS_MAX ? firstRatios : known;
  if (shown.length === 0) return null;
  const ends = shown.flatMap(({ figure, interval }) => [1, figure.value, ...(interval ?? [])]);
  const logs = ends.filter((end) => end > 0).map(Math.log);
  const [low, high] = [Math.min(...logs), Math.max(...logs, Math.min(...logs) + 0.01)];
  const at = (value) => `${2 + 96 * Math.min(1, Math.max(0, (Math.log(value) - low) / (high - low)))}%`;
  const bar = ({ figure, interval }) => {
    const made = element('div', { class: 'bar', 'aria-hidden': 'true' });
    const part = (kind, from, to) => {
      const piece = element('i', { class: kind });
      piece.style.left = at(from);
      if (to !== undefined) piece.style.width = `calc(${at(to)} - ${at(from)})`;
      made.append(piece);
    };
    part('one', 1);
    if (interval) part('interval', ...interval);
    part('point', figure.value);
    return made;
  };
  const row = (one) => [`${one.figure.of} ${ratioName(one.figure)}`,
    bar(one), said(one.figure), ...(one.interval ?? []).map(digits)];
  const sure = shown.filter((one) => one.sure).length;
  const spread = 'from the least to the greatest of the rounds';
  const note = sure === shown.length ? 'what it lies in with 95 %'
    : sure > 0 ? `what it lies in with 95 %, or ${spread} where there is no such interval` : spread;
  return element('figure', { class: 'ratios' }, element('figcaption', {}, element('h3', {}, 'Ratios'),
    element('p', { class: 'note' }, `The point is the ratio, the bar ${note}. At the line both are the same.`)),
  table(['one over the other', '', 'ratio', 'from', 'to'], shown.map(row)));
}

const curvePlots = () => result.curves.filter(({ lines }) => lines.length > 0).map((curve) => {
  // What is not positive has no place on a logarithmic axis.
  const axis = ({ name, unit, log }, part) => ({
    label: name, unit,
    log: log && curve.lines.every(({ points }) => points.every((point) => point[part] > 0)),
  });
  return plot({
    title: curve.title, x: axis(curve.x, 0), y: axis(curve.y, 1), series: curve.lines,
  });
});

// Of many, some from the first to the last; with their samples as `[ns, how many]`.
function timed() {
  const all = result.distributions.map(({ name }, at) => ({ name, steps: data.steps[at] }))
    .filter(({ steps }) => steps.length > 0)
    .map((one) => ({ ...one, samples: one.steps.reduce((sum, [, n]) => sum + n, 0) }));
  const shown = Math.min(all.length, SERIES_MAX);
  const left_out = shown < all.length ? ` ${shown} of ${all.length} are shown.` : '';
  const pick = (at) => all[Math.floor((at * (all.length - 1)) / Math.max(1, shown - 1))];
  return { shown: Array.from({ length: shown }, (_, at) => pick(at)), left_out };
}

// The share of the samples in each step of time; both axes logarithmic, so that one sample in a
// million is seen.
function histogram({ shown, left_out }) {
  const low = Math.max(1, Math.min(...shown.map(({ steps }) => steps[0][0])));
  const high = Math.max(low, ...shown.map(({ steps }) => steps[steps.length - 1][0])) * 1.001;
  // None is narrower than the step of the clock, or there would be some that no sample can be in.
  const fitting = Math.floor(Math.log(high / low) / Math.log1p(result.clock_step_ns / low));
  const bins = Math.min(BINS_MAX, Math.max(BINS_MIN, fitting || BINS_MAX));
  const edge = (bin) => low * (high / low) ** (bin / bins);
  const parts = shown.map(({ steps, samples }) => {
    const shares = new Array(bins + 1).fill(0);
    for (const [ns, n] of steps) {
      const bin = Math.floor((Math.log(ns / low) / Math.log(high / low)) * bins);
      shares[Math.min(bins - 1, Math.max(0, bin))] += n / samples;
    }
    return shares;
  });
  const used = new Set(parts.flatMap((shares) => shares.map((share, bin) => (share ? edge(bin) : 0))));
  // The rarest stand above the axis; outlines begin and end on it.
  const ground = 0.7 * Math.min(...parts.flat().filter((share) => share > 0));
  const height = (shares, bin) =>
    shares[bin] || (shares[bin - 1] || shares[bin + 1] ? ground : null);
  const series = shown.map(({ name, samples }, at) => ({
    name: `${name} (${count(samples)} samples)`,
    points: parts[at].map((_, bin) => [edge(bin), height(parts[at], bin)]),
  }));
  return plot({
    title: 'Distribution of times',
    note: 'Every sample from the shortest to the longest; the share of all that falls into each of '
      + `${bins} equal factors of time.${left_out}`,
    x: { label: 'time, there and back', unit: 'ns', log: true },
    y: {
      label: 'share of samples', log: true, range: () => [ground, 1],
      read: (share) => (share > ground ? readable(share, 'share') : ''),
    },
    series, listed: (at) => used.has(at),
    path: (at) => ({
      paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
      fill: () => `${colour(at).trim()}2e`,
    }),
  });
}

// Time by percentile, each further nine as wide as the one before: the bottom axis is `1 / (1 - p)`.
function percentiles({ shown, left_out }) {
  const most = Math.max(10, ...shown.map(({ samples }) => samples));
  const ticks = [1, 2];
  for (let at = 10; at <= most; at *= 10) ticks.push(at);
  const label = (at) => `${Number((100 - 100 / at).toPrecision(12))} %`;
  const even = Array.from({ length: POINTS + 1 }, (_, at) => most ** (at / POINTS));
  const places = unique([...ticks, ...even, ...shown.map(({ samples }) => samples)]);
  places.sort((a, b) => a - b);
  const series = shown.map(({ name, steps, samples }) => {
    const value = (at) => {
      let left = at === samples ? samples : (1 - 1 / at) * samples;
      return steps.find(([, n]) => (left -= n) <= 1e-6)?.[0];
    };
    return { name, points: places.filter((at) => at <= samples).map((at) => [at, value(at)]) };
  });
  return plot({
    title: 'Times by percentile',
    note: `So many of the samples took no longer. Each line ends at its longest sample.${left_out}`,
    x: {
      label: 'percentile', log: true, range: () => [1, most], read: label,
      splits: (width) => ticks.filter((_, at) => width > 80 * ticks.length || at % 2 === 1),
    },
    y: { label: 'time, there and back', unit: 'ns', log: true },
    series, listed: (at) => ticks.includes(at), path: () => ({ points: { show: false } }),
  });
}

// The rounds one after the other, so that a drift is seen: of the first figure that has some.
function roundPlot() {
  const of = (name) => whole.filter((one) => one.name === name && one.rounds?.length > 1);
  const name = BY_ROUND.find((known) => of(known).length > 0);
  if (name === undefined) return null;
  const shown = of(name).slice(0, SERIES_MAX);
  const values = shown.flatMap(({ rounds }) => rounds);
  const least = Math.min(...values);
  return plot({
    title: `${words(name)}, round by round`,
    note: 'The contenders took turns. Lines that rise or fall together show the machine, a line '
      + 'that moves alone shows its contender.',
    x: {
      label: 'round', unit: 'count', incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
      range: (u, low, high) => [low - 0.5, high + 0.5],
    },
    // Contenders that are far apart are seen side by side.
    y: { label: words(name), unit: shown[0].unit, log: least > 0 && Math.max(...values) > 3 * least },
    series: shown.map(({ of, rounds }) => ({
      name: of, points: rounds.map((value, at) => [at + 1, value]),
    })),
  });
}

function plots() {
  const times = timed();
  const some = times.shown.length > 0;
  return group(ratioPlot(), curvePlots(), some ? histogram(times) : null,
    some ? percentiles(times) : null, roundPlot());
}

// ---- Tables.

// A row for each contender and point, its percentiles side by side.
function sideBySide() {
  const parts = ['min', 'mean', 'p50', 'p90', 'p99', 'p99.9', 'p99.99', 'max'];
  const columns = [...parts.map((part) => [`round_trip.${part}`, part]), ['rate', 'rate'], ['data', 'data']];
  const used = columns.filter(([name]) => figures.some((figure) => figure.name === name));
  const some = figures.filter(({ name }) => used.some(([known]) => known === name));
  if (some.length === 0) return null;
  const row = (name) => {
    const own = some.filter((figure) => place(figure) === name);
    const cells = used.map(([known]) => own.find((figure) => figure.name === known));
    return [name, ...cells.map((figure) => (figure ? said(figure) : '')), count(own[0].samples)];
  };
  const heads = ['whose', ...used.map(([, head]) => head), 'samples'];
  return section('Side by side', table(heads, unique(some.map(place)).map(row)));
}

// Every figure with its unit, its samples and the spread of its rounds; above those of a contender
// and a point stands its name.
function allFigures() {
  const heads = ['figure', 'value', 'unit', 'read as', 'samples', 'rounds from', 'to'];
  const row = (figure, at) => {
    const rounds = figure.rounds ?? [];
    const end = (pick) => (rounds.length ? readable(pick(...rounds), figure.unit) : '');
    const head = element('th', { colspan: heads.length, scope: 'rowgroup' }, place(figure));
    const isNext = at > 0 && place(figures[at - 1]) === place(figure);
    return [...(isNext ? [] : [element('tr', { class: 'group' }, head)]),
      [figure.name, String(Number(figure.value.toFixed(3))), figure.unit, said(figure),
        count(figure.samples), end(Math.min), end(Math.max)]];
  };
  const made = table(heads, figures.flatMap(row));
  made.id = 'figures';
  return section('All figures', made);
}

// What is in a value, each with the path to it.
function flat(value, path) {
  if (value === null) return [];
  if (typeof value !== 'object' || Array.isArray(value)) {
    return [[path, typeof value === 'string' ? value : JSON.stringify(value)]];
  }
  return Object.entries(value).flatMap(([name, part]) => flat(part, path ? `${path}.${name}` : name));
}

// ---- The page.

// The contender and the figure that a mode is for.
const HEADLINES = {
  floor: ['floor', 'round_trip.median'],
  raw: ['raw', 'round_trip.median'],
  lat: ['rpc', 'round_trip.median'],
  rate: ['rpc', 'rate'],
  bw: ['rpc', 'data'],
  distance: ['one', 'round_trip.median'],
  load: ['rpc', 'round_trip.p99'],
  cores: ['rpc', 'rate'],
  churn: ['churn', 'round_trip.p99'],
  conns: ['rpc', 'rate'],
  idle: ['block', 'round_trip.p50'],
  cost: ['client', 'instructions'],
  soak: ['memory', 'rise'],
  starve: ['tickets', 'rate'],
};
const CARDS_MAX = 4;
const RATIOS_MAX = 12;
const SERIES_MAX = 7;
const BINS_MIN = 16;
const BINS_MAX = 96;
const POINTS = 400;
const BY_ROUND = ['round_trip.median', 'round_trip.p50', 'round_trip.p99', 'rate', 'data'];
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power);
// The width of plots on paper: A4 and Letter have more.
const PAPER = 680;
const FONT = '13px system-ui, sans-serif';

function page() {
  const all = plots();
  const printed = data.text.trim() ? section('As printed',
    element('div', { class: 'scroll', tabindex: '0' }, element('pre', {}, data.text.replace(/^\n+|\n+$/g, '')))) : null;
  const settings = flat(result.settings, '');
  return group(
    element('header', {}, element('p', { class: 'kind' }, `rpcrdma-bench ${result.mode}`),
      element('h1', {}, result.what.trim()), element('p', { class: 'soft' }, data.facts[0]?.[1] ?? '')),
    headline(), quality(), cards(), all,
    all.length ? null : printed,
    sideBySide(),
    data.listings.map(({ title, heads, rows }) => section(title, table(heads, rows))),
    allFigures(),
    all.length ? printed : null,
    settings.length ? section('Settings', facts(settings, 'facts')) : null,
    section('Machine and program', facts(data.facts, 'facts')),
    element('p', { class: 'soft' }, 'Every sample is counted and none is trimmed: the maximum is the '
      + 'longest there was. A round trip is there and back; what other tools print as latency is half of it.'));
}

const fit = () => drawn.forEach(({ place, plot: one }) => {
  const width = document.documentElement.className === 'paper' ? PAPER : place.clientWidth;
  if (width > 0) one.setSize({ width, height: one.height });
});
const redraw = () => drawn.forEach(({ plot: one }) => one.redraw());

document.title = visible(`${result.mode}: ${result.what}`);
document.getElementById('main').append(...page());
fit();
addEventListener('resize', fit);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
// Paper is white and of one width.
const print = (kind) => () => {
  document.documentElement.className = kind;
  fit();
  redraw();
};
addEventListener('beforeprint', print('paper'));
addEventListener('afterprint', print(''));
