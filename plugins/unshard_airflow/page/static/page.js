// Refreshes the part `#live` of a page without a reload, draws the charts, and searches while one types.
// Everything works without this script, except the refresh and the charts.
'use strict'

const live = document.getElementById('live')
const stale = document.getElementById('stale')
const place = document.querySelector('form[role=search]')
const charts = [...document.querySelectorAll('[data-chart]')]

// A refresh keeps the details that the user has opened, the charts, and the focus.
const callbacks = {
  beforeNodeMorphed: node => !node.dataset?.chart,
  beforeAttributeUpdated: (name, node) => !(name === 'open' && node.tagName === 'DETAILS'),
}

let latest = 0

async function refresh() {
  const number = ++latest
  try {
    const answer = await fetch(location.href, { headers: { Accept: 'text/html' } })
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
    const found = page.getElementById('live')
    if (number !== latest) return // a later request has overtaken this one
    if (!answer.ok || !found) throw new Error(page.getElementById('failure')?.textContent || answer.statusText)
    Idiomorph.morph(live, found, { ignoreActiveValue: true, callbacks })
    stale.textContent = ''
  } catch (error) {
    stale.textContent = `Not refreshed: ${error.message}`
  }
}

async function turn() {
  if (!document.hidden) await Promise.all([refresh(), ...charts.map(draw)])
  setTimeout(turn, live.dataset.refresh * 1000)
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim()
}

async function draw(box) {
  const answer = await fetch(`${box.dataset.from}?hours=${box.dataset.hours}`)
  if (!answer.ok) return // the refresh of the page says why
  const found = await answer.json()
  box.shown = [found.at, found[box.dataset.chart]]
  if (box.plot) box.plot.setData(box.shown)
  else plot(box)
  const values = box.shown[1].filter(value => value !== null)
  const most = values.length ? Math.max(...values).toLocaleString('en') : 'unknown'
  box.setAttribute('aria-label', `${box.dataset.title}: at most ${most} ${box.dataset.unit}`)
}

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })
}

function plot(box) {
  const axis = { stroke: color('--quiet'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false } }
  box.plot?.destroy()
  box.plot = new uPlot(
    {
      width: box.clientWidth,
      height: 160,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, least, most) => [0, Math.max(most || 0, 1) * 1.1] } },
      axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 60 }],
      series: [
        { label: 'at', value: (_, at) => (at ? clock(at) : '–') },
        {
          label: box.dataset.unit,
          stroke: color('--link'),
          fill: `${color('--link')}30`,
          value: (_, value) => (value === null ? '–' : value.toLocaleString('en')),
        },
      ],
    },
    box.shown,
    box,
  )
}

function redraw() {
  charts.filter(box => box.shown).forEach(plot)
}

function follow(event) {
  // Airflow shows the page in a frame that may not leave it by itself.
  const link = event.target.closest('a[target=_top]')
  if (!link || window === window.parent) return
  event.preventDefault()
  const outer = window.parent.document.createElement('a')
  outer.href = link.href
  outer.click()
}

document.addEventListener('click', follow)
document.addEventListener('keydown', event => {
  const isTyping = event.target.closest('input, textarea, select')
  if (event.key === '/' && place && !isTyping) {
    event.preventDefault()
    place.elements.search.select()
  }
})

if (place) {
  let waits
  place.addEventListener('input', () => {
    clearTimeout(waits)
    waits = setTimeout(() => {
      history.replaceState(null, '', `?${new URLSearchParams(new FormData(place))}`)
      refresh()
    }, 200)
  })
}

if (live) {
  charts.forEach(draw)
  setTimeout(turn, live.dataset.refresh * 1000)
  document.addEventListener('visibilitychange', () => document.hidden || refresh())
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw)
  window.addEventListener('resize', redraw)
}
