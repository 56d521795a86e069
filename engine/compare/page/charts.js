"use strict";
// Draws the charts of a report of `mayfly compare` or `mayfly tune-switch`. Their numbers are in the
// page, as engine/compare/charts_page.cpp writes them.

// Distinguishable with colour-vision deficiencies as well (Okabe and Ito, 2008), and two more.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d",
  "#666666", "#a5aa00", "#000000"];
const CHART_PX = {width: 760, height: 360};

function colourOf(index) {
  return COLOURS[index % COLOURS.length];
}

function add(parent, tag, text = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.append(element);
  return element;
}

// Shows the series with points; each variant has the same colour in every chart.
function addLegend(section, allSeries) {
  const legend = add(section, "p");
  allSeries.forEach((one, index) => {
    if (one.lines.some((line) => line.length > 0)) {
      add(legend, "span", "\u25a0 ").style.color = colourOf(index);
      add(legend, "span", one.name + "\u2003");
    }
  });
}

// One line for each run; the runs of one variant have one colour. uPlot draws columns over one x
// axis, so the points of all lines are joined.
function drawLines(main, chart) {
  const section = add(main, "section");
  add(section, "h2", chart.title);
  const tables = [];
  const series = [{label: chart.x_label}];
  chart.series.forEach((one, index) => {
    for (const line of one.lines) {
      const points = line.filter(([x, y]) => x !== null && y !== null);
      points.sort((a, b) => a[0] - b[0]);
      if (points.length > 0) {
        tables.push([points.map((point) => point[0]), points.map((point) => point[1])]);
        series.push({label: one.name, stroke: colourOf(index), spanGaps: true,
          points: {show: true, size: 5}});
      }
    }
  });
  if (tables.length === 0) {
    add(section, "p", "Nothing was measured.");
    return;
  }
  const options = {...CHART_PX, series, scales: {x: {time: false}},
    legend: {show: false},
    axes: [{label: chart.x_label}, {label: chart.y_label, size: 70}]};
  new uPlot(options, uPlot.join(tables), section);
  addLegend(section, chart.series);
}

// One row for each condition and variant: the mean as a bar, and the range of the runs as text.
function drawBars(main, chart) {
  const section = add(main, "section");
  add(section, "h2", `${chart.title}, ${chart.y_label}`);
  const measured = chart.groups.flatMap((group) => group.bars).filter((bar) => bar !== null);
  const most = Math.max(0, ...measured.map((bar) => bar.value));
  const shown = (number) => Number(number.toPrecision(4)).toString();
  for (const group of chart.groups) {
    add(section, "h3", group.name);
    group.bars.forEach((bar, index) => {
      const row = add(section, "div");
      row.className = "row";
      add(row, "span", chart.names[index]).className = "name";
      if (bar === null) {
        add(row, "span", "-");
        return;
      }
      const block = add(row, "span");
      block.className = "bar";
      block.style.background = colourOf(index);
      block.style.width = `${most > 0 ? 400 * bar.value / most : 0}px`;
      const range = bar.most > bar.least ? ` (${shown(bar.least)} to ${shown(bar.most)})` : "";
      add(row, "span", shown(bar.value) + range);
    });
  }
}

const page = JSON.parse(document.getElementById("data").textContent);
document.title = page.title;
const main = document.querySelector("main");
add(main, "h1", page.title);
add(main, "pre", page.command);
add(main, "pre", page.table);
add(main, "p", page.note);
page.line_charts.forEach((chart) => drawLines(main, chart));
page.bar_charts.forEach((chart) => drawBars(main, chart));
