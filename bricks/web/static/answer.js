// Moves the bound over the bars without a reload, and asks for another batch or other threads in
// place. The address follows, so that a link keeps the question. Without this file the form works.
const form = document.getElementById("question");
const said = document.getElementById("said");
const WORDS = { yes: "meets it", uncertain: "uncertain", no: "does not meet it" };
const POLL_MS = 400;

const bars = () => document.querySelector("ol.bars");
const slider = () => document.getElementById("slide");
const number = (ms) => String(Number(ms.toPrecision(6)));

function verdict(item, bound) {
  if (Number(item.dataset.high) <= bound) return "yes";
  return Number(item.dataset.low) > bound ? "no" : "uncertain";
}

function address() {
  const query = new URLSearchParams();
  if (form.threads.value) query.set("threads", form.threads.value);
  if (bound() !== null) query.set("slo_ms", number(bound()));
  const { digest } = document.getElementById("answer").dataset;
  return `/models/${digest}${query.size ? `?${query}` : ""}`;
}

// The typed bound in milliseconds; null for none.
function bound() {
  const value = form.slo.valueAsNumber;
  return value > 0 ? value : null;
}

function show() {
  const list = bars(), ms = bound();
  if (!list) return;
  const counts = { yes: 0, uncertain: 0, no: 0 };
  const at = ms === null ? 0 : Math.min(100, 100 * ms / Number(list.dataset.end));
  for (const item of list.children) {
    const line = item.querySelector(".slo"), label = item.querySelector(".more .verdict");
    line.setAttribute("visibility", ms === null ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) line.setAttribute(end, `${at}%`);
    label.hidden = ms === null;
    if (ms === null) continue;
    const of = verdict(item, ms);
    counts[of] += 1;
    label.className = `verdict ${of}`;
    label.textContent = WORDS[of];
  }
  for (const [name, count] of Object.entries(counts)) {
    document.querySelector(`[data-count="${name}"]`).textContent = count;
  }
  document.getElementById("counts").hidden = ms === null;
  document.getElementById("no-bound").hidden = ms !== null;
}

let writing = 0;
function remember() {
  clearTimeout(writing);  // browsers allow few changes of the address in a short time
  writing = setTimeout(() => history.replaceState(null, "", address()), 200);
}

function setBound(ms) {
  form.slo.value = ms === null ? "" : number(ms);
  if (ms !== null) slider().value = ms;
  show();
  remember();
}

function say(text, bad = false) {
  said.textContent = text;
  said.classList.toggle("bad", bad);
}

async function factsOf(response) {
  const facts = await response.json();
  if (!response.ok) throw new Error(facts.error);
  return facts;
}

// The page of an answer; waits for the job that makes it.
async function page(url) {
  const response = await fetch(url);
  const job = new URL(response.url).pathname.match(/^\/jobs\/([\w-]+)$/);
  if (!job) return response;
  for (;;) {
    const facts = await factsOf(await fetch(`/api/jobs/${job[1]}`));
    if (facts.state === "failed") throw new Error(facts.error);
    if (facts.state === "done") return fetch(`${facts.address}${new URL(response.url).search}`);
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

let asked = 0;
async function ask() {
  const turn = ++asked;
  const query = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  say("Asking …");
  try {
    const response = await page(`${location.pathname}?${query}`);
    const found = new DOMParser().parseFromString(await response.text(), "text/html");
    if (turn !== asked) return;
    if (!response.ok) throw new Error(found.querySelector("main .bad").textContent);
    for (const id of ["answer", "bars"]) document.getElementById(id).replaceWith(found.getElementById(id));
    document.title = found.title;
    say("");
    start();
    history.replaceState(null, "", address());
  } catch (error) {
    if (turn === asked) say(error.message || "The server cannot be reached.", true);
  }
}

function drag(event) {
  const box = event.currentTarget.querySelector("svg.bar").getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const step = Number(slider().step);
  setBound(Math.max(step, step * Math.round(share * Number(bars().dataset.end) / step)));
}

function start() {
  const list = bars();
  if (!list) return;
  document.querySelector(".slider").hidden = false;
  list.classList.add("draggable");
  slider().addEventListener("input", () => setBound(slider().valueAsNumber));
  list.addEventListener("pointerdown", (event) => {
    if (!event.target.closest("svg.bar") || event.button !== 0) return;
    list.setPointerCapture(event.pointerId);
    drag(event);
    list.addEventListener("pointermove", drag);
    const end = () => list.removeEventListener("pointermove", drag);
    list.addEventListener("pointerup", end, { once: true });
    list.addEventListener("pointercancel", end, { once: true });
  });
  show();
}

form.querySelector("button").hidden = true;
form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
form.slo.addEventListener("input", () => {
  if (bound() !== null && slider()) slider().value = bound();
  show();
  remember();
});
for (const name of ["batch", "threads"]) {
  form[name].addEventListener("change", () => { if (form.reportValidity()) ask(); });
}
start();
